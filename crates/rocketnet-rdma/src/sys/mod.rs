//! The only module with `unsafe`: the libraries, what they are called with, and what they own.

mod abi;
mod completions;
mod connect;
mod device;
mod link;
mod load;
mod memory;
mod trouble;

pub use completions::{Completions, device_of};
pub use connect::{CmEvent, Events, Id, Incoming, Kind};
pub use device::{DeviceLimits, PortState, limits};
pub use link::{Done, Link, Shape, Source, Verb};
pub use load::{LIBRARIES, LoadError, is_loaded};
pub use memory::RingRegion;
pub use trouble::{Trouble, Watch};
