//! Notifying the workers that send a buffer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketring::barrier::{self, Full};

use super::Buffer;
use crate::lock::lock;
use crate::planted;
use crate::state::{Request, WorkerShared};
use crate::types::Position;

impl Buffer {
    /// Notifies every worker that sends this buffer. Cheap while an earlier notification is unread.
    #[inline]
    pub(crate) fn notify(&self) {
        self.notify_workers(barrier::full(), WorkerShared::mark_fenced);
    }

    /// Like [`Buffer::notify`], for an application thread that has delivered and may send by itself.
    #[inline]
    pub(crate) fn notify_or_send(self: &Arc<Self>) {
        // One barrier for all loads below, as each barrier costs as much as a small delivery. Either this
        // thread sees what another thread wrote (the end of `suppress_notify`, a new bit in `watch`, a
        // drained mark), or that thread sees the new head.
        let delivered = barrier::light();
        let suppress_notify = self.suppress_notify.load(Ordering::Relaxed);
        if suppress_notify == 0 || self.log().is_none_or(|log| log.ring.head() > suppress_notify) {
            self.notify_workers(delivered.full(), WorkerShared::mark_or_send);
        }
        self.mark_active(delivered);
    }

    /// Suppresses notifications for deliveries up to `to`, if there are no more subscribers than `known`.
    pub(crate) fn suppress_notify(&self, to: Position, known: usize) {
        // Under the lock, a new subscription either comes first and counts, or comes later and ends the
        // suppression.
        let table = lock(&self.subscribers);
        if table.connected.len() == known {
            self.suppress_notify.store(to, Ordering::Relaxed);
        }
    }

    /// Ends the suppression of notifications. The caller looks at the head after this.
    pub(crate) fn resume_notify(&self) {
        if self.suppress_notify.swap(0, Ordering::Relaxed) > 0 {
            barrier::heavy();
        }
    }

    /// Returns the worker that sends the buffer, if there is exactly one.
    pub(crate) fn only_worker(&self) -> Option<&WorkerShared> {
        let watching = self.watch.load(Ordering::Relaxed);
        watching.is_power_of_two().then(|| &*self.inner.workers[watching.trailing_zeros() as usize])
    }

    #[inline]
    fn notify_workers(&self, after: Full, tell: impl Fn(&WorkerShared, u32, Full)) {
        if planted::is(planted::NOTIFY_LOST) && self.log().is_some_and(|log| log.ring.head() % 8 == 0) {
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

impl Buffer {
    /// Answers the parked subscriptions once the log is known, each on the worker of its connection.
    pub(crate) fn unpark(&self) {
        for parked in std::mem::take(&mut *lock(&self.parked)) {
            self.inner.worker(parked.conn).request(Request::Unpark(parked));
        }
    }
}
