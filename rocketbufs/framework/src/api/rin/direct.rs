//! Polling followed rings on the thread that waits for data, without the worker.
//!
//! ```text
//!   recv       poll the rings' head pages ── news: land it, hand it out
//!                │ no news for a moment, or a turn is due: the worker's turn, on this thread
//!                └──────────◀──────────────┘
//! ```
//!
//! A turn of the worker checks everything that the worker owns, which takes longer than a message between two
//! cores. While a worker busy-polls (`shm.busy_poll_us`), threads in `recv` therefore poll the rings
//! themselves between two turns. The worker gives this permission for a moment after each turn ([`BusyPollBudget`]):
//! the thread with the token returns to it soon, and no writer needs to ring.
//!
//! A thread with an event loop of its own looks once in each call that does not wait ([`RIn::attend`]). While it says that it is awake no writer
//! rings, and the worker sleeps: what the thread itself has written into a ring of this process comes back without a system call.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::receive::RIn;
use crate::ground::lock::lock;
use crate::state::in_event::{InEvent, event_of};
use crate::state::view::InView;
use crate::state::{Followed, MOST_RINGS, POLLS_PER_DELIVERY, PolledRings, SubscriptionShared, WorkerShared};

impl RIn {
    /// Returns whether this thread should poll instead of doing the worker's work.
    pub(super) fn may_poll(&self, polled: &PolledRings) -> bool {
        let inner = &self.shared.inner;
        // With callbacks, data must not be taken past them.
        !polled.is_empty() && !inner.has_callbacks() && inner.workers[polled.worker()].may_be_polled_past()
    }

    /// Polls rings until one has news, or until the worker's turn is due.
    pub(super) fn poll(&self, polled: &PolledRings) -> Option<InEvent> {
        let worker = &*self.shared.inner.workers[polled.worker()];
        let now = || self.shared.inner.now();
        if !worker.busy_polls.spend(POLLS_PER_DELIVERY, now) {
            return None;
        }
        for _ in 0..worker.busy_polls.pauses() {
            std::hint::spin_loop();
        }
        let mut rings = [const { None }; MOST_RINGS];
        for (ring, subscription) in rings.iter_mut().zip(polled.subscriptions()) {
            let (taken, followed) = subscription.follow();
            if let Some(taken) = taken {
                worker.busy_polls.pace(Some(taken.len()));
                return Some(self.hand_out(worker, subscription, taken));
            }
            *ring = followed;
        }
        worker.busy_polls.pace(None);
        while worker.busy_polls.spend(1, now) && !worker.has_work() {
            for (ring, subscription) in rings.iter().zip(polled.subscriptions()) {
                if ring.as_ref().is_some_and(rocketring::Ring::has_new_data)
                    && let Some(taken) = subscription.follow().0
                {
                    return Some(self.hand_out(worker, subscription, taken));
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Says whether the calling thread is awake. While it is, it calls [`RIn::recv`] with a time-out of zero again and again, and the call itself looks
    /// at rings that writers of this machine share: they need not wake a worker. Before the thread sleeps on [`RIn::pollable`], it says that it is not
    /// awake; true: a call has something, and the thread must not sleep. Never waits for a worker. With more than eight such rings, writers wake the worker
    /// in any case.
    ///
    /// The first call, or [`RIn::look_like`], has to come before the subscriptions of those rings. The rIn has to be the only one of its context that
    /// receives.
    #[doc(hidden)]
    pub fn attend(&self, is_awake: bool) -> bool {
        let (shared, looks) = (&self.shared, &self.shared.looks);
        looks.in_calls.store(true, Ordering::Relaxed);
        if !is_awake {
            return looks.leave(&shared.inner).is_some();
        }
        let worker = shared.inner.worker(shared.conn().id);
        let at = worker.index + 1;
        // The connection may be another one, of another worker.
        if ![0, at].contains(&looks.attends.load(Ordering::Relaxed))
            && let Some(former) = looks.leave(&shared.inner)
        {
            former.token.wake();
        }
        let Some((reactor, _)) = worker.borrowed() else { return false };
        // A worker that has locked it is awake too.
        let Ok(mut reactor) = reactor.try_lock() else { return false };
        // Counted while the worker takes no turn, which would change the rings.
        let polled = lock(&shared.queue).polled.clone();
        let looks_at = |subscription: &&Arc<SubscriptionShared>| subscription.may_be_looked_at();
        let rings = match polled.worker() == worker.index && self.looks() {
            true => polled.subscriptions().iter().filter(looks_at).count(),
            false => 0,
        };
        // The rings that are not counted are the worker's.
        if reactor.attend(rings) {
            worker.token.wake();
        }
        looks.attends.store(if rings > 0 { at } else { 0 }, Ordering::Relaxed);
        false
    }

    /// Calls that do not wait look at rings as those of `former` do, whose place this rIn takes. To be called before the first subscription.
    #[doc(hidden)]
    pub fn look_like(&self, former: &Self) {
        let in_calls = former.shared.looks.in_calls.load(Ordering::Relaxed);
        self.shared.looks.in_calls.store(in_calls, Ordering::Relaxed);
    }

    /// Returns whether a call that does not wait looks at the rings.
    pub(super) fn looks(&self) -> bool {
        // Data must not be taken past a callback.
        self.shared.looks.in_calls.load(Ordering::Relaxed) && !self.shared.data_cb.is_set()
    }

    /// Takes what one of the rings has. Rings take turns.
    pub(super) fn look(&self, polled: &PolledRings) -> Option<InEvent> {
        let worker = &*self.shared.inner.workers[polled.worker()];
        let (rings, from) = (polled.subscriptions(), self.shared.looks.from.load(Ordering::Relaxed));
        (0..rings.len()).map(|n| (from + n) % rings.len()).find_map(|at| {
            let taken = rings[at].follow().0?;
            self.shared.looks.from.store(at + 1, Ordering::Relaxed);
            Some(self.hand_out(worker, &rings[at], taken))
        })
    }

    #[inline(always)]
    fn hand_out(
        &self,
        worker: &WorkerShared,
        subscription: &Arc<SubscriptionShared>,
        taken: Followed,
    ) -> InEvent {
        worker.busy_polls.took();
        worker.token.note_visit();
        match taken {
            Followed::Data { view, epoch, more } => {
                if more {
                    self.shared.enqueue(subscription);
                }
                let (from, to) = (view.from(), view.to());
                InEvent::Data(InView::new(view, subscription.clone(), epoch, Some(from), to))
            }
            Followed::Other(item) => {
                self.shared.enqueue(subscription);
                event_of(subscription.bid, item)
            }
        }
    }
}
