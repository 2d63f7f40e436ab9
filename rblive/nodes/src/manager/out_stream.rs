//! A stream that a node sends.

use std::sync::Arc;

use rocketbufs::OutBuffer;

use super::activity::Activity;
use crate::ids::RsId;
use crate::wire::Announce;

/// A stream that this node sends.
pub struct OutStream {
    pub id: RsId,
    pub name: Arc<str>,
    pub buffer: OutBuffer,
    /// The capacity of the receivers' buffers, in bytes.
    pub capacity: u64,
    /// The largest chunk in bytes, of streams that were created here.
    pub chunk_bytes: u64,
    /// Whether the stream was created here, and not received.
    pub own: bool,
    pub activity: Activity,
}

impl OutStream {
    /// Returns the announcement for the receivers.
    pub fn announce(&self) -> Announce {
        Announce { id: self.id, bid: self.buffer.bid(), capacity: self.capacity, name: self.name.to_string() }
    }
}
