//! The only module with `unsafe`: the libraries, what they are called with, and what they own.

mod abi;
mod device;
mod load;

pub use device::{DeviceLimits, PortState, limits};
pub use load::{LIBRARIES, LoadError, is_loaded};
