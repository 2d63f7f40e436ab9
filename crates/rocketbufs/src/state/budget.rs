//! One budget of bytes for the rings of many subscriptions.
//!
//! A subscription with a ring of its own grants all of it at once, so ten thousand of them have promised ten thousand
//! rings. With a [`Budget`] a subscription has a ring only while there is data for it:
//!
//! ```text
//!            the sender has data (ASK)          everything was given back
//!   no ring ──────────────────────────▶ a ring ──────────────────────────▶ no ring
//!      ▲   its share of the budget, or           and others wait, or nothing
//!      │   it waits in line for one              came for a while
//! ```
//!
//! As long as half of the budget is free a ring is as large as without a budget and grants all of itself, so a few
//! busy subscriptions are as fast as without. Beyond that credit is given for what the sender has, in whole deliveries:
//! what was granted comes for certain and can be given back, so nobody who has something waits for anybody. What was
//! granted and is not used is called back (RECALL).

mod ledger;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;
use crate::state::InboundShared;
use ledger::{Key, Ledger};

pub(crate) use ledger::{Need, Share};

/// The smallest ring.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Bytes that the rings of many subscriptions may take together: see [`SubscribeOptions::budget`]. Cloning gives another
/// handle to the same budget.
///
/// A sender that asks for credit and sends nothing keeps the shares of its subscriptions from others for as long as its
/// connection lives, as one does that stops inside a delivery. So senders of which one is not to suffer by another's
/// doing have a budget each.
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

struct Shared {
    bytes: u64,
    /// Whether anybody waits, to be looked at without the lock. Written under it.
    short: AtomicBool,
    state: Mutex<State>,
}

struct State {
    ledger: Ledger,
    members: HashMap<Key, Weak<InboundShared>>,
    next: Key,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let state = State { ledger: Ledger::new(bytes, page_bytes()), members: HashMap::new(), next: 0 };
        Self(Arc::new(Shared { bytes, short: AtomicBool::new(false), state: Mutex::new(state) }))
    }

    /// The budget, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Bytes of the rings that there are now, each counted as a 4096th of the budget at least: never more than the budget.
    pub fn in_use_bytes(&self) -> u64 {
        lock(&self.0.state).ledger.used()
    }

    /// How many subscriptions have data to come and wait until others have given back what they received.
    pub fn waiting(&self) -> usize {
        lock(&self.0.state).ledger.waiting()
    }

    pub(crate) fn join(&self, inbound: &Arc<InboundShared>) -> Membership {
        let mut state = lock(&self.0.state);
        let key = state.next;
        state.next += 1;
        state.members.insert(key, Arc::downgrade(inbound));
        Membership { budget: self.clone(), key }
    }

    /// Changes the ledger, and finds whom that concerns.
    fn change<R>(&self, change: impl FnOnce(&mut Ledger) -> R) -> (R, Calls) {
        let mut state = lock(&self.0.state);
        let State { ledger, members, .. } = &mut *state;
        let result = change(ledger);
        let mut calls = Vec::new();
        while let Some(key) = ledger.next_to_call() {
            calls.extend(members.get(&key).and_then(Weak::upgrade));
        }
        // Release pairs with the Acquire in `is_short`, which is only a hint: who then acts takes the lock.
        self.0.short.store(ledger.waiting() > 0, Ordering::Release);
        (result, Calls(calls))
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("bytes", &self.0.bytes).field("in_use", &self.in_use_bytes()).finish()
    }
}

/// Subscriptions whose worker is to look at them: there is room for them, or others want theirs. To be run without any
/// subscription's lock.
#[must_use = "those who wait would wait for ever"]
#[derive(Default)]
pub(crate) struct Calls(Vec<Arc<InboundShared>>);

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
        while let Some(inbound) = calls.pop() {
            if let Some(more) = inbound.call() {
                calls.extend(more.0);
            }
        }
    }
}

/// One subscription's part in a budget. Dropping it gives its share back.
pub(crate) struct Membership {
    budget: Budget,
    key: Key,
}

impl Membership {
    /// Whether anybody waits.
    pub(crate) fn is_short(&self) -> bool {
        self.budget.0.short.load(Ordering::Acquire)
    }

    /// Whether credit may be given for what the sender does not have yet, in a ring that is there.
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
