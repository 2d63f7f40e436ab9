//! The subscriptions of a buffer: the state of connected ones that other threads than their workers see, and the cursors of
//! durable ones that are offline.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rocketring::Hold;

use crate::ground::lock::lock;
use crate::ground::types::{Nanos, Policy, Position, WireId};
use crate::proto::{Coverage, KnownPositions, PeerCoverage};

/// The name of a subscription, with its owner. An empty name names nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OwnedName {
    /// As the application said ([`Admitted::owner`](crate::Admitted::owner)).
    pub(crate) owner: u64,
    pub(crate) name: Vec<u8>,
}

impl OwnedName {
    pub(crate) fn is_empty(&self) -> bool {
        self.name.is_empty()
    }
}

/// Everything that counts for confirmations. With one lock, a subscription that goes offline or comes back is
/// never missing and never counted twice.
#[derive(Default)]
pub(super) struct SubscriberTable {
    pub(super) connected: Vec<Arc<SubscriptionStatus>>,
    /// Cursors of durable subscriptions whose connection is gone. A cursor with the policy `block` counts as a subscriber,
    /// so that no byte is confirmed that its subscription does not have.
    pub(super) offline: HashMap<OwnedName, DurableCursor>,
    /// The coverage of subscriptions that count no more.
    pub(super) departed: Coverage,
    /// The buffer was removed, so no durable subscription can resume.
    pub(super) removed: bool,
}

impl SubscriberTable {
    /// Returns how much landed at the slowest connected subscriber.
    pub(super) fn landed(&self) -> Option<Position> {
        self.connected.iter().map(|sub| sub.landed.load(Ordering::Acquire)).min()
    }

    /// Returns the offline subscriptions that count.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = &DurableCursor> {
        self.offline.values().filter(|held| held.counts())
    }
}

/// A position in a ring that is held until a subscription with the cursor's name comes back.
pub(crate) struct DurableCursor {
    pub(crate) hold: Option<Hold>,
    pub(crate) policy: Policy,
    /// The confirmed positions by level, and the receivers that they speak for.
    pub(crate) levels: [Position; 3],
    pub(crate) coverage: PeerCoverage,
    /// The start of a delivery at which the subscription can resume.
    pub(crate) resume_boundary: Position,
    pub(crate) until: Nanos,
}

impl DurableCursor {
    /// Returns whether the cursor holds the ring and counts for confirmations. Without the policy `block` no
    /// writer waits for the subscription: it loses bytes that are overwritten while it is offline, and gets LOST when
    /// it comes back.
    pub(super) fn counts(&self) -> bool {
        self.policy == Policy::Block
    }
}

/// The fate of the position of a subscription that goes.
pub(crate) enum Leaving {
    /// The subscription counts no more.
    Gone,
    /// The position is held under the subscription's name.
    Kept(DurableCursor),
}

/// The buffer's knowledge of a durable subscription that comes back.
pub(crate) struct Known {
    pub(crate) positions: KnownPositions,
    pub(crate) coverage: PeerCoverage,
    /// The connection and the worker that still have it; `None` if the position was held.
    pub(crate) live: Option<(u64, usize)>,
}

/// The part of a subscription's state that other threads than its worker see.
pub(crate) struct SubscriptionStatus {
    pub(crate) conn: u64,
    pub(crate) worker: usize,
    pub(crate) wire: WireId,
    pub(crate) name: OwnedName,
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
