//! The rings of an rIn that application threads poll while the worker busy-polls (`crate::rin`).

use std::sync::Arc;

use crate::state::SubscriptionShared;

/// The most rings that application threads poll.
pub(crate) const MOST_RINGS: usize = 8;

/// The rings of an rIn that application threads poll.
#[derive(Clone, Default)]
pub(crate) struct PolledRings {
    worker: usize,
    inbounds: Arc<[Arc<SubscriptionShared>]>,
}

impl PolledRings {
    pub(crate) fn is_empty(&self) -> bool {
        self.inbounds.is_empty()
    }

    pub(crate) fn inbounds(&self) -> &[Arc<SubscriptionShared>] {
        &self.inbounds
    }

    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Returns whether both are the same set, not only equal.
    pub(crate) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inbounds, &other.inbounds)
    }

    /// Adds a subscription whose ring this worker follows. With more rings than [`MOST_RINGS`] only the worker
    /// polls the ring.
    pub(super) fn add(&mut self, inbound: &Arc<SubscriptionShared>, worker: usize) {
        let mut inbounds = self.without(inbound);
        if inbounds.len() < MOST_RINGS {
            inbounds.push(inbound.clone());
        }
        *self = Self { worker, inbounds: inbounds.into() };
    }

    /// Removes a subscription.
    pub(super) fn remove(&mut self, inbound: &Arc<SubscriptionShared>) {
        if !self.is_empty() {
            self.inbounds = self.without(inbound).into();
        }
    }

    fn without(&self, inbound: &Arc<SubscriptionShared>) -> Vec<Arc<SubscriptionShared>> {
        self.inbounds.iter().filter(|known| !Arc::ptr_eq(known, inbound)).cloned().collect()
    }
}
