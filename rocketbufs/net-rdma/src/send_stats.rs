//! Counters of sending.

/// Counters of one connection's sending half.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Written ranges.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Posted requests, of any kind.
    pub requests: u64,
    /// Requests with a completion.
    pub signalled: u64,
    /// Requests with inline bytes.
    pub inline: u64,
    /// Messages between the transports: control messages, keys, receives.
    pub frames: u64,
    /// Bytes of ranges that were copied to the outbox.
    pub copied: u64,
}
