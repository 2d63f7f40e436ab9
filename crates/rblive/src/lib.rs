//! RocketStreams on RocketBufs: live video from dissemination nodes to delivery nodes.
//!
//! A dissemination node writes the chunks of a live stream into the stream's buffer, which holds the newest five. Delivery nodes
//! get every chunk as it is written, over any transport of RocketBufs, and deliver it to viewers straight from memory. There is no
//! flow control: the writer never waits, and a reader that is too slow finds out that its chunk was overwritten.
//!
//! * [`content`]: what a chunk carries;
//! * [`ChunkRef`]: a reference to a chunk on a delivery node.

#![deny(unsafe_code)]

mod chunk;
pub mod content;
mod ids;

pub use chunk::{ChunkRef, ReadError};
pub use ids::{NodeId, RsId};
pub use rocketbufs::Lapped;
