//! Levels in user space.

mod tally;
pub(crate) mod user;

pub use user::{UserConfig, UserLevel};
