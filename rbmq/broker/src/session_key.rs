//! The identity of a publisher, and of its buffers.

use rocketbufs::{Bid, Epoch, Position};

/// Identifies a publisher over all its connections: the process, and the publisher in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SessionKey {
    /// The process, from the framework's handshake.
    pub(super) instance: u128,
    /// The publisher in this process, from its hello.
    pub(super) client: u128,
}

impl SessionKey {
    /// The key of buffers that the broker writes itself. No publisher has this key.
    pub(super) const BROKER: Self = Self { instance: 0, client: 0 };
}

/// A buffer, as its publisher knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SourceBuffer {
    pub(super) session: SessionKey,
    /// The id at the publisher.
    pub(super) bid: Bid,
}

impl SourceBuffer {
    /// The source of buffers that the broker writes itself.
    pub(super) const BROKER: Self = Self { session: SessionKey::BROKER, bid: 0 };
}

/// How far the broker that had a topic before has the log of a publisher (PLACE).
#[derive(Debug, Clone, Copy)]
pub(super) struct FormerPlace {
    /// The name of the publisher's log.
    pub(super) epoch: Epoch,
    /// Everything below is there.
    pub(super) position: Position,
}
