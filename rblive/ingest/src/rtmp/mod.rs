//! RTMP as a machine without I/O: handshake, chunk stream, commands.
//!
//! Own code and no crate: those on crates.io join the protocol with sockets, or size buffers by what the peer announces.

mod amf;
mod chunks;
mod client;
mod session;

pub use chunks::ChunkStreamError;
pub use client::{Client, ClientError, ClientState};
pub use session::{Session, SessionError, SessionEvent};
