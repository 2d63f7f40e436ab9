//! The ground: types and tools that know nothing else of the crate but its configuration.

pub(crate) mod callback;
pub mod event_queue;
pub mod fields;
pub(crate) mod limits;
pub mod lock;
pub(crate) mod out_segment;
pub mod planted;
#[cfg(feature = "tokio")]
pub mod readiness;
pub(crate) mod times;
pub(crate) mod types;
