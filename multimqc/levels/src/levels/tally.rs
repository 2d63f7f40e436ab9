//! Counting, by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::level::{Counters, Found, Stop, Written};

/// A counter that only goes up.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a level for a topic.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub messages: Count,
    pub batches: Count,
    pub bytes: Count,
    pub hits: Count,
    pub misses: Count,
    pub holes: Count,
    pub hole_bytes: Count,
    pub repeated: Count,
    pub refused: Count,
}

impl Tally {
    /// Counts a batch.
    pub fn written(&self, written: &Written) {
        self.batches.add(1);
        self.bytes.add(written.bytes);
        self.repeated.add(written.repeated);
        if let Some(hole) = written.hole {
            self.holes.add(1);
            self.hole_bytes.add(hole.bytes());
        }
    }

    /// Counts a read.
    pub fn read(&self, found: &Found) {
        if found.stop == Stop::Filled { self.hits.add(1) } else { self.misses.add(1) }
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
            repeated_bytes: self.repeated.get(),
            refused: self.refused.get(),
            damaged: 0,
        }
    }
}
