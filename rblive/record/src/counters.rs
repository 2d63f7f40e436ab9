//! Counters of a recorder.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a recorder, for metrics.
#[derive(Debug, Default)]
pub struct RecordCounters {
    /// Segments that were kept.
    pub segments: AtomicU64,
    /// Bytes of segments and of initialisation segments that were written.
    pub bytes: AtomicU64,
    /// Segments that are gaps of a recording, whatever the reason.
    pub gaps: AtomicU64,
    /// Chunks that new data overwrote before they were written, or for which the queue had no room.
    pub overtaken: AtomicU64,
    /// Errors of the disk.
    pub write_errors: AtomicU64,
    /// Segments for which `max_bytes` left no room.
    pub over_limit: AtomicU64,
    /// Recordings that were begun or continued.
    pub recordings: AtomicU64,
    /// Recordings that were removed because of their age, or to make room.
    pub removed: AtomicU64,
    /// Bytes of all recordings at present.
    pub kept_bytes: AtomicU64,
    /// Streams that are being kept at present.
    pub streams: AtomicU64,
    /// Chunks that wait to be written.
    pub waiting: AtomicU64,
}

impl RecordCounters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set(counter: &AtomicU64, value: u64) {
        counter.store(value, Ordering::Relaxed);
    }
}
