//! Counters of a stream's chunks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The chunks of a stream at this node.
pub struct Activity {
    begun: Instant,
    chunks: AtomicU64,
    bytes: AtomicU64,
    /// When the newest chunk came, in microseconds after `begun`.
    newest_us: AtomicU64,
}

impl Activity {
    pub fn new() -> Self {
        let [chunks, bytes, newest_us] = [0, 0, 0].map(AtomicU64::new);
        Self { begun: Instant::now(), chunks, bytes, newest_us }
    }

    /// Counts a chunk.
    pub fn count(&self, bytes: usize) {
        self.chunks.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.newest_us.store(self.begun.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    pub fn chunks(&self) -> u64 {
        self.chunks.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The time since the newest chunk. `None` without a chunk.
    pub fn age(&self) -> Option<Duration> {
        let newest = Duration::from_micros(self.newest_us.load(Ordering::Relaxed));
        (self.chunks() > 0).then(|| self.begun.elapsed().saturating_sub(newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_an_age_from_its_first_chunk_on() {
        let activity = Activity::new();
        assert_eq!((activity.chunks(), activity.bytes(), activity.age()), (0, 0, None));
        activity.count(5);
        activity.count(7);
        let first = activity.age().unwrap();
        assert_eq!((activity.chunks(), activity.bytes()), (2, 12));
        assert!(activity.age().unwrap() >= first, "time goes on");
    }
}
