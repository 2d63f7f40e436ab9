//! One budget of bytes for the rings of many subscriptions.
//!
//! A subscription with a ring of its own grants all of the ring at once, so ten thousand of them have
//! promised ten thousand rings. With a [`Budget`] a subscription has a ring only while there is data for it:
//!
//! ```text
//!            the sender has data (ASK)          all data was released
//!   no ring ──────────────────────────▶ a ring ──────────────────────────▶ no ring
//!      ▲   its share of the budget, or           and others wait, or nothing
//!      │   a turn in the queue for one           arrived for a while
//! ```
//!
//! While half of the budget is free, a ring is as large as without a budget and grants all of itself, so a
//! few busy subscriptions are as fast as without. Beyond that, credit is granted only for data that the
//! sender has, in whole deliveries. Such data is certain to arrive and can be released, so no subscription
//! with data waits for another forever. An unused grant is recalled (RECALL).

mod ledger;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::ground::lock::lock;
use crate::proto::{Need, Share};
use ledger::{Key, Ledger};

/// Returns the bytes of the smallest ring.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Bytes that the rings of many subscriptions may take together: see [`SubscribeOptions::budget`]. A clone is
/// another handle to the same budget.
///
/// A sender that asks for credit and sends nothing blocks its subscriptions' shares while its connection
/// lives, and so does one that stops inside a delivery. Senders that must not affect each other therefore
/// need a budget each.
///
/// ```
/// use rocketbufs::{Budget, SubscribeOptions};
/// let budget = Budget::new(64 << 20);
/// let options = SubscribeOptions::new().budget(Some(budget.clone()));
/// assert_eq!((budget.bytes(), budget.in_use_bytes()), (64 << 20, 0));
/// # drop(options);
/// ```
///
/// [`SubscribeOptions::budget`]: crate::SubscribeOptions::budget
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

/// A subscription that shares a budget.
pub(crate) trait Member: Send + Sync {
    /// Asks the subscription's worker to look: there may be room for the subscription, or others want its
    /// share. Returns the calls that follow if it has no worker.
    fn call(&self) -> Option<Calls>;
}

struct Shared {
    bytes: u64,
    /// Lock-free mirror of whether any subscription waits. Written under the lock.
    short: AtomicBool,
    state: Mutex<State>,
}

struct State {
    ledger: Ledger,
    members: HashMap<Key, Weak<dyn Member>>,
    next: Key,
}

impl Budget {
    /// Creates a budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let state = State { ledger: Ledger::new(bytes, page_bytes()), members: HashMap::new(), next: 0 };
        Self(Arc::new(Shared { bytes, short: AtomicBool::new(false), state: Mutex::new(state) }))
    }

    /// Returns the budget in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Returns the bytes of the present rings, each counted as at least a 4096th of the budget. Never more
    /// than the budget.
    pub fn in_use_bytes(&self) -> u64 {
        lock(&self.0.state).ledger.used()
    }

    /// Returns the number of subscriptions that have data to come and wait for others to release theirs.
    pub fn waiting(&self) -> usize {
        lock(&self.0.state).ledger.waiting()
    }

    pub(crate) fn join(&self, member: Weak<dyn Member>) -> Membership {
        let mut state = lock(&self.0.state);
        let key = state.next;
        state.next += 1;
        state.members.insert(key, member);
        Membership { budget: self.clone(), key }
    }

    /// Changes the ledger, and collects the subscriptions that the change concerns.
    fn change<R>(&self, change: impl FnOnce(&mut Ledger) -> R) -> (R, Calls) {
        let mut state = lock(&self.0.state);
        let State { ledger, members, .. } = &mut *state;
        let result = change(ledger);
        let mut calls = Vec::new();
        while let Some(key) = ledger.next_to_call() {
            calls.extend(members.get(&key).and_then(Weak::upgrade));
        }
        // Release pairs with the Acquire in `is_short`. The flag is only a hint: a caller that acts on it
        // takes the lock.
        self.0.short.store(ledger.waiting() > 0, Ordering::Release);
        (result, Calls(calls))
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("bytes", &self.0.bytes).field("in_use", &self.in_use_bytes()).finish()
    }
}

/// Subscriptions whose workers must look at them: there is room for them, or others want their share. Run
/// without any subscription's lock.
#[must_use = "those who wait would wait for ever"]
#[derive(Default)]
pub(crate) struct Calls(Vec<Arc<dyn Member>>);

impl Calls {
    pub(crate) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    #[inline]
    pub(crate) fn run(self) {
        if !self.0.is_empty() {
            self.run_all();
        }
    }

    #[cold]
    fn run_all(self) {
        let mut calls = self.0;
        while let Some(member) = calls.pop() {
            if let Some(more) = member.call() {
                calls.extend(more.0);
            }
        }
    }
}

/// One subscription's membership of a budget. Dropping it returns the share.
pub(crate) struct Membership {
    budget: Budget,
    key: Key,
}

impl Membership {
    /// Returns whether any subscription waits.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.0.short.load(Ordering::Acquire)
    }

    /// Returns whether credit may be granted for data that the sender does not have yet, in a ring that
    /// exists.
    pub(crate) fn is_plenty(&self) -> bool {
        !self.is_short() && lock(&self.budget.0.state).ledger.is_plenty(0)
    }

    pub(crate) fn take(&self, need: Need) -> (Option<Share>, Calls) {
        self.budget.change(|ledger| ledger.take(self.key, need))
    }

    pub(crate) fn give_back(&self) -> Calls {
        self.budget.change(|ledger| ledger.leave(self.key)).1
    }

    pub(crate) fn idle(&self) -> Calls {
        self.budget.change(|ledger| ledger.idle(self.key)).1
    }

    pub(crate) fn busy(&self) -> Calls {
        self.budget.change(|ledger| ledger.busy(self.key)).1
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let ((), calls) = self.budget.change(|ledger| ledger.leave(self.key));
        lock(&self.budget.0.state).members.remove(&self.key);
        calls.run();
    }
}
