//! RTMP as a machine without I/O: handshake, chunk stream, commands.
//!
//! This is own code, because the crates on crates.io join the protocol with sockets, or allocate buffers by sizes that the peer
//! announces.

mod amf;
mod chunks;
mod client;
mod session;

pub use chunks::ChunkStreamError;
pub use client::{Client, ClientError, ClientState};
pub use session::{Session, SessionError, SessionEvent};
