//! The end of a buffer's log: who says it, and who has heard it.

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

    /// The log ends here. The first word counts.
    pub(crate) fn set_end(self: &Arc<Self>, end: End) {
        lock(&self.end).get_or_insert(end);
        self.has_end.store(true, Ordering::Release);
        self.tell_end();
    }

    /// The log ends with what is visible of it, while somebody may go on writing: an end that was said before counts.
    /// Returns where it ends.
    pub(crate) fn close(self: &Arc<Self>) -> Position {
        // Who hears that there is an end waits for this lock to hear where.
        let mut said = lock(&self.end);
        self.has_end.store(true, Ordering::Release);
        // Pairs with the light barrier in `Buffer::notify_or_send`: either what was delivered is seen here, or who delivered
        // it sees that the log has ended.
        rocketring::barrier::heavy();
        let boundary = self.log().map_or(0, |log| log.ring.boundary());
        let end = said.get_or_insert(End::Closed(boundary)).position();
        drop(said);
        self.tell_end();
        end
    }

    /// Whether a delivery that ends at `at` is part of the log. After a light barrier since it became visible.
    #[inline]
    pub(crate) fn has_in_log(&self, at: Position) -> bool {
        !self.ended() || self.ends_behind(at)
    }

    #[cold]
    fn ends_behind(&self, at: Position) -> bool {
        self.end().is_none_or(|end| at <= end.position())
    }

    fn tell_end(self: &Arc<Self>) {
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

    /// Whether this is the first to hear that it has drained.
    pub(crate) fn tell_ended(&self) -> bool {
        // In this order: the locks of `drained` order the look at the flag and `end_with`. Acquire pairs with the Release there.
        let tells = self.drained() && !self.ends_above.load(Ordering::Acquire);
        tells && !self.ended_told.swap(true, Ordering::AcqRel)
    }

    /// The log ends with the subscription that it is spliced from: no worker tells so until `above` has told who has that
    /// one, which then makes place for another.
    pub(crate) fn end_with(self: &Arc<Self>, end: End, above: impl FnOnce()) {
        self.ends_above.store(true, Ordering::Relaxed);
        self.set_end(end);
        above();
        // Whoever tells the end after this sees what `above` did.
        self.ends_above.store(false, Ordering::Release);
        if let Some(out) = self.out.upgrade() {
            out.reap(self);
        }
    }

    /// Whether the log has ended and every subscriber present has all of it.
    pub(crate) fn drained(&self) -> bool {
        self.end().is_some_and(|end| {
            let places = lock(&self.places);
            places.subs.iter().all(|sub| sub.landed.load(Ordering::Acquire) >= end.position())
                && places.waited_for().all(|held| held.levels[0] >= end.position())
        })
    }

    /// Whether the log has ended and every subscriber present has all of it and has heard so.
    pub(crate) fn everybody_heard_the_end(&self) -> bool {
        self.drained() && lock(&self.places).subs.iter().all(|sub| sub.heard_end.load(Ordering::Acquire))
    }
}
