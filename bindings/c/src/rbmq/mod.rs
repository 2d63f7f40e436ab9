//! RBMQ's client: publishers and subscribers of topics, and workers of groups.

pub mod attributes;
pub mod claimed;
pub mod confirm;
pub mod dispatcher;
mod failures;
pub mod group_worker;
pub mod groups;
pub mod login;
pub mod observer;
pub mod publisher;
pub mod received;
pub mod space;
pub mod subscriber;
pub mod subscriber_options;
pub mod topic;
mod writing;
