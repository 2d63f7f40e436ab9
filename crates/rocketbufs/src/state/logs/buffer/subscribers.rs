//! The subscriptions of a buffer: connected ones, and the cursors of durable ones that are offline.

use std::collections::HashMap;
use std::sync::Arc;

use rocketring::Hold;

use super::status::SubscriptionStatus;
use crate::proto::{Coverage, PeerCoverage};
use crate::types::{Nanos, Policy, Position};

/// Everything that counts for confirmations. With one lock, a subscription that goes offline or comes back is
/// never missing and never counted twice.
#[derive(Default)]
pub(super) struct SubscriberTable {
    pub(super) connected: Vec<Arc<SubscriptionStatus>>,
    /// Cursors of durable subscriptions whose connection is gone. Those with the policy `block` count as
    /// subscribers, so that no byte is confirmed that they do not have.
    pub(super) offline: HashMap<Vec<u8>, DurableCursor>,
    /// The coverage of subscriptions that count no more.
    pub(super) departed: Coverage,
    /// The buffer was removed, so no durable subscription can resume.
    pub(super) removed: bool,
}

impl SubscriberTable {
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
    /// writer waits for the subscription: it loses what is overwritten while it is offline, and gets LOST when
    /// it comes back.
    pub(super) fn counts(&self) -> bool {
        self.policy == Policy::Block
    }
}

/// What becomes of the position of a subscription that goes.
pub(crate) enum Leaving {
    /// The subscription counts no more.
    Gone,
    /// The position is held under the subscription's name.
    Kept(DurableCursor),
}

/// What is known of a durable subscription that comes back.
pub(crate) struct Known {
    pub(crate) levels: [Position; 3],
    pub(crate) coverage: PeerCoverage,
    /// The position of its hold in the ring.
    pub(crate) holds: Option<Position>,
    /// The start of a delivery at which the subscription can resume, if it is still in the ring.
    pub(crate) resume_boundary: Position,
    /// The connection and the worker that still have it; `None` if the position was held.
    pub(crate) live: Option<(u64, usize)>,
}
