//! RBMQ's client: publishers and subscribers of topics.

pub mod confirm;
mod failures;
pub mod publisher;
pub mod subscriber;
pub mod topic;
