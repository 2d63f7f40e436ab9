//! RocketStreams on RocketBufs: live video from dissemination nodes to delivery nodes.
//!
//! A dissemination node writes the chunks of a live stream into the stream's buffer, which holds the newest chunks (five by default).
//! Delivery nodes get every chunk as it is written, over any transport of RocketBufs, and deliver it to viewers straight from memory.
//! RocketStreams has no flow control: the writer never waits, and a reader that is too slow gets the error that its chunk was
//! overwritten.
//!
//! ```text
//!   encoder ──▶ dissemination node ──────▶ delivery node ──▶ viewers
//!               create_stream              inbound_callback
//!               allocate_chunk             ChunkRef::lend
//!               disseminate_chunk          data_consumed
//!                    └──▶ dissemination node ──▶ delivery nodes
//! ```
//!
//! * [`RsManager`]: the streams of a node;
//! * [`config`]: the nodes, their roles and addresses;
//! * [`content`]: the header and the payload of a chunk;
//! * [`RsChunk`], [`ChunkRef`]: a chunk to be written, and a reference to a received one.

#![deny(unsafe_code)]

mod chunk;
pub mod config;
pub mod content;
mod error;
mod ids;
mod manager;
mod trust;
#[doc(hidden)]
pub mod wire;

pub use chunk::{ChunkRef, ReadError, RsChunk};
pub use config::{Config, ConfigError, Node, NodeRole, Rule};
pub use error::{ChunkError, StartError, StreamError};
pub use ids::{NodeId, RsId};
pub use manager::{InboundInfo, OutboundInfo, PeerInfo, RsManager, StreamBuffer, StreamEvent};
pub use rocketbufs::Lapped;
