//! What sending costs, counted.

/// What was done, for whoever wants to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ranges that were written.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that were posted, of any kind.
    pub requests: u64,
    /// Of these, those whose completion was asked for.
    pub signalled: u64,
    /// Requests whose bytes went inline.
    pub inline: u64,
    /// Messages between the transports: control messages, keys, receives.
    pub frames: u64,
    /// Bytes of ranges that were copied on the way.
    pub copied: u64,
}
