//! CMQ: queues over UDP.

pub mod events;
pub mod options;
pub mod queue;
mod readiness;
