//! Notifies the application once when a buffer's subscribers have progressed far enough, for a writer that
//! must not wait, and wakes tasks that wait for room.
//!
//! ```text
//!   writer                              worker
//!   append → Full (the ring says so)    a subscriber's positions move, the ring grants
//!   what = Room, armed                  ── full ──
//!   ── full ──                          armed? (lock) reached? → disarm, report Progress
//!   (lock) reached already? → the same
//! ```

use std::sync::Arc;
use std::task::Waker;

use rocketring::barrier::Full;

use super::Buffer;
use crate::events::OutEvent;
use crate::lock::lock;
use crate::state::Progress;

impl Buffer {
    /// Reports [`OutEvent::Progress`](crate::OutEvent::Progress) once `what` is true, now or later. A later
    /// call replaces an earlier one.
    pub(crate) fn watch_progress(self: &Arc<Self>, what: Progress) {
        let mut wanted = lock(&self.watched.wanted);
        wanted.event = Some(what);
        let armed = self.watched.armed.arm();
        drop(wanted);
        match what {
            Progress::Room => self.notify(),
            Progress::Consumed(position) => self.want([0, 0, position]),
        }
        self.report_progress(armed);
    }

    /// Wakes a task once there is room for the segment that was refused last, or the buffer has ended.
    pub(crate) fn wake_on_room(self: &Arc<Self>, task: &Waker) {
        let mut wanted = lock(&self.watched.wanted);
        if !wanted.room.iter().any(|known| known.will_wake(task)) {
            wanted.room.push(task.clone());
        }
        let armed = self.watched.armed.arm();
        drop(wanted);
        self.notify();
        self.report_progress(armed);
    }

    /// Removes a task of [`Buffer::wake_on_room`] that no longer waits.
    pub(crate) fn forget_task(&self, task: &Waker) {
        lock(&self.watched.wanted).room.retain(|known| !known.will_wake(task));
    }

    /// Returns whether the segment that was refused last may have room now, or the buffer has ended.
    pub(crate) fn may_have_room(&self) -> bool {
        self.ended() || self.log().is_none_or(|log| !log.ring.writer_waits())
    }

    /// Handles progress of a subscriber: reports conditions that have become true.
    pub(crate) fn report_progress(self: &Arc<Self>, after: Full) {
        if !self.watched.armed.is_armed(after) {
            return;
        }
        // The lock is held until the flag is disarmed: a concurrent request is neither taken for this one nor
        // lost with it.
        let mut wanted = lock(&self.watched.wanted);
        let has_room = self.may_have_room();
        let reached = wanted.event.is_some_and(|event| match event {
            Progress::Room => has_room,
            Progress::Consumed(position) => self.ended() || self.confirmed().consumed >= position,
        });
        if reached {
            wanted.event = None;
        }
        let tasks = if has_room { std::mem::take(&mut wanted.room) } else { Vec::new() };
        if !wanted.is_any() {
            self.watched.armed.disarm();
        }
        // Neither a command nor a task's waker runs under the lock.
        drop(wanted);
        if reached {
            let (out, bid) = (self.out.clone(), self.bid);
            self.inner.run_on_worker(move || {
                if let Some(out) = out.upgrade() {
                    out.report(OutEvent::Progress { bid });
                }
            });
        }
        tasks.into_iter().for_each(Waker::wake);
    }
}
