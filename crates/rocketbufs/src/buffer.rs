//! One buffer of an rOut: its log, its subscribers, who waits for them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rocketring::{Hold, Ring, Writer};

use crate::context::{ContextInner, lock};
use crate::core::{Command, Parked};
use crate::inbound::InboundShared;
use crate::progress::ProgressWatch;
use crate::proto::{End, Outbound};
use crate::rout::ROutShared;
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
    /// The local writer, unless it was taken by a [`BufWriter`](crate::BufWriter) or the buffer is spliced.
    pub(crate) writer: Mutex<Option<Writer>>,
    /// What it is spliced from.
    pub(crate) source: Option<Weak<InboundShared>>,
    /// Subscriptions that came before the log was known.
    pub(crate) parked: Mutex<Vec<Parked>>,
    /// Bit n: worker n has subscribers of this buffer.
    watch: AtomicU64,
    subs: Mutex<Vec<Arc<SubShared>>>,
    /// Places kept for named subscriptions whose connection is gone. They count as subscribers: nobody is told that
    /// everybody has what they do not have.
    held: Mutex<HashMap<Vec<u8>, Held>>,
    /// What landed with all subscriptions there ever were, and what they lost: sums that never fall.
    pub(crate) landed_bytes: AtomicU64,
    pub(crate) dropped_bytes: AtomicU64,
    end: Mutex<Option<End>>,
    /// Whether there is one, for those who look at every delivery.
    has_end: AtomicBool,
    /// Contexts of deliveries that wait until they landed everywhere.
    contexts: Mutex<VecDeque<(Position, u64)>>,
    ended_told: AtomicBool,
    waiters: AtomicUsize,
    wanted_landed: AtomicU64,
    wanted_consumed: AtomicU64,
    progressed: Condvar,
    progress: Mutex<()>,
    /// Who is to be told without waiting.
    pub(crate) watched: ProgressWatch,
}

/// A place in a ring, kept until somebody of that name comes back.
pub(crate) struct Held {
    pub(crate) hold: Option<Hold>,
    pub(crate) policy: Policy,
    pub(crate) landed: Position,
    pub(crate) consumed: Position,
    pub(crate) until: Nanos,
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
    pub(crate) consumed: AtomicU64,
    pub(crate) dropped: AtomicU64,
    /// Where it began.
    pub(crate) start: Position,
    /// When it last gave anything back.
    pub(crate) progress: AtomicU64,
    /// The receiver has heard the log's end.
    pub(crate) heard_end: AtomicBool,
}

impl SubShared {
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
        self.consumed.store(outbound.consumed(), Ordering::Release);
        self.dropped.store(dropped, Ordering::Release);
        let at = outbound.holds_at();
        #[cfg(feature = "planted-bugs")]
        let at =
            if crate::planted::is(crate::planted::HOLD_AT_SENT) { at.map(|_| outbound.sent()) } else { at };
        if let (Some(at), Some(hold)) = (at, &*lock(&self.hold)) {
            hold.advance(at);
        }
    }
}

impl Buffer {
    pub(crate) fn new(
        bid: Bid,
        slot: u32,
        out: &Arc<ROutShared>,
        inner: &Arc<ContextInner>,
        source: Option<Weak<InboundShared>>,
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
            subs: Mutex::default(),
            held: Mutex::default(),
            landed_bytes: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            end: Mutex::default(),
            has_end: AtomicBool::new(false),
            contexts: Mutex::default(),
            ended_told: AtomicBool::new(false),
            waiters: AtomicUsize::new(0),
            wanted_landed: AtomicU64::new(0),
            wanted_consumed: AtomicU64::new(0),
            progressed: Condvar::new(),
            progress: Mutex::default(),
            watched: ProgressWatch::default(),
        }
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.get()
    }

    /// Tells every worker that sends this buffer that there is news. Cheap while they have not looked yet.
    #[inline]
    pub(crate) fn notify(&self) {
        // The caller's store of the head and this load meet a joining worker's store of its bit and its load of the
        // head: one of the two sees the other (PendingSet::mark orders the rest).
        std::sync::atomic::fence(Ordering::SeqCst);
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
            self.inner.workers[worker].mark(self.slot);
        }
    }

    /// The log is known now: whoever waited for it is answered, each by the worker of its connection.
    pub(crate) fn unpark(&self) {
        for parked in std::mem::take(&mut *lock(&self.parked)) {
            let worker = self.inner.worker_of(parked.conn);
            self.inner.workers[worker].send(Command::Unpark(parked));
        }
    }

    pub(crate) fn add_sub(&self, sub: Arc<SubShared>) {
        let bit = 1 << sub.worker;
        lock(&self.subs).push(sub);
        self.watch.fetch_or(bit, Ordering::SeqCst);
    }

    /// Forgets a subscription: it counts for nothing any more.
    pub(crate) fn remove_sub(self: &Arc<Self>, conn: u64, wire: WireId) {
        let mut subs = lock(&self.subs);
        let Some(at) = subs.iter().rposition(|s| s.conn == conn && s.wire == wire) else { return };
        let gone = subs.swap_remove(at);
        if !subs.iter().any(|s| s.worker == gone.worker) {
            self.watch.fetch_and(!(1 << gone.worker), Ordering::SeqCst);
        }
        drop(subs);
        // Releases what it held, unless the place was handed to a held subscription.
        drop(lock(&gone.hold).take());
        self.on_progress();
    }

    pub(crate) fn subs(&self) -> Vec<Arc<SubShared>> {
        lock(&self.subs).clone()
    }

    pub(crate) fn sub_count(&self) -> usize {
        lock(&self.subs).len()
    }

    pub(crate) fn find_named(&self, name: &[u8]) -> Option<Arc<SubShared>> {
        lock(&self.subs).iter().find(|s| s.name == name).cloned()
    }

    /// Everything below has landed with every subscriber present; with none, everything written.
    pub(crate) fn min_landed(&self) -> Position {
        self.min_of(|sub| sub.landed.load(Ordering::Acquire), |held| held.landed)
    }

    /// Everything below was consumed by every subscriber present; with none, everything written.
    pub(crate) fn min_consumed(&self) -> Position {
        self.min_of(|sub| sub.consumed.load(Ordering::Acquire), |held| held.consumed)
    }

    fn min_of(&self, of: impl Fn(&SubShared) -> Position, of_held: impl Fn(&Held) -> Position) -> Position {
        let head = self.log().map_or(0, |log| log.ring.head());
        let held = lock(&self.held).values().map(of_held).min().unwrap_or(head);
        lock(&self.subs).iter().map(|sub| of(sub)).min().unwrap_or(head).min(held).min(head)
    }

    /// Keeps a place for a named subscription.
    pub(crate) fn keep(&self, name: Vec<u8>, held: Held) {
        lock(&self.held).insert(name, held);
    }

    /// The place kept for this name.
    pub(crate) fn take_held(&self, name: &[u8]) -> Option<Held> {
        lock(&self.held).remove(name)
    }

    /// The places that are kept, as they are now.
    pub(crate) fn each_held<R>(&self, of: impl Fn(&[u8], &Held) -> R) -> Vec<R> {
        lock(&self.held).iter().map(|(name, held)| of(name, held)).collect()
    }

    /// Gives up places that are not to be kept; returns how many, and when the next of the others ends.
    pub(crate) fn drop_held(&self, keep: impl Fn(&Held) -> bool) -> (usize, Option<Nanos>) {
        let (mut gone, mut next) = (Vec::new(), None);
        lock(&self.held).retain(|_, held| {
            let keeps = keep(held);
            match keeps {
                true => next = Some(next.map_or(held.until, |at: Nanos| at.min(held.until))),
                false => gone.extend(held.hold.take()),
            }
            keeps
        });
        // Released outside the lock: that may wake a writer.
        (gone.len(), next)
    }

    /// Whether nobody subscribes and no place is kept.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.subs).is_empty() && lock(&self.held).is_empty()
    }

    pub(crate) fn end(&self) -> Option<End> {
        *lock(&self.end)
    }

    /// The log ends here. The first word counts.
    pub(crate) fn set_end(self: &Arc<Self>, end: End) {
        lock(&self.end).get_or_insert(end);
        self.has_end.store(true, Ordering::Release);
        if let Some(log) = self.log() {
            log.ring.poke();
        }
        self.notify();
        self.on_progress();
        if self.log().is_none() {
            // It will never be known.
            self.unpark();
        }
    }

    pub(crate) fn ended(&self) -> bool {
        self.has_end.load(Ordering::Acquire)
    }

    /// Whether this is the first to hear that it has drained.
    pub(crate) fn tell_ended(&self) -> bool {
        self.drained() && !self.ended_told.swap(true, Ordering::AcqRel)
    }

    /// Whether the log has ended and every subscriber present has all of it.
    pub(crate) fn drained(&self) -> bool {
        self.end().is_some_and(|end| {
            lock(&self.subs).iter().all(|sub| sub.landed.load(Ordering::Acquire) >= end.position())
                && lock(&self.held).values().all(|held| held.landed >= end.position())
        })
    }

    /// Whether the log has ended and every subscriber present has all of it and has heard so.
    pub(crate) fn everybody_heard_the_end(&self) -> bool {
        self.drained() && lock(&self.subs).iter().all(|sub| sub.heard_end.load(Ordering::Acquire))
    }

    /// Remembers the context of a delivery; `data_out_cb` gets it when everything below `end` has landed.
    pub(crate) fn push_context(self: &Arc<Self>, end: Position, context: u64) {
        lock(&self.contexts).push_back((end, context));
        self.want(end, 0);
    }

    /// With nobody there a delivery counts as landed as soon as it is visible, which it may have become with a later
    /// one; the callback still runs on a worker.
    pub(crate) fn confirm_visible(self: &Arc<Self>) {
        let first = lock(&self.contexts).front().map(|(end, _)| *end);
        if first.is_some_and(|end| self.min_landed() >= end) {
            self.inner.workers[0].send(Command::DataOut(self.clone()));
        }
    }

    pub(crate) fn contexts_pending(&self) -> usize {
        lock(&self.contexts).len()
    }

    /// Contexts whose deliveries landed everywhere.
    pub(crate) fn take_landed_contexts(&self) -> Vec<u64> {
        let mut contexts = lock(&self.contexts);
        if contexts.is_empty() {
            return Vec::new();
        }
        let landed = self.min_landed();
        #[cfg(feature = "planted-bugs")]
        let landed = if crate::planted::is(crate::planted::CONTEXT_EARLY) { Position::MAX } else { landed };
        let ready = contexts.iter().take_while(|(end, _)| *end <= landed).count();
        contexts.drain(..ready).map(|(_, context)| context).collect()
    }

    fn want(&self, landed: Position, consumed: Position) {
        self.wanted_landed.fetch_max(landed, Ordering::SeqCst);
        self.wanted_consumed.fetch_max(consumed, Ordering::SeqCst);
    }

    /// Somebody upstream asked how far this is consumed.
    pub(crate) fn want_consumed(&self, consumed: Position) {
        self.want(0, consumed);
        self.notify();
    }

    /// Positions that somebody waits for: `(landed, consumed)`. A writer without room waits for everything.
    pub(crate) fn wanted(&self) -> (Position, Position) {
        let writer_waits = self.log().is_some_and(|log| log.ring.writer_waits());
        let landed = if writer_waits { Position::MAX } else { self.wanted_landed.load(Ordering::SeqCst) };
        (landed, self.wanted_consumed.load(Ordering::SeqCst))
    }

    /// A subscriber moved on, came or went: whoever waits looks again.
    pub(crate) fn on_progress(self: &Arc<Self>) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.progress));
            self.progressed.notify_all();
        }
        self.tell_progress();
        if let Some(source) = self.source.as_ref().and_then(Weak::upgrade) {
            source.on_downstream_progress(self);
        }
    }

    /// Waits until `confirmed()` reaches `position`; the position reached if it does not within `timeout`.
    pub(crate) fn wait_until(
        &self,
        want: (Position, Position),
        timeout: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        self.waiters.fetch_add(1, Ordering::SeqCst);
        self.want(want.0, want.1);
        self.notify();
        let mut guard = lock(&self.progress);
        let reached = loop {
            if done(self) {
                break true;
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                break false;
            }
            guard = self.progressed.wait_timeout(guard, left).unwrap_or_else(|p| p.into_inner()).0;
        };
        drop(guard);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        reached
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.inner.free_slot(self.slot);
    }
}
