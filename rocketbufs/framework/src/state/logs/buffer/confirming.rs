//! How far a buffer is confirmed, and the calls that wait for confirmations.
//!
//! Every waiting party (a blocked call, a context to be returned, an upstream sender that asked) registers
//! its position here. Subscribers that have been sent this far are asked for the smallest position that they
//! have not confirmed. Their answer is a CREDIT, which may confirm much more; then they are asked for the
//! next position. So at most one question is in flight, however many calls wait, and no call waits for the
//! quarter window after which CREDIT is due.
//!
//! A writer that must not wait is notified once when a buffer's subscribers have progressed far enough. Tasks that
//! wait for room are woken.
//!
//! ```text
//!   writer                              worker
//!   append → Full (the ring says so)    a subscriber's positions move, the ring grants
//!   what = Room, armed                  ── full ──
//!   ── full ──                          armed? (lock) reached? → disarm, report Progress
//!   (lock) reached already? → the same
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use rocketring::barrier::Full;

use super::Buffer;
use crate::ground::lock::lock;
use crate::ground::planted;
use crate::ground::types::{Position, ProgressLevel};
use crate::state::events::OutEvent;
use crate::state::{ConfirmedPositions, Progress};

impl Buffer {
    /// Returns how far the buffer is confirmed by everyone that counts now.
    pub(crate) fn confirmed(&self) -> ConfirmedPositions {
        let head = self.log().map_or(0, |log| log.ring.head());
        let (mut levels, mut subscriptions) = ([head; 3], 0);
        let coverage = self.each_position(|place| {
            for (least, at) in levels.iter_mut().zip(place) {
                *least = (*least).min(at);
            }
            subscriptions += 1;
        });
        // Each level is loaded by itself, so a later one may already be further.
        let landed = levels[0];
        let delivered = if planted::is(planted::DELIVERED_EARLY) { landed } else { levels[1].min(landed) };
        let consumed = levels[2].min(delivered);
        let confirmed = ConfirmedPositions { landed, delivered, consumed, coverage, subscriptions };
        self.upstream().map_or(confirmed, |source| source.min_receivers().settle(confirmed))
    }

    /// Registers positions that an upstream sender or the application wants to learn of at once. Subscribers
    /// that have been sent this far are asked.
    pub(crate) fn want(&self, wanted: [Position; 3]) {
        let ConfirmedPositions { landed, delivered, consumed, .. } = self.confirmed();
        self.waits.ask(wanted, [landed, delivered, consumed]);
        self.notify();
    }

    /// Returns the smallest waited-for positions beyond those that a subscriber has confirmed, and the level
    /// at which a writer without room waits for everything.
    pub(crate) fn wanted(&self, known: [Position; 3]) -> ([Option<Position>; 3], Option<ProgressLevel>) {
        let writer_waits = self.log().is_some_and(|log| log.ring.writer_waits());
        let all = writer_waits.then_some(if self.keep_until_delivered {
            ProgressLevel::Delivered
        } else {
            ProgressLevel::Landed
        });
        let progress_read = self.progress_read.load(Ordering::Relaxed);
        let read = |n: usize| (progress_read > known[n]).then_some(progress_read);
        if !self.waits.is_any() {
            return ([read(0), None, read(2)], all);
        }
        let mut next = self.waits.next(known);
        next[0] = next[0].into_iter().chain(read(0)).min();
        next[2] = next[2].into_iter().chain(read(2)).min();
        let context = self.next_context(known[0]);
        next[0] = next[0].into_iter().chain(context).min();
        (next, all)
    }

    /// Returns whether anything ever waited.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waits.is_any()
    }

    /// Stores the context of a delivery. `data_out_cb` receives it when everything below `end` has landed.
    pub(crate) fn push_context(self: &Arc<Self>, end: Position, context: u64) {
        let mut contexts = self.contexts.lock();
        contexts.push_back((end, context));
        self.contexts.counts(&contexts);
        drop(contexts);
        self.waits.note();
    }

    /// Drops the context of a delivery that is not part of the log after all.
    #[cold]
    pub(crate) fn drop_context(&self, end: Position) {
        let mut contexts = self.contexts.lock();
        contexts.retain(|(at, _)| *at != end);
        self.contexts.counts(&contexts);
    }

    /// Confirms visible deliveries of a buffer without subscriptions, called by the writer. Such a delivery
    /// counts as landed once it is visible, possibly together with a later one. The callback still runs on a
    /// worker.
    pub(crate) fn confirm_visible(self: &Arc<Self>) {
        if self.contexts.count() > 0 {
            self.confirm_first();
        }
    }

    fn confirm_first(self: &Arc<Self>) {
        let first = self.contexts.lock().front().map(|(end, _)| *end);
        if first.is_some_and(|end| self.min_landed() >= end) {
            let buffer = self.clone();
            self.inner.run_on_worker(move || buffer.report_landed_contexts());
        }
    }

    /// Returns the end of the first delivery beyond `known` with a context. Out-of-order deliveries may be
    /// skipped; the next search, after this context was returned, finds them.
    pub(crate) fn next_context(&self, known: Position) -> Option<Position> {
        let contexts = self.contexts.lock();
        let first = contexts.front().filter(|(end, _)| *end > known);
        let next = || contexts.get(contexts.partition_point(|(end, _)| *end <= known));
        first.or_else(next).map(|(end, _)| *end).filter(|end| *end > known)
    }

    /// Takes the contexts of deliveries that landed everywhere.
    pub(crate) fn take_landed_contexts(&self) -> Vec<u64> {
        let mut contexts = self.contexts.lock();
        if contexts.is_empty() {
            return Vec::new();
        }
        let landed = if planted::is(planted::CONTEXT_EARLY) { Position::MAX } else { self.min_landed() };
        let ready = contexts.iter().take_while(|(end, _)| *end <= landed).count();
        let landed = contexts.drain(..ready).map(|(_, context)| context).collect();
        self.contexts.counts(&contexts);
        if ready > 0 && !contexts.is_empty() {
            // Subscribers are asked for the next position.
            self.notify();
        }
        landed
    }

    /// Reports the contexts of deliveries that have landed everywhere. Called on a worker thread.
    pub(crate) fn report_landed_contexts(&self) {
        if let Some(out) = self.out.upgrade() {
            out.report_landed_contexts(self);
        }
    }

    /// Waits until `done`, which a position at a level brings about. Returns false on time-out.
    pub(crate) fn wait_until(
        &self,
        level: ProgressLevel,
        position: Position,
        timeout: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> bool {
        self.waits.begin(level, position);
        self.notify();
        let reached = self.progressed.wait_until(timeout, || done(self));
        self.waits.end(level, position);
        reached
    }
}

/// Notifications of progress.
impl Buffer {
    /// Reports [`OutEvent::Progress`] once `what` is true, now or later. A later
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
