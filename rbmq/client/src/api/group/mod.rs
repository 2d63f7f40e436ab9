//! Groups: workers that share a kept topic. Each message goes to one worker, and comes again until it is acknowledged.

mod admin;
mod builder;
mod link;
mod message;
mod worker;

pub use admin::{GroupStart, Groups};
pub use builder::GroupBuilder;
pub use message::GroupMessage;
pub use worker::GroupWorker;
