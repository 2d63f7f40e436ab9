//! Waking the thread that transfers to the next level.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rocketring::{EventCount, barrier};

use crate::log::Offset;

/// Wakes one thread once for each batch that became complete, in any topic.
pub(super) struct Signal {
    batch_bytes: u64,
    /// Counts batches that became complete, and calls of `wake`.
    ready: AtomicU64,
    /// `ready` as the waiting thread last saw it.
    seen: AtomicU64,
    sleepers: EventCount,
}

impl Signal {
    pub fn new(batch_bytes: u64) -> Signal {
        Signal {
            batch_bytes: batch_bytes.max(1),
            ready: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            sleepers: EventCount::default(),
        }
    }

    /// Wakes if a batch became complete between these heads.
    pub fn grown(&self, heads: Range<Offset>) {
        if heads.start / self.batch_bytes != heads.end / self.batch_bytes {
            self.wake();
        }
    }

    pub fn wake(&self) {
        self.ready.fetch_add(1, Ordering::Release);
        self.sleepers.notify_all(barrier::full());
    }

    /// Waits for a wake since the last call that saw one. True if there was one.
    pub fn wait(&self, timeout: Duration) -> bool {
        let seen = self.seen.load(Ordering::Relaxed);
        // Acquire pairs with the Release in `wake`: the waiting thread sees the heads that became complete.
        let ready = self.sleepers.wait_until(timeout, || self.ready.load(Ordering::Acquire) != seen);
        self.seen.store(self.ready.load(Ordering::Acquire), Ordering::Relaxed);
        ready
    }
}
