//! One buffer of an rOut: its log, its subscribers, who waits for them.

mod ending;
mod places;
mod telling;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rocketring::{EventCount, Hold, Ring, Writer, barrier};

use places::Places;
pub(crate) use places::{Held, Known, Leaving};

use crate::limits::SubscriptionLimits;
use crate::lock::lock;
use crate::proto::{Coverage, End, Outbound, PeerCoverage};
use crate::state::{
    ContextInner, Contexts, DurableSlots, InboundShared, Parked, ProgressWatch, ROutShared, Rest, Waits,
};
use crate::times::Times;
use crate::types::{Bid, Epoch, Nanos, Policy, Position, WireId};

/// A ring and the name of the log that it holds the end of.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) ring: Ring,
    pub(crate) epoch: Epoch,
}

/// A buffer, shared by the application's handles and the workers that send it.
pub(crate) struct Buffer {
    pub(crate) bid: Bid,
    /// Under this number workers are told that it has news.
    pub(crate) slot: u32,
    pub(crate) out: Weak<ROutShared>,
    pub(crate) inner: Arc<ContextInner>,
    /// For a spliced buffer known only when the upstream subscription was answered.
    pub(crate) log: OnceLock<Log>,
    /// The local writer, unless it was taken by an [`OutWriter`](crate::OutWriter) or the buffer is spliced.
    pub(crate) writer: Mutex<Option<Writer>>,
    /// What it is spliced from.
    pub(crate) source: Option<Weak<InboundShared>>,
    /// Subscriptions that came before the log was known.
    pub(crate) parked: Mutex<Vec<Parked>>,
    /// Bit n: worker n has subscribers of this buffer.
    watch: AtomicU64,
    places: Mutex<Places>,
    /// All subscribers follow, and will be told: deliveries up to here say nothing to workers meanwhile. 0: all do.
    suppress_notify: AtomicU64,
    /// Subscribers hold the ring until what they got is delivered, not only until it landed with them.
    pub(crate) keep_until_delivered: bool,
    /// What landed with all subscriptions there ever were, and what they lost: sums that never fall.
    pub(crate) landed_bytes: AtomicU64,
    /// Somebody looks, and would know who has everything below.
    pub(crate) looked_at: AtomicU64,
    pub(crate) dropped_bytes: AtomicU64,
    end: Mutex<Option<End>>,
    /// Whether there is one, for those who look at every delivery.
    has_end: AtomicBool,
    /// Contexts of deliveries that wait until they landed everywhere.
    pub(crate) contexts: Contexts,
    ended_told: AtomicBool,
    /// What it is spliced from is told of the end, which comes before the buffer's is told.
    ends_above: AtomicBool,
    pub(crate) waits: Waits,
    /// Calls that wait until subscribers have moved on.
    pub(crate) progressed: EventCount,
    /// Who is to be told without waiting.
    pub(crate) watched: ProgressWatch,
    /// When its log was how long.
    pub(crate) times: Times,
    /// What subscriptions may ask for.
    pub(crate) terms: Mutex<SubscriptionLimits>,
    /// Of a buffer that the application writes: whether it moves, and where it rests.
    pub(crate) rest: Rest,
}

/// What a subscription shows to others than its worker.
pub(crate) struct SubShared {
    pub(crate) conn: u64,
    pub(crate) worker: usize,
    pub(crate) wire: WireId,
    pub(crate) name: Vec<u8>,
    pub(crate) policy: Policy,
    /// Its cursor in the ring, if it holds.
    pub(crate) hold: Mutex<Option<Hold>>,
    pub(crate) sent: AtomicU64,
    pub(crate) landed: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) consumed: AtomicU64,
    /// Of one with a name: where it can begin again, if it comes back without what it has.
    pub(crate) whole: AtomicU64,
    /// For whom `delivered` and `consumed` speak; they change under its lock, as they may go back where it grows.
    pub(crate) tally: Mutex<PeerCoverage>,
    pub(crate) dropped: AtomicU64,
    /// Whether a place is taken for it; changed under the lock of the buffer's places.
    pub(crate) placed: AtomicBool,
    /// Where it began.
    pub(crate) start: Position,
    /// When it last gave anything back.
    pub(crate) progress: AtomicU64,
    /// The receiver has heard the log's end.
    pub(crate) heard_end: AtomicBool,
}

impl SubShared {
    /// Shows that a range was handed over.
    pub(crate) fn show_sent(&self, from: Position, to: Position, now: Nanos) {
        self.sent.store(to, Ordering::Release);
        if self.landed.load(Ordering::Relaxed) >= from {
            // It had everything: whoever looks counts its time from here.
            self.progress.store(now, Ordering::Release);
        }
    }

    /// Shows where the subscription is, and lets go of what it no longer holds.
    pub(crate) fn publish(&self, outbound: &Outbound, buffer: &Buffer) {
        // Only the worker that owns the subscription writes here.
        let before = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let (landed, dropped) = (outbound.landed(), outbound.dropped_bytes());
        buffer.landed_bytes.fetch_add(landed.saturating_sub(before(&self.landed)), Ordering::Relaxed);
        buffer.dropped_bytes.fetch_add(dropped.saturating_sub(before(&self.dropped)), Ordering::Relaxed);
        if landed != before(&self.landed) || outbound.consumed() != before(&self.consumed) {
            self.progress.store(outbound.last_progress(), Ordering::Release);
        }
        self.sent.store(outbound.sent(), Ordering::Release);
        self.landed.store(landed, Ordering::Release);
        let mut tally = lock(&self.tally);
        self.delivered.store(outbound.delivered(), Ordering::Release);
        self.consumed.store(outbound.consumed(), Ordering::Release);
        *tally = outbound.tally();
        drop(tally);
        self.dropped.store(dropped, Ordering::Release);
        let ring = buffer.log().map(|log| &log.ring);
        if let Some(whole) = ring.filter(|_| !self.name.is_empty()).and_then(|ring| outbound.whole(ring)) {
            // It can be known better before than later, as only some ends of deliveries are remembered.
            self.whole.fetch_max(whole, Ordering::Release);
        }
        let at = ring.map_or(outbound.holds_at(), |ring| outbound.holds_whole(ring));
        #[cfg(feature = "planted-bugs")]
        let at =
            if crate::planted::is(crate::planted::HOLD_AT_SENT) { at.map(|_| outbound.sent()) } else { at };
        if let (Some(at), Some(hold)) = (at, &*lock(&self.hold)) {
            hold.advance(at);
        }
    }

    /// What it has confirmed, by level.
    pub(crate) fn levels(&self) -> [Position; 3] {
        [&self.landed, &self.delivered, &self.consumed].map(|at| at.load(Ordering::Acquire))
    }

    /// The same, and for whom that speaks: of one moment.
    fn confirms(&self) -> ([Position; 3], PeerCoverage) {
        let tally = lock(&self.tally);
        (self.levels(), *tally)
    }

    /// For whom that speaks.
    pub(crate) fn count(&self) -> Coverage {
        lock(&self.tally).count()
    }
}

impl Buffer {
    pub(crate) fn new(
        bid: Bid,
        slot: u32,
        out: &Arc<ROutShared>,
        inner: &Arc<ContextInner>,
        source: Option<Weak<InboundShared>>,
        keep_until_delivered: bool,
    ) -> Self {
        Self {
            bid,
            slot,
            out: Arc::downgrade(out),
            inner: inner.clone(),
            log: OnceLock::new(),
            writer: Mutex::default(),
            source,
            parked: Mutex::default(),
            watch: AtomicU64::new(0),
            places: Mutex::default(),
            suppress_notify: AtomicU64::new(0),
            keep_until_delivered,
            landed_bytes: AtomicU64::new(0),
            looked_at: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            end: Mutex::default(),
            has_end: AtomicBool::new(false),
            contexts: Contexts::default(),
            ended_told: AtomicBool::new(false),
            ends_above: AtomicBool::new(false),
            waits: Waits::default(),
            progressed: EventCount::default(),
            watched: ProgressWatch::default(),
            times: Times::default(),
            terms: Mutex::default(),
            rest: Rest::default(),
        }
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// A subscription counts from here on. One of the same name, live or kept, is what it goes on with: that counts no
    /// more from the same moment; `anew` says that it does not go on with what that one had. If it `wants` a place that is
    /// that one's, or another if there is one. Returns the place that was kept, and what was held: to be dropped when the
    /// new one holds.
    pub(crate) fn add_sub(
        &self,
        sub: Arc<SubShared>,
        anew: bool,
        (kept, wants): (&DurableSlots, bool),
    ) -> (Option<Held>, Option<Hold>) {
        let bit = 1 << sub.worker;
        let mut places = lock(&self.places);
        let (mut held, mut hold) = (None, None);
        if !sub.name.is_empty() {
            held = places.held.remove(&sub.name);
            let live = places.subs.iter().position(|s| s.name == sub.name);
            let live = live.map(|at| places.subs.swap_remove(at));
            hold = live.as_ref().and_then(|live| lock(&live.hold).take());
            kept.are_back(usize::from(held.is_some()));
            let live_has = live.as_ref().is_some_and(|live| live.placed.swap(false, Ordering::Relaxed));
            let had = usize::from(held.is_some()) + usize::from(live_has);
            kept.give_back(had.saturating_sub(usize::from(wants)));
            sub.placed.store(wants && (had > 0 || kept.take()), Ordering::Relaxed);
            if anew {
                let counts =
                    held.iter().map(|held| held.tally.count()).chain(live.iter().map(|live| live.count()));
                places.past = counts.fold(places.past, |past, count| past.and(count.gone()));
            }
        }
        places.subs.push(sub);
        drop(places);
        self.suppress_notify.store(0, Ordering::Relaxed);
        self.watch.fetch_or(bit, Ordering::Relaxed);
        // Meets the one in `notify_or_send`: either the worker sees what was delivered, or whoever delivers sees the worker.
        // Also where `resume_notify` has just ended `suppress_notify`: whoever delivers may not have heard that yet.
        barrier::heavy();
        // What it is spliced from may have something to tell upstream.
        if let Some(source) = self.upstream() {
            source.on_downstream_progress(self);
        }
        (held, hold)
    }

    /// Forgets a subscription: its place is kept, if it has one or one is free by now, or counts for nothing any more.
    /// Whether it is kept; none if another one of its name has it already.
    pub(crate) fn remove_sub(
        self: &Arc<Self>,
        (conn, wire): (u64, WireId),
        leaving: Leaving,
        kept: Option<&DurableSlots>,
    ) -> Option<bool> {
        let mut places = lock(&self.places);
        let at = places.subs.iter().rposition(|s| s.conn == conn && s.wire == wire)?;
        let gone = places.subs.swap_remove(at);
        let placed = gone.placed.swap(false, Ordering::Relaxed);
        let keeps = match (leaving, kept) {
            (Leaving::Kept(mut held), Some(kept)) if !places.over && (placed || kept.take()) => {
                kept.leaves();
                if held.counts() {
                    held.hold = lock(&gone.hold).take();
                } else {
                    held.tally = PeerCoverage::default();
                    places.past = places.past.and(gone.count().gone());
                }
                places.held.insert(gone.name.clone(), held);
                true
            }
            (_, kept) => {
                if let (true, Some(kept)) = (placed, kept) {
                    kept.give_back(1);
                }
                places.past = places.past.and(gone.count().gone());
                false
            }
        };
        if !places.subs.iter().any(|s| s.worker == gone.worker) {
            self.watch.fetch_and(!(1 << gone.worker), Ordering::Relaxed);
        }
        drop(places);
        // Releases what it held, unless the place was handed to a held subscription.
        drop(lock(&gone.hold).take());
        self.on_progress();
        Some(keeps)
    }

    /// Whether the buffer was removed from its rOut.
    pub(crate) fn is_removed(&self) -> bool {
        lock(&self.places).over
    }

    /// The buffer was removed: no place is kept in it any more. Returns how many were.
    pub(crate) fn keep_no_more(self: &Arc<Self>) -> usize {
        lock(&self.places).over = true;
        self.drop_held(|_| false).0
    }

    pub(crate) fn subs(&self) -> Vec<Arc<SubShared>> {
        lock(&self.places).subs.clone()
    }

    pub(crate) fn sub_count(&self) -> usize {
        lock(&self.places).subs.len()
    }

    /// What is known of a subscription of this name.
    pub(crate) fn known(&self, name: &[u8]) -> Option<Known> {
        let places = lock(&self.places);
        if let Some(held) = places.held.get(name) {
            let holds = held.hold.as_ref().map(Hold::position);
            let (levels, tally, whole) = (held.levels, held.tally, held.whole);
            return Some(Known { levels, tally, holds, whole, live: None });
        }
        let sub = places.subs.iter().find(|sub| sub.name == name)?;
        let holds = lock(&sub.hold).as_ref().map(Hold::position);
        let ((levels, tally), whole) = (sub.confirms(), sub.whole.load(Ordering::Acquire));
        Some(Known { levels, tally, holds, whole, live: Some((sub.conn, sub.worker)) })
    }

    /// Everything below has landed with every subscriber present; with none, everything written.
    pub(crate) fn min_landed(&self) -> Position {
        let head = self.log().map_or(0, |log| log.ring.head());
        let places = lock(&self.places);
        let held = places.waited_for().map(|held| held.levels[0]).min().unwrap_or(head);
        let landed = |sub: &Arc<SubShared>| sub.landed.load(Ordering::Acquire);
        places.subs.iter().map(landed).min().unwrap_or(head).min(held).min(head)
    }

    /// Shows every place that counts, and returns for whom all of them speak.
    pub(crate) fn each_place(&self, mut show: impl FnMut([Position; 3])) -> Coverage {
        let places = lock(&self.places);
        let held = places.waited_for().map(|held| held.levels[2]);
        let least = places.subs.iter().map(|sub| sub.consumed.load(Ordering::Relaxed)).chain(held).min();
        // Nobody upstream is a ring further behind, and asks for what lies below.
        let floor = least.unwrap_or(0).saturating_sub(self.log().map_or(0, |log| log.ring.capacity()));
        let mut count = places.past;
        for held in places.waited_for() {
            show(held.levels);
            count = count.and_above(held.tally.count(), floor);
        }
        for sub in &places.subs {
            let (levels, tally) = sub.confirms();
            show(levels);
            count = count.and_above(tally.count(), floor);
        }
        count
    }

    /// Those who count no more.
    pub(crate) fn past_count(&self) -> Coverage {
        lock(&self.places).past
    }

    /// The places that are kept, as they are now.
    pub(crate) fn each_held<R>(&self, of: impl Fn(&[u8], &Held) -> R) -> Vec<R> {
        lock(&self.places).held.iter().map(|(name, held)| of(name, held)).collect()
    }

    /// Gives up places that are not to be kept; returns how many, and when the next of the others ends.
    pub(crate) fn drop_held(self: &Arc<Self>, keep: impl Fn(&Held) -> bool) -> (usize, Option<Nanos>) {
        let (mut gone, mut past, mut next) = (Vec::new(), Coverage::default(), None);
        let mut places = lock(&self.places);
        places.held.retain(|_, held| {
            let keeps = keep(held);
            if keeps {
                next = Some(next.map_or(held.until, |at: Nanos| at.min(held.until)));
            } else {
                past = past.and(held.tally.count().gone());
                gone.push(held.hold.take());
            }
            keeps
        });
        places.past = places.past.and(past);
        drop(places);
        // Released outside the lock: that may wake a writer.
        let count = gone.len();
        drop(gone);
        if count > 0 {
            self.on_progress();
            // A writer may be among those who work.
            self.notify();
        }
        (count, next)
    }

    /// Whether nobody subscribes and no place is kept.
    pub(crate) fn is_abandoned(&self) -> bool {
        let places = lock(&self.places);
        places.subs.is_empty() && places.held.is_empty()
    }

    /// A subscriber moved on, came or went: whoever waits looks again.
    pub(crate) fn on_progress(self: &Arc<Self>) {
        // One for all that look after this.
        let moved = barrier::full();
        self.progressed.notify_all(moved);
        self.tell_progress(moved);
        self.let_go(moved);
        // What it is spliced from may have something to tell upstream.
        if let Some(source) = self.upstream() {
            source.on_downstream_progress(self);
        }
    }

    /// What it is spliced from, as long as that is there.
    pub(crate) fn upstream(&self) -> Option<Arc<InboundShared>> {
        self.source.as_ref().and_then(Weak::upgrade)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.end_rest();
        self.inner.free_slot(self.slot);
    }
}

/// Sums of bytes that never fall: two readings give a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Written.
    pub received_bytes: u64,
    /// In the memory of subscribers, of all that there ever were.
    pub delivered_bytes: u64,
    /// Lost by subscribers that were too slow for their policy.
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
    /// What went through it so far.
    pub(crate) fn traffic(&self) -> Traffic {
        let dropped_bytes = self.dropped_bytes.load(Ordering::Relaxed);
        // A subscriber's position passes over what it lost, and does so later than the loss is counted.
        let delivered_bytes = self.landed_bytes.load(Ordering::Relaxed).saturating_sub(dropped_bytes);
        let received = self.log().map_or(0, |log| log.ring.head().saturating_sub(log.ring.start()));
        Traffic { received_bytes: received, delivered_bytes, dropped_bytes }
    }

    /// The least number of receivers of what it is spliced from, and where that begins which they do not have.
    pub(crate) fn least(&self) -> (u32, Option<Position>) {
        let Some(source) = self.upstream().filter(|source| source.min_receivers.is_any()) else {
            return (0, None);
        };
        let kept = lock(&source.state).log.as_ref().and_then(|in_log| held_at(in_log.kept.as_ref()));
        (source.min_receivers.receivers(), kept)
    }
}

pub(crate) fn held_at(hold: Option<&Hold>) -> Option<Position> {
    hold.map(Hold::position)
}
