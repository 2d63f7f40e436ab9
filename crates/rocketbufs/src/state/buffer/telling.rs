//! Who is told that a buffer has news: the workers that send it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketring::barrier::{self, Full};

use super::Buffer;
use crate::lock::lock;
use crate::state::WorkerShared;
use crate::types::Position;

impl Buffer {
    /// Tells every worker that sends this buffer that there is news. Cheap while they have not looked yet.
    #[inline]
    pub(crate) fn notify(&self) {
        self.tell_workers(barrier::full(), WorkerShared::mark_fenced);
    }

    /// As [`Buffer::notify`], for the thread of an application that has delivered: it may send by itself.
    #[inline]
    pub(crate) fn notify_or_send(self: &Arc<Self>) {
        // One for all that is read from here on, as each costs as much as a small delivery. Either this sees what another
        // wrote (who ends `suppress_notify`, joins in `watch` or drains what is marked), or that one sees the new head.
        let delivered = barrier::light();
        let suppress_notify = self.suppress_notify.load(Ordering::Relaxed);
        if suppress_notify == 0 || self.log().is_none_or(|log| log.ring.head() > suppress_notify) {
            self.tell_workers(delivered.full(), WorkerShared::mark_or_send);
        }
        self.stir(delivered);
    }

    /// Deliveries up to here need not be told to workers from now on, if there are no more subscribers than the caller
    /// knows of.
    pub(crate) fn suppress_notify(&self, to: Position, known: usize) {
        // Under the lock: another one comes before this and counts, or after it and ends it.
        let places = lock(&self.places);
        if places.subs.len() == known {
            self.suppress_notify.store(to, Ordering::Relaxed);
        }
    }

    /// They must be again; the caller looks at the head after this.
    pub(crate) fn resume_notify(&self) {
        if self.suppress_notify.swap(0, Ordering::Relaxed) > 0 {
            barrier::heavy();
        }
    }

    /// The worker that sends it, where it is one.
    pub(crate) fn only_worker(&self) -> Option<&WorkerShared> {
        let watching = self.watch.load(Ordering::Relaxed);
        watching.is_power_of_two().then(|| &*self.inner.workers[watching.trailing_zeros() as usize])
    }

    #[inline]
    fn tell_workers(&self, after: Full, tell: impl Fn(&WorkerShared, u32, Full)) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::NOTIFY_LOST)
            && self.log().is_some_and(|log| log.ring.head() % 8 == 0)
        {
            return;
        }
        let mut watching = self.watch.load(Ordering::Relaxed);
        while watching != 0 {
            let worker = watching.trailing_zeros() as usize;
            watching &= watching - 1;
            tell(&self.inner.workers[worker], self.slot, after);
        }
    }
}
