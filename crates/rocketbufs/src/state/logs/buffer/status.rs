//! What is known of a subscriber outside of its worker.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rocketring::Hold;

use crate::lock::lock;
use crate::proto::{Coverage, PeerCoverage};
use crate::types::{Nanos, Policy, Position, WireId};

/// The part of a subscription's state that other threads than its worker see.
pub(crate) struct SubscriptionStatus {
    pub(crate) conn: u64,
    pub(crate) worker: usize,
    pub(crate) wire: WireId,
    pub(crate) name: Vec<u8>,
    pub(crate) policy: Policy,
    /// The cursor in the ring, if the subscription holds.
    pub(crate) hold: Mutex<Option<Hold>>,
    pub(crate) sent: AtomicU64,
    pub(crate) landed: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) consumed: AtomicU64,
    /// For a durable subscription: where it can resume if it comes back without its received data.
    pub(crate) resume_boundary: AtomicU64,
    /// The receivers that `delivered` and `consumed` speak for. The lock orders changes of all three, since
    /// the positions may go back when the coverage grows.
    pub(crate) coverage: Mutex<PeerCoverage>,
    pub(crate) dropped: AtomicU64,
    /// Whether the subscription takes a durable slot; changed under the lock of the buffer's `subscribers`.
    pub(crate) has_slot: AtomicBool,
    /// The first position of the subscription.
    pub(crate) start: Position,
    /// The time of the last release.
    pub(crate) progress: AtomicU64,
    /// The receiver has received the log's end.
    pub(crate) heard_end: AtomicBool,
}

impl SubscriptionStatus {
    /// Publishes that a range was handed to the transport.
    pub(crate) fn show_sent(&self, from: Position, to: Position, now: Nanos) {
        self.sent.store(to, Ordering::Release);
        if self.landed.load(Ordering::Relaxed) >= from {
            // The subscription had everything, so its time without progress starts here.
            self.progress.store(now, Ordering::Release);
        }
    }

    /// Returns the confirmed positions by level.
    pub(crate) fn levels(&self) -> [Position; 3] {
        [&self.landed, &self.delivered, &self.consumed].map(|at| at.load(Ordering::Acquire))
    }

    /// Returns a consistent pair of the confirmed positions and the receivers that they speak for.
    pub(super) fn confirms(&self) -> ([Position; 3], PeerCoverage) {
        let coverage = lock(&self.coverage);
        (self.levels(), *coverage)
    }

    /// Returns the receivers that the confirmed positions speak for.
    pub(crate) fn count(&self) -> Coverage {
        lock(&self.coverage).count()
    }
}
