//! Levels in user space.

mod disk;
mod keeper;
mod session_file;
mod signal;
mod user;

pub use disk::{DiskConfig, DiskLevel};
pub use user::{UserConfig, UserConfigError, UserLevel};
