//! RBMQ's client: publishers and subscribers of topics.

pub mod attributes;
pub mod claimed;
pub mod confirm;
pub mod dispatcher;
mod failures;
pub mod login;
pub mod observer;
pub mod publisher;
pub mod received;
pub mod space;
pub mod subscriber;
pub mod subscriber_options;
pub mod topic;
mod writing;
