//! What followed rings have, taken by the thread that waits for it, without the worker.
//!
//! ```text
//!   recv       look at the rings' head pages ── news: land it, hand it out
//!                │ nothing for a moment, or it is time: a turn of the worker, on this thread (`crate::worker`, `drive`)
//!                └──────────◀──────────────┘
//! ```
//!
//! A turn of the worker looks at everything that a worker has to do, which takes longer than a message between two cores. So
//! where a worker spins (`shm.busy_poll_us`), threads in `recv` look at the rings themselves between two turns. The right to
//! do so is the worker's to give, for a moment after each turn ([`Looks`]): whoever has the token then is a thread that comes
//! back, and no writer needs to ring.

use std::sync::Arc;

use super::receive::RIn;
use crate::events::{InEvent, event_of};
use crate::state::{Followed, InboundShared, MOST_RINGS, Sights, TAKEN, WorkerShared};
use crate::view::InView;

impl RIn {
    /// Whether it is better to look than to do the worker's work.
    pub(super) fn may_look(&self, sights: &Sights) -> bool {
        let inner = &self.shared.inner;
        // What callbacks are told of is not taken past them.
        !sights.is_empty() && !inner.has_callbacks() && inner.workers[sights.worker()].may_be_looked_past()
    }

    /// Looks at rings until there is something, or the worker's turn is due.
    pub(super) fn look(&self, sights: &Sights) -> Option<InEvent> {
        let worker = &*self.shared.inner.workers[sights.worker()];
        let now = || self.shared.inner.now();
        if !worker.looks.spend(TAKEN, now) {
            return None;
        }
        for _ in 0..worker.looks.pauses() {
            std::hint::spin_loop();
        }
        let mut rings = [const { None }; MOST_RINGS];
        for (ring, inbound) in rings.iter_mut().zip(sights.inbounds()) {
            let (taken, sight) = inbound.follow();
            if let Some(taken) = taken {
                worker.looks.pace(Some(taken.len()));
                return Some(self.hand_out(worker, inbound, taken));
            }
            *ring = sight;
        }
        worker.looks.pace(None);
        while worker.looks.spend(1, now) && !worker.has_work() {
            for (ring, inbound) in rings.iter().zip(sights.inbounds()) {
                if ring.as_ref().is_some_and(rocketring::Ring::has_new_data)
                    && let Some(taken) = inbound.follow().0
                {
                    return Some(self.hand_out(worker, inbound, taken));
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    #[inline(always)]
    fn hand_out(&self, worker: &WorkerShared, inbound: &Arc<InboundShared>, taken: Followed) -> InEvent {
        worker.looks.took();
        worker.token.note_visit();
        match taken {
            Followed::Data { view, epoch, more } => {
                if more {
                    self.shared.enqueue(inbound);
                }
                let (from, to) = (view.from(), view.to());
                InEvent::Data(InView::new(view, inbound.clone(), epoch, Some(from), to))
            }
            Followed::Other(item) => {
                self.shared.enqueue(inbound);
                event_of(inbound.bid, item)
            }
        }
    }
}
