//! The counters that a level keeps for a topic, counted by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::level::{Counters, Found, Stop, Written};

/// A counter that only goes up.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters that a level keeps for a topic. Their meaning is that of [`Counters`].
#[derive(Debug, Default)]
pub struct LevelCounters {
    messages: Count,
    batches: Count,
    bytes: Count,
    hits: Count,
    misses: Count,
    holes: Count,
    hole_bytes: Count,
    repeated_bytes: Count,
    refused: Count,
}

impl LevelCounters {
    /// Counts messages that were appended, and their bytes.
    pub fn appended(&self, messages: u64, bytes: u64) {
        self.messages.add(messages);
        self.bytes.add(bytes);
    }

    /// Counts a batch.
    pub fn written(&self, written: &Written) {
        self.batches.add(1);
        self.bytes.add(written.bytes);
        self.repeated_bytes.add(written.repeated);
        if let Some(hole) = written.hole {
            self.holes.add(1);
            self.hole_bytes.add(hole.bytes());
        }
    }

    /// Counts messages or batches that were refused.
    pub fn refused(&self, count: u64) {
        self.refused.add(count);
    }

    /// Counts a read: `None` has failed, and is a miss.
    pub fn read(&self, found: Option<&Found>) {
        let is_hit = found.is_some_and(|found| found.stop == Stop::Filled);
        if is_hit { self.hits.add(1) } else { self.misses.add(1) }
    }

    /// All counters. `overwritten_bytes` follows from the level's window.
    pub fn counters(&self, overwritten_bytes: u64) -> Counters {
        Counters {
            messages: self.messages.get(),
            batches: self.batches.get(),
            bytes: self.bytes.get(),
            hits: self.hits.get(),
            misses: self.misses.get(),
            overwritten_bytes,
            holes: self.holes.get(),
            hole_bytes: self.hole_bytes.get(),
            repeated_bytes: self.repeated_bytes.get(),
            refused: self.refused.get(),
            damaged: 0,
        }
    }
}
