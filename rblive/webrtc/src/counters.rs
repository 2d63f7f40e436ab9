//! Counters of the peers.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of what happened so far.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Viewers that are connected now.
    pub viewers: AtomicU64,
    /// Offers that were answered.
    pub answered: AtomicU64,
    /// Offers that were refused.
    pub refused: AtomicU64,
    /// Viewers that never connected after their offer was answered.
    pub never_connected: AtomicU64,
    /// Connected viewers that fell silent without an end.
    pub silent: AtomicU64,
    /// Viewers that were ended after a failure of their connection.
    pub failed: AtomicU64,
    /// Frames that a viewer did not get, since it lost too much, the system took no more datagrams, or the frame was too late.
    pub dropped_frames: AtomicU64,
    /// Requests of viewers for a key frame.
    pub key_frames_asked: AtomicU64,
    /// Datagrams that are of no viewer.
    pub strange_datagrams: AtomicU64,
    /// Datagrams that the system did not take.
    pub unsent_datagrams: AtomicU64,
    /// Bytes that were sent, with all headers of WebRTC.
    pub bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
