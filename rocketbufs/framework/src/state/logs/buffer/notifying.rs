//! Notifying the workers that send a buffer, the worker that trims its memory while it rests (`crate::worker`, `idle`), and
//! readers that follow the memory, which its writer wakes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketring::barrier::{self, Full, Light};
use rocketring::{PeerDoorbell, WatchKey};

use super::Buffer;
use crate::ground::lock::lock;
use crate::ground::planted;
use crate::ground::types::Position;
use crate::state::{Activated, Request, WorkerShared};

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
        // thread sees the value that another thread wrote (the end of `suppress_notify`, a new bit in `watch`, a
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

/// The worker that trims the memory.
impl Buffer {
    /// Handles a delivery of the application.
    #[inline]
    pub(crate) fn mark_active(self: &Arc<Self>, delivered: Light) {
        if self.idle_state.written.take(delivered) {
            self.notify_activated(Activated::Written(self.slot));
        }
    }

    /// Handles a moved hold.
    pub(crate) fn on_hold_moved(self: &Arc<Self>, moved: Full) {
        if self.idle_state.hold_moved.take(moved) {
            self.notify_activated(Activated::HoldMoved(self.slot));
        }
    }

    /// Ends the rest of a buffer that is gone.
    pub(crate) fn end_rest(&self) {
        let place = self.idle_state.place.load(Ordering::Acquire);
        self.notify_activated(Activated::Gone { slot: self.slot, place });
    }

    /// Returns the worker that trims the buffer's memory.
    pub(crate) fn trimming_worker(&self) -> usize {
        self.slot as usize % self.inner.workers.len()
    }

    fn notify_activated(&self, activated: Activated) {
        self.inner.workers[self.trimming_worker()].request(Request::Activated(activated));
    }
}

/// Readers that follow the memory.
impl Buffer {
    /// Registers a reader's doorbell with the writer of this log's memory. Returns false if there are too
    /// many.
    pub(crate) fn watch(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool {
        let Some(log) = self.log() else { return false };
        if !log.ring.is_peer_written() {
            return log.ring.watch(key, doorbell);
        }
        self.upstream().is_some_and(|source| source.watch(key, doorbell))
    }

    /// Removes a reader's doorbell.
    pub(crate) fn unwatch(&self, key: WatchKey) {
        let Some(log) = self.log() else { return };
        if !log.ring.is_peer_written() {
            return log.ring.unwatch(key);
        }
        if let Some(source) = self.upstream() {
            source.unwatch(key);
        }
    }

    /// Handles a change of subscribers, after which the writer may have to wake this end, or no longer.
    pub(crate) fn notify_upstream(&self) {
        let follows = self.log().is_some_and(|log| log.ring.is_peer_written());
        if let Some(source) = self.upstream().filter(|_| follows) {
            source.pass_watchers();
        }
    }
}
