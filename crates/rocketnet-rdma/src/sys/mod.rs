//! The only module with `unsafe`: the libraries, what they are called with, and what they own.

mod abi;
mod connect;
mod device;
mod link;
mod load;
mod memory;
mod trouble;

pub use connect::{CmEvent, Events, Id, Incoming, Kind};
pub use device::{DeviceLimits, PortState, limits};
pub use link::{Completions, Done, Link, Shape, Source, Verb, device_of};
pub use load::{LIBRARIES, LoadError, is_loaded};
pub use memory::RingRegion;
pub use trouble::{Trouble, Watch};
