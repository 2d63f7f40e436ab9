//! The only module with `unsafe`: the libraries, the arguments of their functions, and their objects.

mod abi;
mod completions;
mod connect;
mod device;
mod failure;
mod load;
mod memory;
mod queue_pair;

pub use completions::{Completions, device_of};
pub use connect::{CmEvent, Events, Id, Incoming, Kind};
pub use device::{DeviceLimits, PortState, limits};
pub use failure::{DeviceFailure, Watch};
pub use load::{LIBRARIES, LoadError, is_loaded};
pub use memory::RingRegion;
pub use queue_pair::{Done, QueuePair, Shape, Source, Verb};
