//! Counters of the servers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::remarks::{Failures, Remarks};

/// Counters of the servers, for metrics, and what encoders do wrong.
#[derive(Debug, Default)]
pub struct IngestCounters {
    /// Connections that were accepted.
    pub connections: AtomicU64,
    /// Connections that were refused because there were too many, of all addresses or of theirs.
    pub turned_away: AtomicU64,
    /// Connections that had published nothing yet, and were closed to make room for others.
    pub made_room: AtomicU64,
    /// Publishers that were accepted.
    pub publishers: AtomicU64,
    /// Publishers and requests that were refused: a wrong key or name, or the stream had a publisher.
    pub refused: AtomicU64,
    /// Parts and files that were left out because they are larger than the buffers allow.
    pub oversized: AtomicU64,
    /// Connections and requests that failed: by a TLS handshake, or by input that was damaged, exceeded a limit, or stopped.
    pub failed: AtomicU64,
    /// Bytes of media that came in.
    pub bytes: AtomicU64,
    /// What encoders do wrong that does not end their connection.
    pub remarks: Remarks,
    /// The newest encoders that were refused, or failed.
    pub failures: Failures,
}

impl IngestCounters {
    pub(crate) fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}
