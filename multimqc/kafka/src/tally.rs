//! Counting, by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use multimqc::{Counters, Found, Stop, Written};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    batches: AtomicU64,
    bytes: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    holes: AtomicU64,
    hole_bytes: AtomicU64,
    repeated: AtomicU64,
    refused: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Tally {
    pub(crate) fn written(&self, written: &Written) {
        add(&self.batches, 1);
        add(&self.bytes, written.bytes);
        add(&self.repeated, written.repeated);
        if let Some(hole) = written.hole {
            add(&self.holes, 1);
            add(&self.hole_bytes, hole.bytes());
        }
    }

    pub(crate) fn refused(&self) {
        add(&self.refused, 1);
    }

    /// Counts a read; one that failed is a miss.
    pub(crate) fn read(&self, found: Option<&Found>) {
        let hit = found.is_some_and(|found| found.stop == Stop::Filled);
        add(if hit { &self.hits } else { &self.misses }, 1);
    }

    pub(crate) fn counters(&self, overwritten_bytes: u64) -> Counters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            messages: 0,
            batches: get(&self.batches),
            bytes: get(&self.bytes),
            hits: get(&self.hits),
            misses: get(&self.misses),
            overwritten_bytes,
            holes: get(&self.holes),
            hole_bytes: get(&self.hole_bytes),
            repeated_bytes: get(&self.repeated),
            refused: get(&self.refused),
            damaged: 0,
        }
    }
}
