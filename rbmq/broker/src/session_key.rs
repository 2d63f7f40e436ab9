//! The identity of a publisher.

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
