//! How far a buffer is confirmed, and who waits for that.
//!
//! Everybody who waits (a blocked call, a context that is to come back, somebody upstream who asked) leaves the position
//! waited for here. Subscribers that have been sent it are asked for the smallest that they have not confirmed; their
//! answer is a CREDIT, which may confirm much more, and then they are asked for the next. So there is at most one
//! question under way at a time, however many wait, and nobody waits for the quarter window that credit goes out by.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::events::OutEvent;
use crate::lock::lock;
use crate::proto::{AskedLevels, Coverage};
use crate::state::{Buffer, Command};
use crate::types::{Bid, ConfirmLevel, Position};

/// How far a buffer is confirmed by everybody that counts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Confirmed {
    /// Everything below is in the memory of every subscriber; without any, everything written.
    pub landed: Position,
    /// Everything below is in the memory of every receiver at the end of a chain.
    pub delivered: Position,
    /// Everything below was given back by every such receiver.
    pub consumed: Position,
    /// For how many receivers that speaks, and how many have gone or lost something since the buffer was made.
    pub coverage: Coverage,
    /// Subscriptions that are here, and places that are kept for those that are away.
    pub subscriptions: usize,
}

impl Confirmed {
    /// The position of a level.
    pub fn at(&self, level: ConfirmLevel) -> Position {
        [self.landed, self.delivered, self.consumed][level as usize]
    }
}

/// What one subscriber has confirmed, as [`ROut::set_subscriber_progress_cb`](crate::ROut::set_subscriber_progress_cb) tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriberProgress {
    /// The buffer.
    pub bid: Bid,
    /// By which connection.
    pub conn: u64,
    /// Everything below is in the subscriber's memory.
    pub landed: Position,
    /// Everything below is in the memory of every receiver behind it.
    pub delivered: Position,
    /// Everything below was given back by every such receiver.
    pub consumed: Position,
    /// For how many receivers the subscriber speaks, and how many of the whole buffer have gone or lost something.
    pub coverage: Coverage,
}

/// Who waits for what.
#[derive(Default)]
pub(crate) struct Waits {
    /// Somebody has ever waited: those who never do pay nothing. Set before a buffer's workers are marked, whose barrier orders
    /// it: a worker that looks for a mark sees it.
    any: AtomicBool,
    list: Mutex<WaitList>,
}

#[derive(Default)]
struct WaitList {
    /// Calls that wait, by level: each is a thread.
    calls: [BTreeMap<Position, usize>; ConfirmLevel::ALL.len()],
    asked: AskedLevels,
}

impl Waits {
    /// Positions asked for from elsewhere, by level; 0: none.
    fn ask(&self, wanted: [Position; 3], confirmed: [Position; 3]) {
        let mut list = lock(&self.list);
        for ((asked, wanted), confirmed) in list.asked.iter_mut().zip(wanted).zip(confirmed) {
            asked.add(wanted, confirmed);
        }
        self.any.store(true, Ordering::Relaxed);
    }

    fn begin(&self, level: ConfirmLevel, position: Position) {
        *lock(&self.list).calls[level as usize].entry(position).or_default() += 1;
        self.any.store(true, Ordering::Relaxed);
    }

    fn end(&self, level: ConfirmLevel, position: Position) {
        let calls = &mut lock(&self.list).calls[level as usize];
        if let Some(count) = calls.get_mut(&position) {
            *count -= 1;
            if *count == 0 {
                calls.remove(&position);
            }
        }
    }

    /// The smallest position waited for beyond what is known, by level.
    fn next(&self, known: [Position; 3]) -> [Option<Position>; 3] {
        let list = lock(&self.list);
        let next = |n: usize| {
            let call = list.calls[n].range(known[n].saturating_add(1)..).next().map(|(at, _)| *at);
            call.into_iter().chain(list.asked[n].next(known[n])).min()
        };
        [next(0), next(1), next(2)]
    }
}

/// Contexts of deliveries, by where those end, in the order in which they were made. The writer adds them, workers take them.
#[derive(Default)]
pub(crate) struct Contexts {
    list: Mutex<VecDeque<(Position, u64)>>,
    /// How many there are. Written under the lock; the writer, which alone adds some, never reads a number that is too small.
    count: AtomicUsize,
}

impl Contexts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, VecDeque<(Position, u64)>> {
        lock(&self.list)
    }

    /// The list was changed, whose lock the caller has.
    fn counts(&self, list: &VecDeque<(Position, u64)>) {
        self.count.store(list.len(), Ordering::Relaxed);
    }

    /// How many there are, without the lock.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Buffer {
    /// How far it is confirmed by everybody that counts now.
    pub(crate) fn confirmed(&self) -> Confirmed {
        let head = self.log().map_or(0, |log| log.ring.head());
        let (mut levels, mut subscriptions) = ([head; 3], 0);
        let coverage = self.each_place(|place| {
            for (least, at) in levels.iter_mut().zip(place) {
                *least = (*least).min(at);
            }
            subscriptions += 1;
        });
        // Each is read by itself: a later one may have moved on meanwhile.
        let landed = levels[0];
        let delivered = levels[1].min(landed);
        #[cfg(feature = "planted-bugs")]
        let delivered = if crate::planted::is(crate::planted::DELIVERED_EARLY) { landed } else { delivered };
        let consumed = levels[2].min(delivered);
        let confirmed = Confirmed { landed, delivered, consumed, coverage, subscriptions };
        self.upstream().map_or(confirmed, |source| source.min_receivers.settle(confirmed))
    }

    /// Somebody upstream, or the application, asks to be told as soon as these are reached. Whoever has been sent them
    /// is asked.
    pub(crate) fn want(&self, wanted: [Position; 3]) {
        let Confirmed { landed, delivered, consumed, .. } = self.confirmed();
        self.waits.ask(wanted, [landed, delivered, consumed]);
        self.notify();
    }

    /// The smallest positions waited for beyond what a subscriber has confirmed, and the level at which somebody waits
    /// for everything: a writer without room.
    pub(crate) fn wanted(&self, known: [Position; 3]) -> ([Option<Position>; 3], Option<ConfirmLevel>) {
        let writer_waits = self.log().is_some_and(|log| log.ring.writer_waits());
        let all = writer_waits.then_some(if self.keep_until_delivered {
            ConfirmLevel::Delivered
        } else {
            ConfirmLevel::Landed
        });
        let looked_at = self.looked_at.load(Ordering::Relaxed);
        let look = |n: usize| (looked_at > known[n]).then_some(looked_at);
        if !self.waits.any.load(Ordering::Relaxed) {
            return ([look(0), None, look(2)], all);
        }
        let mut next = self.waits.next(known);
        next[0] = next[0].into_iter().chain(look(0)).min();
        next[2] = next[2].into_iter().chain(look(2)).min();
        let context = self.next_context(known[0]);
        next[0] = next[0].into_iter().chain(context).min();
        (next, all)
    }

    /// Whether anybody ever waited.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waits.any.load(Ordering::Relaxed)
    }

    /// Remembers the context of a delivery; `data_out_cb` gets it when everything below `end` has landed.
    pub(crate) fn push_context(self: &Arc<Self>, end: Position, context: u64) {
        let mut contexts = self.contexts.lock();
        contexts.push_back((end, context));
        self.contexts.counts(&contexts);
        drop(contexts);
        self.waits.any.store(true, Ordering::Relaxed);
    }

    /// The delivery that ends there is not part of the log after all.
    #[cold]
    pub(crate) fn drop_context(&self, end: Position) {
        let mut contexts = self.contexts.lock();
        contexts.retain(|(at, _)| *at != end);
        self.contexts.counts(&contexts);
    }

    /// With nobody there a delivery counts as landed as soon as it is visible, which it may have become with a later
    /// one; the callback still runs on a worker. By the writer.
    pub(crate) fn confirm_visible(self: &Arc<Self>) {
        if self.contexts.count() > 0 {
            self.confirm_first();
        }
    }

    fn confirm_first(self: &Arc<Self>) {
        let first = self.contexts.lock().front().map(|(end, _)| *end);
        if first.is_some_and(|end| self.min_landed() >= end) {
            self.inner.workers[0].send(Command::DataOut(self.clone()));
        }
    }

    /// Where the first delivery beyond `known` ends whose context waits. Deliveries made out of order may be passed over:
    /// those are looked for again when what was found has come back.
    pub(crate) fn next_context(&self, known: Position) -> Option<Position> {
        let contexts = self.contexts.lock();
        let first = contexts.front().filter(|(end, _)| *end > known);
        let next = || contexts.get(contexts.partition_point(|(end, _)| *end <= known));
        first.or_else(next).map(|(end, _)| *end).filter(|end| *end > known)
    }

    /// Contexts whose deliveries landed everywhere.
    pub(crate) fn take_landed_contexts(&self) -> Vec<u64> {
        let mut contexts = self.contexts.lock();
        if contexts.is_empty() {
            return Vec::new();
        }
        let landed = self.min_landed();
        #[cfg(feature = "planted-bugs")]
        let landed = if crate::planted::is(crate::planted::CONTEXT_EARLY) { Position::MAX } else { landed };
        let ready = contexts.iter().take_while(|(end, _)| *end <= landed).count();
        let landed = contexts.drain(..ready).map(|(_, context)| context).collect();
        self.contexts.counts(&contexts);
        if ready > 0 && !contexts.is_empty() {
            // Subscribers are asked for the next.
            self.notify();
        }
        landed
    }

    /// Waits until `done`, which a position at a level is to bring about; whether it is within `timeout`.
    pub(crate) fn wait_until(
        &self,
        (level, position): (ConfirmLevel, Position),
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

/// Shows a subscriber's positions to whoever wants to hear.
pub(crate) fn tell_subscriber_progress(
    buffer: &Arc<Buffer>,
    conn: u64,
    levels: [Position; 3],
    coverage: Coverage,
) {
    let Some(out) = buffer.out.upgrade() else { return };
    if !out.progress_cb.is_set() && !out.reads_events() {
        return;
    }
    let past = buffer.past_count();
    let [landed, delivered, consumed] = levels;
    let progress = SubscriberProgress {
        bid: buffer.bid,
        conn,
        landed,
        delivered,
        consumed,
        coverage: past.and(coverage),
    };
    let told = out.progress_cb.run(progress, |callback, progress| callback(progress));
    if let (Err(progress), true) = (told, out.reads_events()) {
        out.queue_event(OutEvent::SubscriberProgress(Box::new(progress)));
    }
}
