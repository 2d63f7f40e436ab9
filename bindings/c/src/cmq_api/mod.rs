//! CMQ: queues over UDP.

pub mod events;
pub mod mailbox;
pub mod message;
pub mod multicast;
pub mod options;
pub mod queue;
mod readiness;
pub mod reason;
pub mod reliable;
pub mod reliable_options;
pub mod repair;
pub mod request;
pub mod security;
