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

use std::sync::Arc;

use super::receive::RIn;
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
