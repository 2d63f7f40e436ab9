//! The handles of the application.

pub(crate) mod group;
pub(crate) mod observer;
pub(crate) mod publisher;
#[cfg(feature = "tokio")]
pub(crate) mod publisher_tasks;
pub(crate) mod space_writer;
pub(crate) mod subscriber;
#[cfg(feature = "tokio")]
pub(crate) mod subscriber_tasks;
pub(crate) mod subscription_driver;
pub(crate) mod writer;
pub(crate) mod writer_tasks;
mod writer_with;
