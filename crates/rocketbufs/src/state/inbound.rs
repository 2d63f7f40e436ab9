//! One subscription of an rIn: its log, and what the application has read and released.
//!
//! ```text
//!      consumed     pins        read      boundary   head
//!  ───────┼──────────┼───────────┼───────────┼────────┼──▶
//!   given │   shown by views     │ not yet   │ part of│
//!   back  │   that are alive     │ handed out│ a del. │
//! ```
//!
//! The application's hold in the ring is at the smallest of `consumed` and every live view. In a spliced
//! subscription the application holds only what was not reported to it yet; the subscribers downstream hold
//! the rest.

mod allocation;
mod reading;
mod receive_log;
mod remote_id;
mod watchers;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rocketring::{Hold, LazyCursor, Ring, RingReceiver, View};

use crate::error::{RecvError, RefusedError};
use crate::events::InEvent;
use crate::lock::lock;
use crate::options::{ConfirmMode, SubscribeOptions};
use crate::proto::{Coverage, End, Inbound};
use crate::state::{Buffer, Calls, Command, ContextInner, Log, MinReceivers, RInShared, Rest};
use crate::types::{Bid, Epoch, Nanos, Position, WireId};

pub(crate) use allocation::{AllocationStep, CreditAllocation};
pub(crate) use reading::Readable;
pub(crate) use remote_id::RemoteId;
pub(crate) use watchers::Watchers;

pub(crate) struct InboundShared {
    pub(crate) bid: Bid,
    /// The id of the buffer at the peer.
    pub(crate) remote_id: RemoteId,
    pub(crate) slot: u32,
    pub(crate) rin: Weak<RInShared>,
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) options: SubscribeOptions,
    pub(crate) state: Mutex<InState>,
    /// Whether the subscription is in its rIn's queue of subscriptions with something to receive.
    pub(crate) queued: AtomicBool,
    pub(crate) rest: Rest,
    /// The downstream readers of the ring.
    pub(crate) watchers: Mutex<Watchers>,
    /// The least number of receivers that a spliced subscription waits for before it confirms.
    pub(crate) min_receivers: MinReceivers,
    spliced: Mutex<Option<Weak<Buffer>>>,
    is_spliced: AtomicBool,
}

#[derive(Default)]
pub(crate) struct InState {
    pub(crate) log: Option<ReceiveLog>,
    /// The connection and the wire id under which data arrives; `None` while suspended.
    pub(crate) wire: Option<(u64, WireId)>,
    /// The deadline after which the writer counts as gone, while no connection brings its data. Each lost
    /// connection sets a new deadline, which makes one that another worker still waits for void.
    pub(crate) gone_at: Option<Nanos>,
    pub(crate) ending: Option<Ending>,
    pub(crate) ending_told: bool,
    /// The connection over which the subscription resumes once the old one has returned the ring receiver.
    pub(crate) resume_on: Option<u64>,
    /// The application has unsubscribed, or the subscription is over.
    pub(crate) done: bool,
    /// Whether application threads may land data from mapped memory (`crate::rin`). Always false without a
    /// connection.
    pub(crate) looked_at: bool,
}

/// The log of an accepted subscription.
pub(crate) struct ReceiveLog {
    pub(crate) log: Log,
    pub(crate) credit: Inbound,
    /// The ring receiver while no connection has it.
    pub(crate) receiver: Option<RingReceiver>,
    /// Report only released bytes as landed (`ConfirmMode::OnConsume`).
    pub(crate) confirm_consumed: bool,
    /// Whether the sender holds unreleased bytes while the connection is gone: the subscription is durable.
    pub(crate) place_kept: bool,
    /// The most bytes of one view (`SubscribeOptions::max_view_bytes`).
    pub(crate) max_view_bytes: u64,
    /// The share of a budget, for a subscription that has a ring only while there is data.
    pub(crate) allocation: Option<CreditAllocation>,
    /// What the application reports of forwarded data (`ConfirmMode::Relayed`).
    relayed: Option<Relayed>,
    hold: Option<Hold>,
    /// Holds data until enough receivers have it (`SubscribeOptions::min_receivers`).
    pub(crate) kept: Option<Hold>,
    /// The subscription has every byte from here on.
    pub(crate) covered_from: Position,
    consumed: Position,
    read: Position,
    pins: Vec<Position>,
    /// The cursor of the reader that reads the subscription alone. `consumed` and `read` catch up with it on
    /// demand.
    reader: Option<Arc<LazyCursor>>,
}

/// Up to where forwarded data is confirmed.
#[derive(Debug, Clone, Copy)]
struct Relayed {
    delivered: Position,
    consumed: Position,
    coverage: Coverage,
}

/// How a subscription ends. The end is reported after all data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    End(End),
    /// The writer was restarted and has another log.
    Restarted(Epoch),
    Refused(RefusedError),
}

/// Data that an application thread landed itself.
pub(crate) enum Followed {
    Data {
        view: View,
        epoch: Epoch,
        /// Whether there is more.
        more: bool,
    },
    Other(Item),
}

impl Followed {
    /// Returns the number of bytes in it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data { view, .. } => view.len(),
            Self::Other(_) => 0,
        }
    }
}

/// The next thing that a subscription reports, in order.
pub(crate) enum Item {
    /// A range of whole deliveries.
    Data(Position, Position),
    /// One delivery of an overwritable buffer: its payload.
    Payload {
        from: Position,
        to: Position,
        next: Position,
    },
    Lost(Position, Position),
    Ending(Ending),
}

impl InboundShared {
    pub(crate) fn new(
        bid: Bid,
        slot: u32,
        rin: &Arc<RInShared>,
        inner: &Arc<ContextInner>,
        options: SubscribeOptions,
    ) -> Self {
        Self {
            bid,
            remote_id: RemoteId::new(options.remote_id.unwrap_or(bid)),
            slot,
            rin: Arc::downgrade(rin),
            inner: inner.clone(),
            min_receivers: MinReceivers::new(options.min_receivers),
            options,
            state: Mutex::default(),
            queued: AtomicBool::new(false),
            rest: Rest::default(),
            watchers: Mutex::default(),
            spliced: Mutex::default(),
            is_spliced: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_spliced(&self) -> bool {
        self.is_spliced.load(Ordering::Acquire)
    }

    pub(crate) fn spliced_to(&self) -> Option<Arc<Buffer>> {
        if !self.is_spliced() {
            return None;
        }
        lock(&self.spliced).as_ref().and_then(Weak::upgrade)
    }

    /// Hands the ring over to the subscribers of `buffer`. The application holds only what was not reported
    /// yet: ranges are forwarded before they are complete, so without this hold the subscribers alone could
    /// let more than one ring of data arrive between two calls.
    pub(crate) fn splice_to(&self, buffer: &Arc<Buffer>) -> bool {
        let mut spliced = lock(&self.spliced);
        // Subscribers of a destroyed buffer may still read the ring.
        if spliced.as_ref().and_then(Weak::upgrade).is_some_and(|old| !old.is_removed()) {
            return false;
        }
        *spliced = Some(Arc::downgrade(buffer));
        self.is_spliced.store(true, Ordering::Release);
        drop(spliced);
        let mut state = lock(&self.state);
        // The subscription may have been left meanwhile. The leaving thread may have looked for the buffer
        // before the splice stored it, and no other thread would end the buffer.
        if state.done || state.log.as_ref().is_some_and(ReceiveLog::is_read_alone) {
            drop(state);
            self.is_spliced.store(false, Ordering::Release);
            *lock(&self.spliced) = None;
            return false;
        }
        if let Some(in_log) = &mut state.log {
            in_log.ring().set_relayed();
            let _ = buffer.log.set(in_log.log.clone());
        }
        let ending = state.ending.clone();
        let boundary = state.log.as_ref().map_or(0, |in_log| in_log.ring().boundary());
        let wire = state.wire;
        drop(state);
        match wire {
            Some((conn, _)) => self.inner.workers[self.inner.worker_of(conn)].mark(self.slot),
            // The connection may have gone while the subscription was not spliced; the writer's absence
            // starts now.
            None => self.resume(self.rin.upgrade().map(|rin| rin.conn().id)),
        }
        if buffer.log().is_some() {
            buffer.unpark();
        }
        match ending {
            None => {}
            Some(Ending::End(end)) => buffer.set_end(end),
            Some(Ending::Restarted(_) | Ending::Refused(_)) => buffer.set_end(End::Gone(boundary)),
        }
        if buffer.ended() {
            // Without a subscriber no other event reports the end.
            self.inner.workers[0].send(Command::Reap(buffer.clone()));
        }
        true
    }

    fn is_spliced_to(&self, buffer: &Buffer) -> bool {
        self.spliced_to().is_some_and(|spliced| std::ptr::eq(&raw const *spliced, buffer))
    }

    /// Handles progress of a downstream subscriber, which may allow credit upstream.
    pub(crate) fn on_downstream_progress(&self, buffer: &Buffer) {
        let state = lock(&self.state);
        let Some(in_log) = &state.log else { return };
        if buffer.ended() && !self.is_spliced_to(buffer) {
            // The last subscribers of a destroyed buffer hold the ring, but confirm nothing any more.
            if let Some((conn, _)) = state.wire {
                self.inner.workers[self.inner.worker_of(conn)].mark(self.slot);
            }
            return;
        }
        in_log.keep_for(buffer);
        let Some((conn, _)) = state.wire else { return };
        let now = in_log.credit_now(Some(buffer));
        let worker = self.inner.worker_of(conn);
        let due = in_log.credit.is_due(&now);
        drop(state);
        if due || buffer.ended() || self.rest.is_owed() {
            self.inner.workers[worker].mark(self.slot);
        }
    }

    /// Returns the next thing to report and moves `read` past it. Data stays in the ring until it is
    /// released.
    pub(crate) fn next_item(&self, pin: bool) -> Option<Item> {
        let mut state = lock(&self.state);
        if state.done {
            // Unread data of an unsubscribed subscription is dropped; the next subscription owns the buffer's
            // name.
            return None;
        }
        let (spliced, wire, ending) = (self.is_spliced(), state.wire, state.ending.is_some());
        if let Some(in_log) = &mut state.log {
            if !in_log.catch_up() {
                return None;
            }
            let consumed = in_log.consumed;
            if let Some(item) = in_log.next_item(pin, spliced) {
                // Reading a hole releases it, and so does reading a payload that is copied out anyway. The
                // worker reports progress of a spliced subscription.
                let gave = in_log.consumed != consumed && !spliced;
                let calls = if gave { in_log.look_drained() } else { Calls::default() };
                let due = gave && (ending || in_log.credit_due());
                let resumes = state.resumes();
                drop(state);
                calls.run();
                self.tell_worker(due, wire);
                self.resume(resumes);
                return Some(item);
            }
        }
        if state.ending_told {
            return None;
        }
        let ending = state.ending.clone()?;
        let read = state.log.as_ref().map_or(0, |l| l.read);
        if let Ending::End(end) = &ending
            && state.log.is_some()
            && read < end.position()
        {
            return None;
        }
        state.ending_told = true;
        Some(Item::Ending(ending))
    }

    /// Lands what the ring has and takes the next thing to report. Without either, returns the ring to wait
    /// on.
    #[inline]
    pub(crate) fn follow(&self) -> (Option<Followed>, Option<Ring>) {
        let mut state = lock(&self.state);
        if !state.looked_at || state.done || state.ending.is_some() || self.is_spliced() {
            return (None, None);
        }
        let wire = state.wire;
        let Some(in_log) = &mut state.log else { return (None, None) };
        if in_log.is_read_alone() {
            return (None, None);
        }
        if !in_log.ring().has_new_data() || !in_log.ring().follow() {
            return (None, Some(in_log.ring().clone()));
        }
        let item = in_log.next_item(true, false);
        let taken = item.map(|item| match item {
            Item::Data(from, to) => {
                let Log { ring, epoch } = &in_log.log;
                Followed::Data { view: ring.view(from, to), epoch: *epoch, more: ring.boundary() > to }
            }
            other => Followed::Other(other),
        });
        let due = in_log.credit_due() || !self.rest.is_moving();
        drop(state);
        self.tell_worker(due, wire);
        (taken, None)
    }

    /// Returns whether [`InboundShared::next_item`] would return something.
    pub(crate) fn has_item(&self) -> bool {
        let mut state = lock(&self.state);
        if state.done {
            return false;
        }
        if let Some(l) = &mut state.log {
            l.catch_up();
            let ring = &l.log.ring;
            if ring.boundary() > l.read || ring.gap_after(l.read).is_some_and(|gap| gap.from <= l.read) {
                return true;
            }
        }
        state.ending.is_some() && !state.ending_told
    }

    /// Returns whether the application has received the end. The same buffer can be subscribed to again then.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).ending_told
    }

    /// Returns whether the subscription is over and all of its data was released.
    pub(crate) fn is_finished(&self) -> bool {
        let mut state = lock(&self.state);
        if let Some(in_log) = &mut state.log {
            in_log.catch_up();
        }
        let given_back = match (&state.ending, &state.log) {
            (Some(Ending::End(end)), Some(in_log)) => {
                let consumed = in_log.relayed.map_or(in_log.consumed, |relayed| relayed.consumed);
                consumed >= end.position() || self.is_spliced()
            }
            _ => true,
        };
        state.ending_told && given_back
    }

    /// Releases `size` bytes, oldest first (`data_consumed`).
    pub(crate) fn consume(&self, size: u64) -> Result<(), RecvError> {
        self.update(|in_log| {
            let boundary = in_log.reached();
            let mut left = size;
            let mut to = in_log.consumed;
            while let Some(gap) = in_log.log.ring.gap_after(to) {
                let before = gap.from.saturating_sub(to);
                if left <= before {
                    break;
                }
                left -= before;
                to = gap.to;
            }
            let received = boundary.saturating_sub(in_log.consumed);
            if left > boundary.saturating_sub(to) {
                return Err(RecvError::TooMuch { size, received });
            }
            in_log.give_back(to + left);
            Ok(())
        })
        .unwrap_or(Err(RecvError::NotSubscribed(self.bid)))
    }

    /// Passes on that the sender waits for these confirmations.
    pub(crate) fn want_confirmed(self: &Arc<Self>, [_, delivered, consumed]: [Position; 3]) {
        if delivered.max(consumed) == 0 {
            return;
        }
        if let Some(buffer) = self.spliced_to() {
            // Delivery requires that the data has landed at the relays downstream, which report that in the
            // same message.
            buffer.want([0, delivered, consumed]);
        } else if let (ConfirmMode::Relayed, Some(rin)) = (self.options.confirm, self.rin.upgrade()) {
            rin.tell_of(self, InEvent::ConfirmRequested { bid: self.bid, delivered, consumed });
        }
    }

    /// Records how far forwarded data is confirmed. Returns false if the subscription does not relay.
    pub(crate) fn confirm(&self, delivered: Position, consumed: Position, coverage: Coverage) -> bool {
        let confirm = |in_log: &mut ReceiveLog| {
            let told = in_log.relayed.as_mut()?;
            // Positions never go back. The coverage belongs to the positions that came with it.
            told.delivered = told.delivered.max(delivered);
            told.consumed = told.consumed.max(consumed);
            told.coverage = coverage;
            Some(())
        };
        self.update(confirm).flatten().is_some()
    }

    /// Removes the pin of a dropped view.
    #[inline]
    pub(crate) fn unpin(&self, at: Position, consume_to: Option<Position>) {
        self.update(|in_log| {
            if let Some(index) = in_log.pins.iter().position(|pin| *pin == at) {
                in_log.pins.swap_remove(index);
            }
            if let Some(to) = consume_to {
                in_log.give_back(to);
            }
        });
    }

    /// Changes what the application holds, moves the hold, and wakes the worker if credit is due.
    #[inline]
    fn update<R>(&self, change: impl FnOnce(&mut ReceiveLog) -> R) -> Option<R> {
        let mut state = lock(&self.state);
        let wire = state.wire;
        let ending = state.ending.is_some();
        let in_log = state.log.as_mut()?;
        in_log.catch_up();
        let result = change(in_log);
        in_log.move_hold();
        let calls = in_log.look_drained();
        let due = ending || in_log.credit_due() || self.rest.is_owed();
        let resumes = state.resumes();
        drop(state);
        calls.run();
        self.tell_worker(due, wire);
        self.resume(resumes);
        Some(result)
    }

    /// Asks the worker to send the credit that is due.
    #[inline]
    fn tell_worker(&self, due: bool, wire: Option<(u64, WireId)>) {
        if let (true, Some((conn, _))) = (due, wire) {
            self.inner.workers[self.inner.worker_of(conn)].mark_for_later(self.slot);
        }
    }

    /// Returns a pinned view of all received bytes that were not released.
    pub(crate) fn buf_ref(&self) -> Option<(View, Epoch, Position)> {
        let mut state = lock(&self.state);
        let in_log = state.log.as_mut()?;
        in_log.catch_up();
        // In a spliced subscription the application's hold covers only what was not reported yet, so nothing
        // stays in place for it.
        in_log.hold.as_ref().filter(|_| !self.is_spliced())?;
        let ring = &in_log.log.ring;
        let (mut from, mut to) = (in_log.consumed, ring.boundary());
        while let Some(gap) = ring.gap_after(from) {
            if gap.from > from {
                to = to.min(gap.from);
                break;
            }
            from = gap.to;
        }
        let view = ring.view(from, to.max(from));
        in_log.pins.push(from);
        Some((view, in_log.log.epoch, from))
    }
}

impl InState {
    /// Marks the subscription as suspended: no connection brings data.
    pub(crate) fn disconnect(&mut self) {
        self.wire = None;
        self.looked_at = false;
        if let Some(in_log) = &self.log {
            in_log.ring().stop_following();
        }
    }

    /// Returns the connection over which the subscription resumes, if it only waited for the application to
    /// release data.
    fn resumes(&mut self) -> Option<u64> {
        if self.resume_on.is_none() || self.wire.is_some() {
            return None;
        }
        let given_back = self.log.as_mut().is_some_and(ReceiveLog::is_given_back);
        self.resume_on.take_if(|_| given_back)
    }
}
