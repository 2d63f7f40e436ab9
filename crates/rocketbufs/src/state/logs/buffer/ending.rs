//! The end of a buffer's log, and which subscribers have received it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Buffer;
use crate::lock::lock;
use crate::proto::End;
use crate::types::Position;

impl Buffer {
    pub(crate) fn end(&self) -> Option<End> {
        *lock(&self.end)
    }

    /// Ends the log. The first end that is set stays.
    pub(crate) fn set_end(self: &Arc<Self>, end: End) {
        lock(&self.end).get_or_insert(end);
        self.has_end.store(true, Ordering::Release);
        self.notify_end();
    }

    /// Ends the log at its visible end while a writer may continue. An end that was set before stays. Returns
    /// the end.
    pub(crate) fn close(self: &Arc<Self>) -> Position {
        // A thread that sees `has_end` waits for this lock to learn the position.
        let mut said = lock(&self.end);
        self.has_end.store(true, Ordering::Release);
        // Pairs with the light barrier in `Buffer::notify_or_send`: either the delivery is seen here, or the
        // delivering thread sees that the log has ended.
        rocketring::barrier::heavy();
        let boundary = self.log().map_or(0, |log| log.ring.boundary());
        let end = said.get_or_insert(End::Closed(boundary)).position();
        drop(said);
        self.notify_end();
        end
    }

    /// Returns whether a delivery that ends at `at` is part of the log. The caller has passed a light barrier
    /// since the delivery became visible.
    #[inline]
    pub(crate) fn has_in_log(&self, at: Position) -> bool {
        !self.ended() || self.ends_behind(at)
    }

    #[cold]
    fn ends_behind(&self, at: Position) -> bool {
        self.end().is_none_or(|end| at <= end.position())
    }

    fn notify_end(self: &Arc<Self>) {
        if let Some(log) = self.log() {
            log.ring.wake_waiters();
        }
        self.notify();
        self.on_progress();
        if self.log().is_none() {
            self.unpark(); // It will never be known.
        }
    }

    #[inline]
    pub(crate) fn ended(&self) -> bool {
        self.has_end.load(Ordering::Acquire)
    }

    /// Returns whether this call is the first to see that the buffer has drained.
    pub(crate) fn is_newly_drained(&self) -> bool {
        // The order matters: the locks in `drained` order the load of the flag and `end_with`. Acquire pairs
        // with the Release there.
        let tells = self.drained() && !self.ends_above.load(Ordering::Acquire);
        tells && !self.end_reported.swap(true, Ordering::AcqRel)
    }

    /// Ends the log together with its upstream subscription. Runs `above` before any worker reports the
    /// buffer's end.
    pub(crate) fn end_with(self: &Arc<Self>, end: End, above: impl FnOnce()) {
        self.ends_above.store(true, Ordering::Relaxed);
        self.set_end(end);
        above();
        // A thread that reports the end after this sees what `above` did.
        self.ends_above.store(false, Ordering::Release);
        self.reap();
    }

    /// Reports the end of a spliced buffer, or removes a destroyed one, once nothing needs it any more. Called
    /// on a worker.
    pub(crate) fn reap(self: &Arc<Self>) {
        if let Some(out) = self.out.upgrade() {
            out.reap(self);
        }
    }

    /// Returns whether the log has ended and every present subscriber has all of it.
    pub(crate) fn drained(&self) -> bool {
        self.end().is_some_and(|end| {
            let table = lock(&self.subscribers);
            table.connected.iter().all(|sub| sub.landed.load(Ordering::Acquire) >= end.position())
                && table.waited_for().all(|held| held.levels[0] >= end.position())
        })
    }

    /// Returns whether the log has ended, and every present subscriber has all of it and has received the
    /// end.
    pub(crate) fn all_received_end(&self) -> bool {
        self.drained()
            && lock(&self.subscribers).connected.iter().all(|sub| sub.heard_end.load(Ordering::Acquire))
    }
}
