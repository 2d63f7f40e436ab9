//! The rings of an rIn that application threads poll while the worker busy-polls (`crate::api::rin`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::state::SubscriptionShared;

/// The most rings that application threads poll.
pub(crate) const MOST_RINGS: usize = 8;

/// How calls that do not wait look at the rings of an rIn ([`RIn::attend`](crate::RIn::attend)).
#[derive(Default)]
pub(crate) struct Looks {
    /// Whether they look.
    pub(crate) in_calls: AtomicBool,
    /// Whether the writers of the rings wake nobody, as the thread that calls is awake.
    pub(crate) attends: AtomicBool,
    /// The ring with which the next look begins.
    pub(crate) from: AtomicUsize,
}

/// The rings of an rIn that application threads poll.
#[derive(Clone, Default)]
pub(crate) struct PolledRings {
    worker: usize,
    subscriptions: Arc<[Arc<SubscriptionShared>]>,
}

impl PolledRings {
    pub(crate) fn is_empty(&self) -> bool {
        self.subscriptions.is_empty()
    }

    pub(crate) fn subscriptions(&self) -> &[Arc<SubscriptionShared>] {
        &self.subscriptions
    }

    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Returns whether both are the same set, not only equal.
    pub(crate) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.subscriptions, &other.subscriptions)
    }

    /// Adds a subscription whose ring this worker follows. With more rings than [`MOST_RINGS`] only the worker
    /// polls the ring.
    pub(super) fn add(&mut self, subscription: &Arc<SubscriptionShared>, worker: usize) {
        let mut subscriptions = self.without(subscription);
        if subscriptions.len() < MOST_RINGS {
            subscriptions.push(subscription.clone());
        }
        *self = Self { worker, subscriptions: subscriptions.into() };
    }

    /// Removes a subscription.
    pub(super) fn remove(&mut self, subscription: &Arc<SubscriptionShared>) {
        if !self.is_empty() {
            self.subscriptions = self.without(subscription).into();
        }
    }

    fn without(&self, subscription: &Arc<SubscriptionShared>) -> Vec<Arc<SubscriptionShared>> {
        self.subscriptions.iter().filter(|known| !Arc::ptr_eq(known, subscription)).cloned().collect()
    }
}
