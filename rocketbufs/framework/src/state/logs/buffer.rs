//! One buffer of an rOut: its log and the end of the log, its subscribers, and the calls that wait for subscribers.

mod confirming;
mod notifying;
mod subscribers;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rocketring::{EventCount, Hold, PeerDoorbell, WatchKey, Writer, barrier};

pub(crate) use subscribers::{DurableCursor, Leaving, OwnedName, SubscriptionStatus};
use subscribers::{Known, SubscriberTable};

use crate::ground::limits::SubscriptionLimits;
use crate::ground::lock::lock;
use crate::ground::planted;
use crate::ground::times::Times;
use crate::ground::types::{Bid, Nanos, Position, WireId};
use crate::proto::{Coverage, End, KnownPositions, PeerCoverage, SendCursor};
use crate::state::events::OutEvent;
use crate::state::{
    ContextInner, Contexts, DurableSlots, IdleState, Log, MinReceivers, Parked, ProgressWatch, Waits,
};

/// A buffer, shared by the application's handles and the workers that send it.
pub(crate) struct Buffer {
    pub(crate) bid: Bid,
    /// The number under which workers are notified of news of this buffer.
    pub(crate) slot: u32,
    pub(crate) out: Weak<dyn BufferOwner>,
    pub(crate) inner: Arc<ContextInner>,
    /// For a spliced buffer, set when the upstream subscription is accepted.
    pub(crate) log: OnceLock<Log>,
    /// The local writer, unless it was taken by an [`OutWriter`](crate::OutWriter) or the buffer is spliced.
    pub(crate) writer: Mutex<Option<Writer>>,
    /// The subscription that the buffer is spliced from.
    pub(crate) source: Option<Weak<dyn Upstream>>,
    /// Subscriptions that arrived before the log was known.
    pub(crate) parked: Mutex<Vec<Parked>>,
    /// Bit n: worker n has subscribers of this buffer.
    watch: AtomicU64,
    subscribers: Mutex<SubscriberTable>,
    /// All subscribers follow the memory and are woken there, so deliveries up to this position do not notify
    /// workers. 0: every delivery does.
    suppress_notify: AtomicU64,
    /// Subscribers hold data until it is delivered, not only until it landed.
    pub(crate) keep_until_delivered: bool,
    /// Bytes that landed at all present and past subscriptions, and bytes that they lost: sums that never
    /// fall.
    pub(crate) landed_bytes: AtomicU64,
    /// A reader of progress asks for confirmations of everything below.
    pub(crate) progress_read: AtomicU64,
    pub(crate) dropped_bytes: AtomicU64,
    end: Mutex<Option<End>>,
    /// Lock-free mirror of `end.is_some()`.
    has_end: AtomicBool,
    /// Contexts of deliveries that have not landed everywhere.
    pub(crate) contexts: Contexts,
    end_reported: AtomicBool,
    /// The end is being reported to the subscription's own application, which happens before the buffer
    /// reports its end.
    ends_above: AtomicBool,
    pub(crate) waits: Waits,
    /// Calls that wait for subscribers to progress.
    pub(crate) progressed: EventCount,
    /// Asynchronous watchers of progress.
    pub(crate) watched: ProgressWatch,
    /// The time at which the log had a certain length.
    pub(crate) times: Times,
    /// The limits of the options that subscriptions ask for.
    pub(crate) limits: Mutex<SubscriptionLimits>,
    /// For a buffer that the application writes: whether it moves, and where it rests.
    pub(crate) idle_state: IdleState,
}

/// The rOut of a buffer, as the buffer and its workers see it. Called on worker threads.
pub(crate) trait BufferOwner: Send + Sync {
    /// Reports an event.
    fn report(&self, event: OutEvent);

    /// Reports the positions of a subscriber, by level.
    fn report_subscriber_progress(
        &self,
        buffer: &Buffer,
        conn: u64,
        levels: [Position; 3],
        coverage: Coverage,
    );

    /// Reports the contexts of deliveries that have landed everywhere.
    fn report_landed_contexts(&self, buffer: &Buffer);

    /// Removes a buffer that has ended, once nothing needs it any more.
    fn reap(&self, buffer: &Arc<Buffer>);

    /// Returns the slots of durable subscriptions.
    fn durable_slots(&self) -> &DurableSlots;
}

/// The subscription that a spliced buffer is filled by, as the buffer sees it.
pub(crate) trait Upstream: Send + Sync {
    /// Returns the number under which the subscription's worker is notified.
    fn slot(&self) -> u32;

    /// Returns the least number of receivers for which the log may be confirmed.
    fn min_receivers(&self) -> &MinReceivers;

    /// Returns the position from which on data is held until enough receivers have it.
    fn kept_from(&self) -> Option<Position>;

    /// Handles progress of a subscriber, which may allow credit upstream.
    fn on_downstream_progress(&self, buffer: &Buffer);

    /// Registers a reader's doorbell with the writer of the ring. Returns false if there are too many.
    fn watch(&self, key: WatchKey, doorbell: Arc<PeerDoorbell>) -> bool;

    /// Removes a reader's doorbell.
    fn unwatch(&self, key: WatchKey);

    /// Handles a change of subscribers, after which the writer may have to wake this end, or no longer.
    fn pass_watchers(&self);
}

impl Buffer {
    pub(crate) fn new(
        bid: Bid,
        slot: u32,
        out: Weak<dyn BufferOwner>,
        inner: &Arc<ContextInner>,
        source: Option<Weak<dyn Upstream>>,
        keep_until_delivered: bool,
    ) -> Self {
        Self {
            bid,
            slot,
            out,
            inner: inner.clone(),
            log: OnceLock::new(),
            writer: Mutex::default(),
            source,
            parked: Mutex::default(),
            watch: AtomicU64::new(0),
            subscribers: Mutex::default(),
            suppress_notify: AtomicU64::new(0),
            keep_until_delivered,
            landed_bytes: AtomicU64::new(0),
            progress_read: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            end: Mutex::default(),
            has_end: AtomicBool::new(false),
            contexts: Contexts::default(),
            end_reported: AtomicBool::new(false),
            ends_above: AtomicBool::new(false),
            waits: Waits::default(),
            progressed: EventCount::default(),
            watched: ProgressWatch::default(),
            times: Times::default(),
            limits: Mutex::default(),
            idle_state: IdleState::default(),
        }
    }

    /// Publishes the subscription's positions, and releases bytes that it no longer holds.
    pub(crate) fn publish(&self, status: &SubscriptionStatus, cursor: &SendCursor) {
        // Only the worker that owns the subscription writes these values.
        let before = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let (landed, dropped) = (cursor.landed(), cursor.dropped_bytes());
        self.landed_bytes.fetch_add(landed.saturating_sub(before(&status.landed)), Ordering::Relaxed);
        self.dropped_bytes.fetch_add(dropped.saturating_sub(before(&status.dropped)), Ordering::Relaxed);
        if landed != before(&status.landed) || cursor.consumed() != before(&status.consumed) {
            status.progress.store(cursor.last_progress(), Ordering::Release);
        }
        status.sent.store(cursor.sent(), Ordering::Release);
        status.landed.store(landed, Ordering::Release);
        let mut coverage = lock(&status.coverage);
        status.delivered.store(cursor.delivered(), Ordering::Release);
        status.consumed.store(cursor.consumed(), Ordering::Release);
        *coverage = cursor.coverage();
        drop(coverage);
        status.dropped.store(dropped, Ordering::Release);
        let ring = self.log().map(|log| &log.ring);
        if let Some(resume_boundary) =
            ring.filter(|_| !status.name.is_empty()).and_then(|ring| cursor.resume_boundary(ring))
        {
            // An earlier call may know a later position, as only some ends of deliveries are remembered.
            status.resume_boundary.fetch_max(resume_boundary, Ordering::Release);
        }
        let at = ring.map_or(cursor.holds_at(), |ring| cursor.holds_whole(ring));
        if let (Some(at), Some(hold)) = (at, &*lock(&status.hold)) {
            hold.advance(if planted::is(planted::HOLD_AT_SENT) { cursor.sent() } else { at });
        }
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// Adds a subscription. Atomically replaces any live or durable subscription with this name. `anew`: the
    /// new subscription does not continue from the old one's data. A subscription that `wants_slot`
    /// gets the old one's, or another if one is free. Returns the old durable cursor and hold, to be dropped
    /// once the new subscription holds.
    pub(crate) fn add_sub(
        &self,
        sub: Arc<SubscriptionStatus>,
        anew: bool,
        slots: &DurableSlots,
        wants_slot: bool,
    ) -> (Option<DurableCursor>, Option<Hold>) {
        let bit = 1 << sub.worker;
        let mut table = lock(&self.subscribers);
        let (mut held, mut hold) = (None, None);
        if !sub.name.is_empty() {
            held = table.offline.remove(&sub.name);
            let live = table.connected.iter().position(|s| s.name == sub.name);
            let live = live.map(|at| table.connected.swap_remove(at));
            hold = live.as_ref().and_then(|live| lock(&live.hold).take());
            slots.are_back(usize::from(held.is_some()));
            let live_has = live.as_ref().is_some_and(|live| live.has_slot.swap(false, Ordering::Relaxed));
            let had = usize::from(held.is_some()) + usize::from(live_has);
            slots.give_back(had.saturating_sub(usize::from(wants_slot)));
            sub.has_slot.store(wants_slot && (had > 0 || slots.take()), Ordering::Relaxed);
            if anew {
                let counts =
                    held.iter().map(|held| held.coverage.count()).chain(live.iter().map(|live| live.count()));
                table.departed = counts.fold(table.departed, |past, count| past.and(count.gone()));
            }
        }
        table.connected.push(sub);
        drop(table);
        self.suppress_notify.store(0, Ordering::Relaxed);
        self.watch.fetch_or(bit, Ordering::Relaxed);
        // Pairs with the barrier in `notify_or_send`: either the worker sees the delivery, or the delivering
        // thread sees the worker. The same holds if `resume_notify` has just ended `suppress_notify`, which
        // the delivering thread may not have seen.
        barrier::heavy();
        // The upstream subscription may have something to report.
        if let Some(source) = self.upstream() {
            source.on_downstream_progress(self);
        }
        (held, hold)
    }

    /// Removes a subscription. If it leaves a durable cursor and has a durable slot, or a slot is free, its
    /// position is held; otherwise it counts for nothing any more. Returns whether the position is held;
    /// `None` if another subscription of its name has replaced it.
    pub(crate) fn remove_sub(
        self: &Arc<Self>,
        conn: u64,
        wire: WireId,
        leaving: Leaving,
        slots: Option<&DurableSlots>,
    ) -> Option<bool> {
        let mut table = lock(&self.subscribers);
        let at = table.connected.iter().rposition(|s| s.conn == conn && s.wire == wire)?;
        let gone = table.connected.swap_remove(at);
        let has_slot = gone.has_slot.swap(false, Ordering::Relaxed);
        let holds = match (leaving, slots) {
            (Leaving::Kept(mut held), Some(slots)) if !table.removed && (has_slot || slots.take()) => {
                slots.leaves();
                if held.counts() {
                    held.hold = lock(&gone.hold).take();
                } else {
                    held.coverage = PeerCoverage::default();
                    table.departed = table.departed.and(gone.count().gone());
                }
                table.offline.insert(gone.name.clone(), held);
                true
            }
            (_, slots) => {
                if let (true, Some(slots)) = (has_slot, slots) {
                    slots.give_back(1);
                }
                table.departed = table.departed.and(gone.count().gone());
                false
            }
        };
        if !table.connected.iter().any(|s| s.worker == gone.worker) {
            self.watch.fetch_and(!(1 << gone.worker), Ordering::Relaxed);
        }
        drop(table);
        // Releases the bytes that the subscription held, unless the hold was handed to a durable cursor.
        drop(lock(&gone.hold).take());
        self.on_progress();
        Some(holds)
    }

    /// Returns whether the buffer was removed from its rOut.
    pub(crate) fn is_removed(&self) -> bool {
        lock(&self.subscribers).removed
    }

    /// Drops every durable cursor of a removed buffer. Returns their number.
    pub(crate) fn drop_all_held(self: &Arc<Self>) -> usize {
        lock(&self.subscribers).removed = true;
        self.drop_held(|_, _| false).0
    }

    pub(crate) fn subs(&self) -> Vec<Arc<SubscriptionStatus>> {
        lock(&self.subscribers).connected.clone()
    }

    pub(crate) fn sub_count(&self) -> usize {
        lock(&self.subscribers).connected.len()
    }

    /// Returns the known state of a subscription of this name.
    pub(crate) fn known(&self, name: &OwnedName) -> Option<Known> {
        let table = lock(&self.subscribers);
        if let Some(held) = table.offline.get(name) {
            let holds = held.hold.as_ref().map(Hold::position);
            let positions =
                KnownPositions { levels: held.levels, holds, resume_boundary: held.resume_boundary };
            return Some(Known { positions, coverage: held.coverage, live: None });
        }
        let sub = table.connected.iter().find(|sub| sub.name == *name)?;
        let holds = lock(&sub.hold).as_ref().map(Hold::position);
        let ((levels, coverage), resume_boundary) =
            (sub.confirms(), sub.resume_boundary.load(Ordering::Acquire));
        let positions = KnownPositions { levels, holds, resume_boundary };
        Some(Known { positions, coverage, live: Some((sub.conn, sub.worker)) })
    }

    /// Returns the position below which everything landed at every present subscriber; without one, the end
    /// of the written bytes.
    pub(crate) fn min_landed(&self) -> Position {
        let head = self.log().map_or(0, |log| log.ring.head());
        let table = lock(&self.subscribers);
        let held = table.waited_for().map(|held| held.levels[0]).min().unwrap_or(head);
        table.landed().unwrap_or(head).min(held).min(head)
    }

    /// Returns the position below which everything landed at every connected subscriber; without one, the end
    /// of the written bytes.
    pub(crate) fn connected_landed(&self) -> Position {
        let head = self.log().map_or(0, |log| log.ring.head());
        lock(&self.subscribers).landed().unwrap_or(head).min(head)
    }

    /// Calls `show` with the positions of everyone that counts. Returns the receivers that they speak for
    /// together.
    pub(crate) fn each_position(&self, mut show: impl FnMut([Position; 3])) -> Coverage {
        let table = lock(&self.subscribers);
        let held = table.waited_for().map(|held| held.levels[2]);
        let least = table.connected.iter().map(|sub| sub.consumed.load(Ordering::Relaxed)).chain(held).min();
        // No upstream receiver is more than one ring behind, or asks for anything below.
        let floor = least.unwrap_or(0).saturating_sub(self.log().map_or(0, |log| log.ring.capacity()));
        let mut count = table.departed;
        for held in table.waited_for() {
            show(held.levels);
            count = count.and_above(held.coverage.count(), floor);
        }
        for sub in &table.connected {
            let (levels, coverage) = sub.confirms();
            show(levels);
            count = count.and_above(coverage.count(), floor);
        }
        count
    }

    /// Returns the coverage of subscriptions that count no more.
    pub(crate) fn past_count(&self) -> Coverage {
        lock(&self.subscribers).departed
    }

    /// Calls `of` with every durable cursor.
    pub(crate) fn each_held<R>(&self, of: impl Fn(&[u8], &DurableCursor) -> R) -> Vec<R> {
        lock(&self.subscribers).offline.iter().map(|(name, held)| of(&name.name, held)).collect()
    }

    /// Drops the durable cursors that `keep` does not want. Returns their number, and when the next of the
    /// others expires.
    pub(crate) fn drop_held(
        self: &Arc<Self>,
        keep: impl Fn(&OwnedName, &DurableCursor) -> bool,
    ) -> (usize, Option<Nanos>) {
        let (mut gone, mut past, mut next) = (Vec::new(), Coverage::default(), None);
        let mut table = lock(&self.subscribers);
        table.offline.retain(|name, held| {
            let keeps = keep(name, held);
            if keeps {
                next = Some(next.map_or(held.until, |at: Nanos| at.min(held.until)));
            } else {
                past = past.and(held.coverage.count().gone());
                gone.push(held.hold.take());
            }
            keeps
        });
        table.departed = table.departed.and(past);
        drop(table);
        // Released outside the lock, since that may wake a writer.
        let count = gone.len();
        drop(gone);
        if count > 0 {
            self.on_progress();
            // A worker may be among the waiting writers.
            self.notify();
        }
        (count, next)
    }

    /// Returns the name of a named subscription of a connection.
    pub(crate) fn name_of(&self, conn: u64) -> Option<OwnedName> {
        let table = lock(&self.subscribers);
        let sub = table.connected.iter().find(|sub| sub.conn == conn && !sub.name.is_empty());
        sub.map(|sub| sub.name.clone())
    }

    /// Returns whether there are no subscriptions and no durable cursors.
    pub(crate) fn is_abandoned(&self) -> bool {
        let table = lock(&self.subscribers);
        table.connected.is_empty() && table.offline.is_empty()
    }

    /// Wakes everything that waits for progress, after a subscriber progressed, came or went.
    pub(crate) fn on_progress(self: &Arc<Self>) {
        // One barrier for all the checks below.
        let moved = barrier::full();
        self.progressed.notify_all(moved);
        self.report_progress(moved);
        self.on_hold_moved(moved);
        // The upstream subscription may have something to report.
        if let Some(source) = self.upstream() {
            source.on_downstream_progress(self);
        }
    }

    /// Returns the subscription that the buffer is spliced from, while it exists.
    pub(crate) fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        self.source.as_ref().and_then(Weak::upgrade)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.source.is_none() {
            self.end_rest();
        }
        self.inner.free_slot(self.slot);
    }
}

/// Sums of bytes that never fall. The difference of two readings gives a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Written bytes.
    pub received_bytes: u64,
    /// Bytes that landed at all present and past subscribers.
    pub delivered_bytes: u64,
    /// Bytes that subscribers lost because they were too slow for their policy.
    pub dropped_bytes: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, other: Self) {
        self.received_bytes = self.received_bytes.wrapping_add(other.received_bytes);
        self.delivered_bytes = self.delivered_bytes.wrapping_add(other.delivered_bytes);
        self.dropped_bytes = self.dropped_bytes.wrapping_add(other.dropped_bytes);
    }
}

impl Buffer {
    /// Returns the buffer's traffic so far.
    pub(crate) fn traffic(&self) -> Traffic {
        let dropped_bytes = self.dropped_bytes.load(Ordering::Relaxed);
        // A subscriber's position moves past lost bytes later than the loss is counted.
        let delivered_bytes = self.landed_bytes.load(Ordering::Relaxed).saturating_sub(dropped_bytes);
        let received = self.log().map_or(0, |log| log.ring.head().saturating_sub(log.ring.start()));
        Traffic { received_bytes: received, delivered_bytes, dropped_bytes }
    }

    /// Returns the minimum number of receivers of the upstream subscription, and the first position that they
    /// do not have.
    pub(crate) fn min_receivers(&self) -> (u32, Option<Position>) {
        match self.upstream().filter(|source| source.min_receivers().is_any()) {
            Some(source) => (source.min_receivers().receivers(), source.kept_from()),
            None => (0, None),
        }
    }
}

pub(crate) fn held_at(hold: Option<&Hold>) -> Option<Position> {
    hold.map(Hold::position)
}

/// The end of the log, and which subscribers have received it.
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
        self.finish(End::Closed)
    }

    /// The same, of a log that goes on elsewhere.
    pub(crate) fn leave(self: &Arc<Self>) -> Position {
        self.finish(End::Gone)
    }

    fn finish(self: &Arc<Self>, end: fn(Position) -> End) -> Position {
        // A thread that sees `has_end` waits for this lock to learn the position.
        let mut said = lock(&self.end);
        self.has_end.store(true, Ordering::Release);
        // Pairs with the light barrier in `Buffer::notify_or_send`: either the delivery is seen here, or the
        // delivering thread sees that the log has ended.
        rocketring::barrier::heavy();
        let boundary = self.log().map_or(0, |log| log.ring.boundary());
        let end = said.get_or_insert(end(boundary)).position();
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
        // A thread that reports the end after this sees the effects of `above`.
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
        self.drained() && self.connected_received_end()
    }

    /// Returns whether the log has ended, and every connected subscriber has all of it and has received the
    /// end.
    pub(crate) fn connected_received_end(&self) -> bool {
        self.end().is_some_and(|end| {
            let has_end = |sub: &Arc<SubscriptionStatus>| {
                sub.landed.load(Ordering::Acquire) >= end.position() && sub.heard_end.load(Ordering::Acquire)
            };
            lock(&self.subscribers).connected.iter().all(has_end)
        })
    }
}
