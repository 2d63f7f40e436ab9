//! The handles of applications, and what they give out.

pub(crate) mod conn;
pub(crate) mod context;
#[cfg(feature = "tokio")]
pub(crate) mod event_stream;
pub mod inspect;
pub(crate) mod listener;
pub(crate) mod out_buffer;
pub mod relay;
pub(crate) mod rin;
pub(crate) mod rout;
pub(crate) mod segment;
