//! The needs of an effect besides its connection: the transport, the time, and the schedule of a
//! worker.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use peers::{HostAddress, Strangers};
use rocketnet::{ConnId, Transport};
use rustc_hash::FxHashMap;

use super::idle::Idle;
use super::in_linger::Lingering;
use super::rate_limit_state::Limiting;
use crate::ground::types::{Nanos, WireId};
use crate::proto::{Message, Pauses, Session};
use crate::state::{ConnShared, ContextInner, ContextShared, Request, SubscriptionShared, Worker};

/// The interval of checks of the connections while a subscription may hold others up.
pub(super) const TICK: Nanos = 250_000_000;
/// Deadline for reports to peers that follow: those peers see new data by themselves. The deadline covers
/// lost doorbells.
const UNREPORTED: Nanos = 10_000_000;

/// A worker's transport, time and schedule, see [the module](self).
pub(super) struct WorkerContext<T: Transport> {
    pub(super) context: Arc<ContextShared>,
    pub(super) inner: Arc<ContextInner>,
    pub(super) shared: Arc<Worker>,
    pub(super) transport: T,
    pub(super) now: Nanos,
    /// When there was last work.
    pub(super) busy_at: Nanos,
    /// Connections that have something to send this turn, in order of arrival.
    pub(super) dirty: VecDeque<ConnId>,
    /// Reports to peers that follow, and connections that a rate limit delays.
    pub(super) deferred: Deferred,
    pub(super) next_tick: Nanos,
    /// A subscription had news since the last tick, or holds others up.
    pub(super) fast_ticks: bool,
    /// The connections and subscriptions to look at when a buffer or a subscription is marked as pending.
    pub(super) slots: Slots,
    /// Rings that move, and rings at rest.
    pub(super) idle: Idle,
    /// Subscriptions that wait for their writer to come back.
    pub(super) lingering: Lingering,
    /// Accepted connections whose peers have sent no valid HELLO. All local peers count as one host.
    pub(super) strangers: Strangers<Option<HostAddress>, ConnId>,
    /// Connections that were refused, and are not gone yet since their peers may read BYE.
    pub(super) refusals: usize,
}

/// The part of a connection that sending needs, whatever is sent.
pub(super) struct SendState {
    pub(super) id: ConnId,
    pub(super) shared: Arc<ConnShared>,
    pub(super) session: Session,
    pub(super) phase: LinkPhase,
    /// Subscriptions with something to send, in the order of their turns.
    pub(super) ready: VecDeque<WireId>,
    pub(super) dirty: bool,
    /// The pauses between sends.
    pub(super) pauses: Pauses,
    /// Control messages of the application that wait until the peer reads, with the bytes that each counts in
    /// the limit.
    pub(super) app: VecDeque<(Vec<u8>, usize)>,
    /// Bytes of control messages that were queued since the last flush.
    pub(super) app_unflushed: usize,
    /// The rate limits, if there are any.
    pub(super) limiting: Option<Box<Limiting>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkPhase {
    Connecting,
    /// Accepted; HELLO has not arrived.
    Fresh,
    /// Waits for its role from the application; nothing is read.
    Offered,
    /// HELLO was sent; WELCOME has not arrived.
    Greeting,
    Up,
    Closing,
}

impl<T: Transport> WorkerContext<T> {
    pub(super) fn new(context: Arc<ContextShared>, shared: Arc<Worker>, transport: T) -> Self {
        let inner = context.inner.clone();
        let idle = Idle::new(&inner.config, shared.index, inner.workers.len());
        let lingering = Lingering::new(inner.config.session.linger_ms);
        Self {
            context,
            inner,
            shared,
            transport,
            slots: Slots::default(),
            idle,
            lingering,
            now: 0,
            busy_at: 0,
            dirty: VecDeque::new(),
            deferred: Deferred::default(),
            next_tick: 0,
            fast_ticks: false,
            strangers: Strangers::default(),
            refusals: 0,
        }
    }

    /// Queues a control message and has the connection flushed at the end of the turn.
    pub(super) fn send(&mut self, line: &mut SendState, message: &Message) {
        self.send_bytes(line, &message.encode());
    }

    pub(super) fn send_bytes(&mut self, line: &mut SendState, bytes: &[u8]) {
        line.session.spoke(self.now);
        // One turn may answer thousands of subscriptions, so the queue only counts as full if it stays full
        // after a flush.
        let full = self.transport.control(line.id, bytes).is_err() && {
            self.transport.flush(line.id);
            self.transport.control(line.id, bytes).is_err()
        };
        if full {
            self.transport.close(line.id, "it reads no control messages", Duration::ZERO);
            return;
        }
        self.mark_dirty(line);
    }

    /// Starts the linger time of a subscription that lost its connection, or that had none yet.
    pub(super) fn begin_linger(&mut self, subscription: &Arc<SubscriptionShared>) {
        if let Some(gone_at) = self.lingering.begin(subscription, self.now) {
            self.next_tick = self.next_tick.min(gone_at);
        }
    }

    /// Schedules the expiry of a durable cursor. The first worker handles all of them.
    pub(super) fn look_at_held(&mut self, until: Nanos) {
        match self.shared.index {
            0 => self.next_tick = self.next_tick.min(until),
            _ => self.inner.workers[0].request(Request::LookAt(until)),
        }
    }

    /// Returns the pause between sends that a thread needs to send by itself.
    pub(super) fn inline_idle(&self) -> Nanos {
        Nanos::from(self.inner.config.tcp.inline_idle_us) * 1_000
    }

    /// Schedules the connection to send this turn.
    pub(super) fn mark_dirty(&mut self, line: &mut SendState) {
        if !std::mem::replace(&mut line.dirty, true) {
            self.dirty.push_back(line.id);
        }
    }

    /// Records news of a subscription. Only news can make others wait for it, so no subscription is checked
    /// until then.
    pub(super) fn mark_busy(&mut self) {
        if !std::mem::replace(&mut self.fast_ticks, true) {
            self.next_tick = self.next_tick.min(self.now + self.interval(true));
        }
    }

    /// Returns the time between two checks of the connections. `hurry`: a subscription may hold others up.
    pub(super) fn interval(&self, hurry: bool) -> Nanos {
        let session = &self.inner.config.session;
        // A silent peer gets PING after a third of the silence that it is allowed.
        let looks = [(session.heartbeat_ms, 4), (session.max_silence_ms, 12)];
        let looks = looks.into_iter().filter(|(ms, _)| *ms > 0);
        let calm = looks.map(|(ms, parts)| (Nanos::from(ms) * 1_000_000 / parts).max(1_000_000)).min();
        calm.unwrap_or(4 * TICK).min(if hurry { TICK } else { 4 * TICK })
    }
}

/// A subscription on one of the worker's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SubscriptionKey {
    pub(super) conn: ConnId,
    pub(super) wire: WireId,
}

/// The users of one slot.
pub(super) enum SlotUse {
    /// The slot of a buffer: the subscriptions of peers that send it.
    Outs(Vec<SubscriptionKey>),
    /// The slot of a subscription of this end.
    In(SubscriptionKey),
}

/// The users of a worker's slots.
#[derive(Default)]
pub(super) struct Slots(FxHashMap<u32, SlotUse>);

impl Slots {
    pub(super) fn get(&self, slot: u32) -> Option<&SlotUse> {
        self.0.get(&slot)
    }

    /// Returns the subscriptions of peers that send the buffer with this slot.
    pub(super) fn outs(&self, slot: u32) -> &[SubscriptionKey] {
        match self.0.get(&slot) {
            Some(SlotUse::Outs(outs)) => outs,
            _ => &[],
        }
    }

    /// Returns the only subscription that sends a buffer, if there is only one.
    pub(super) fn only_out(&self, slot: u32) -> Option<SubscriptionKey> {
        match self.outs(slot) {
            [only] => Some(*only),
            _ => None,
        }
    }

    pub(super) fn add_out(&mut self, slot: u32, key: SubscriptionKey) {
        match self.0.entry(slot).or_insert_with(|| SlotUse::Outs(Vec::new())) {
            SlotUse::Outs(outs) => outs.push(key),
            stale => *stale = SlotUse::Outs(vec![key]),
        }
    }

    pub(super) fn remove_out(&mut self, slot: u32, key: SubscriptionKey) {
        let Some(SlotUse::Outs(outs)) = self.0.get_mut(&slot) else { return };
        // From the end, where a connection that goes with many subscriptions removes them.
        if let Some(index) = outs.iter().rposition(|out| *out == key) {
            outs.remove(index);
        }
        if outs.is_empty() {
            self.0.remove(&slot);
        }
    }

    pub(super) fn set_in(&mut self, slot: u32, key: SubscriptionKey) {
        self.0.insert(slot, SlotUse::In(key));
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.0.remove(&slot);
    }
}

/// The deferred work of a worker: reports of new data to peers that follow, which see the data by themselves, and the transfers and
/// credit of connections that a rate limit delays.
pub(super) struct Deferred {
    /// When there is something to do; the last time there is without anything.
    pub(super) due: Nanos,
    reports_due: Nanos,
    reports: Vec<SubscriptionKey>,
    delayed: BTreeSet<(Nanos, ConnId)>,
}

impl Default for Deferred {
    fn default() -> Self {
        Self { due: Nanos::MAX, reports_due: Nanos::MAX, reports: Vec::new(), delayed: BTreeSet::new() }
    }
}

impl Deferred {
    /// Defers the report of a subscription's news.
    pub(super) fn report(&mut self, key: SubscriptionKey, now: Nanos) {
        self.reports.push(key);
        self.reports_due = self.reports_due.min(now.saturating_add(UNREPORTED));
        self.due = self.due.min(self.reports_due);
    }

    /// Takes the subscriptions whose reports are due.
    pub(super) fn take_reports(&mut self, now: Nanos) -> Vec<SubscriptionKey> {
        if now < self.reports_due {
            return Vec::new();
        }
        self.reports_due = Nanos::MAX;
        let reports = std::mem::take(&mut self.reports);
        self.look_again();
        reports
    }

    /// Delays a connection until then.
    pub(super) fn delay(&mut self, conn: ConnId, until: Nanos) {
        self.delayed.insert((until, conn));
        self.due = self.due.min(until);
    }

    /// Takes a connection whose delay is over.
    pub(super) fn take_delayed(&mut self, now: Nanos) -> Option<ConnId> {
        let &(until, _) = self.delayed.first()?;
        let (_, conn) = if until <= now { self.delayed.pop_first()? } else { return None };
        self.look_again();
        Some(conn)
    }

    /// Forgets the delays of a connection until these times.
    pub(super) fn forget(&mut self, conn: ConnId, times: impl Iterator<Item = Nanos>) {
        for until in times {
            self.delayed.remove(&(until, conn));
        }
        self.look_again();
    }

    /// Returns when the next delay ends.
    pub(super) fn next_delay_end(&self) -> Option<Nanos> {
        self.delayed.first().map(|(until, _)| *until)
    }

    fn look_again(&mut self) {
        let delayed = self.delayed.first().map_or(Nanos::MAX, |(until, _)| *until);
        self.due = self.reports_due.min(delayed);
    }
}
