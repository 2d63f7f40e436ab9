//! What the tests of several packages share. Everything waits at most [`LONG`], and leaves nothing behind.
#![forbid(unsafe_code)]

mod broker;
mod port;
mod process;
mod proxy;
mod raw;
mod time;

pub use broker::{broker_with, rule};
pub use port::reserved_addr;
pub use process::{Outcome, Process};
pub use proxy::Proxy;
pub use raw::{Raw, introduction};
pub use time::{LONG, until};
