//! The rings of an rIn that application threads poll while the worker busy-polls (`crate::api::rin`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::state::{ContextInner, Request, SubscriptionShared, WorkerShared};

/// The most rings that application threads poll.
pub(crate) const MOST_RINGS: usize = 8;

/// How calls that do not wait look at the rings of an rIn ([`RIn::attend`](crate::RIn::attend)).
#[derive(Default)]
pub(crate) struct Looks {
    /// Whether they look.
    pub(crate) in_calls: AtomicBool,
    /// The worker whose followed rings the thread that calls attends, so that their writers wake nobody: its index and one; 0 for none.
    pub(crate) attends: AtomicUsize,
    /// The ring with which the next look begins.
    pub(crate) from: AtomicUsize,
}

impl Looks {
    /// Has writers wake the worker again. Returns that worker if the rings have new data of which it does not know. Never waits for a worker: one that takes
    /// its turn does this itself, and then sees new data.
    pub(crate) fn leave<'a>(&self, context: &'a ContextInner) -> Option<&'a WorkerShared> {
        let worker = &*context.workers[self.attends.swap(0, Ordering::Relaxed).checked_sub(1)?];
        let (reactor, _) = worker.borrowed()?;
        let has_data = match reactor.try_lock() {
            Ok(mut reactor) => reactor.attend(0),
            Err(_) => {
                worker.request(Request::Unattend);
                false
            }
        };
        has_data.then_some(worker)
    }
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

    /// The first [`MOST_RINGS`]. Only the worker polls the rings of the others, until one of these leaves.
    pub(crate) fn subscriptions(&self) -> &[Arc<SubscriptionShared>] {
        &self.subscriptions[..self.subscriptions.len().min(MOST_RINGS)]
    }

    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Returns whether both are the same set, not only equal.
    pub(crate) fn are(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.subscriptions, &other.subscriptions)
    }

    /// Adds a subscription whose ring this worker follows.
    pub(super) fn add(&mut self, subscription: &Arc<SubscriptionShared>, worker: usize) {
        let mut subscriptions = self.without(subscription);
        subscriptions.push(subscription.clone());
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
