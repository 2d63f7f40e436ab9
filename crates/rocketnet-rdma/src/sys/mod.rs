//! The only module with `unsafe`: the libraries, the arguments of their functions, and their objects.

mod abi;
mod completions;
mod connect;
mod device;
mod failure;
mod link;
mod load;
mod memory;

pub use completions::{Completions, device_of};
pub use connect::{CmEvent, Events, Id, Incoming, Kind};
pub use device::{DeviceLimits, PortState, limits};
pub use failure::{DeviceFailure, Watch};
pub use link::{Done, Link, Shape, Source, Verb};
pub use load::{LIBRARIES, LoadError, is_loaded};
pub use memory::RingRegion;
