//! One subscription of an rIn: its log, what the application has read and given back.
//!
//! ```text
//!      consumed     pins        read      boundary   head
//!  ───────┼──────────┼───────────┼───────────┼────────┼──▶
//!   given │   shown by views     │ not yet   │ part of│
//!   back  │   that are alive     │ handed out│ a del. │
//! ```
//!
//! The application's hold in the ring is at the smallest of `consumed` and every view that is alive. In a
//! spliced subscription that is what the application was not told yet; the rest is held by the subscribers downstream.

mod loan;
mod log;
mod reading;
mod there;
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

pub(crate) use loan::{Loan, LoanStep};
pub(crate) use reading::Readable;
pub(crate) use there::There;
pub(crate) use watchers::Watchers;

pub(crate) struct InboundShared {
    pub(crate) bid: Bid,
    /// The same buffer at the other end.
    pub(crate) there: There,
    pub(crate) slot: u32,
    pub(crate) rin: Weak<RInShared>,
    pub(crate) inner: Arc<ContextInner>,
    pub(crate) options: SubscribeOptions,
    pub(crate) state: Mutex<InState>,
    /// Whether it waits in its rIn's queue of those with something to receive.
    pub(crate) queued: AtomicBool,
    pub(crate) rest: Rest,
    /// Who follows it downstream.
    pub(crate) watchers: Mutex<Watchers>,
    /// For how many receivers at least it is confirmed where it is spliced.
    pub(crate) min_receivers: MinReceivers,
    spliced: Mutex<Option<Weak<Buffer>>>,
    is_spliced: AtomicBool,
}

#[derive(Default)]
pub(crate) struct InState {
    pub(crate) log: Option<InLog>,
    /// The connection and the id under which data comes now; none while suspended.
    pub(crate) wire: Option<(u64, WireId)>,
    /// When the writer counts as gone, while no connection brings its data. Each lost connection sets a new deadline; one
    /// that another worker still waits for is void then.
    pub(crate) gone_at: Option<Nanos>,
    pub(crate) ending: Option<Ending>,
    pub(crate) ending_told: bool,
    /// The connection over which it goes on once the old one has given its landing end back.
    pub(crate) resume_on: Option<u64>,
    /// Unsubscribed by the application, or over.
    pub(crate) done: bool,
    /// The application's threads may land what is followed (`crate::rin`). Not without a connection.
    pub(crate) looked_at: bool,
}

/// The log of a subscription that was answered.
pub(crate) struct InLog {
    pub(crate) log: Log,
    pub(crate) credit: Inbound,
    /// The landing end while no connection has it.
    pub(crate) receiver: Option<RingReceiver>,
    /// Tell as landed only what was given back (`SubscribeOptions::confirm_consumed`).
    pub(crate) confirm_consumed: bool,
    /// The sender keeps what is not given back when the connection is gone: the subscription has a name and a time.
    pub(crate) place_kept: bool,
    /// The most that one view shows (`SubscribeOptions::max_view_bytes`).
    pub(crate) max_view_bytes: u64,
    /// Where it has no ring of its own, but a share of a budget while there is data for it.
    pub(crate) loan: Option<Loan>,
    /// What the application says of what it handed on (`SubscribeOptions::relays`).
    relayed: Option<Relayed>,
    hold: Option<Hold>,
    /// What is kept until enough receivers have it (`SubscribeOptions::min_receivers`).
    pub(crate) kept: Option<Hold>,
    /// It has everything from here on.
    pub(crate) covered_from: Position,
    consumed: Position,
    read: Position,
    pins: Vec<Position>,
    /// Who reads it alone now, and how far that gave it back: `consumed` and `read` follow when somebody looks.
    reader: Option<Arc<LazyCursor>>,
}

/// How far what an application handed on is confirmed.
#[derive(Debug, Clone, Copy)]
struct Relayed {
    delivered: Position,
    consumed: Position,
    coverage: Coverage,
}

/// How a subscription ends, told after all of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    End(End),
    /// The writer was restarted: its log is another one.
    Restarted(Epoch),
    Refused(RefusedError),
}

/// What a thread of the application's landed itself.
pub(crate) enum Followed {
    Data {
        view: View,
        epoch: Epoch,
        /// It is not all that there is.
        more: bool,
    },
    Other(Item),
}

impl Followed {
    /// How many bytes it brings.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data { view, .. } => view.len(),
            Self::Other(_) => 0,
        }
    }
}

/// The next thing that a subscription has to tell, in order.
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
            there: There::new(options.remote_id.unwrap_or(bid)),
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

    /// From now on the buffer's subscribers hold the ring. The application holds only what was not told yet: ranges
    /// go out before they are complete, so the subscribers alone could let more than a ring arrive between two calls.
    pub(crate) fn splice_to(&self, buffer: &Arc<Buffer>) -> bool {
        let mut spliced = lock(&self.spliced);
        // The subscribers of a buffer that was destroyed may still read it.
        if spliced.as_ref().and_then(Weak::upgrade).is_some_and(|old| !old.is_removed()) {
            return false;
        }
        *spliced = Some(Arc::downgrade(buffer));
        self.is_spliced.store(true, Ordering::Release);
        drop(spliced);
        let mut state = lock(&self.state);
        // Left meanwhile: who left it may have looked for its buffer before there was one, and nobody else ends that.
        if state.done || state.log.as_ref().is_some_and(InLog::is_read_alone) {
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
            // The connection may have gone while this was nobody else's, and then its writer is away from now on.
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
            // Without a subscriber no other event tells the end.
            self.inner.workers[0].send(Command::Reap(buffer.clone()));
        }
        true
    }

    fn is_spliced_to(&self, buffer: &Buffer) -> bool {
        self.spliced_to().is_some_and(|spliced| std::ptr::eq(&raw const *spliced, buffer))
    }

    /// A subscriber downstream moved on: perhaps there is credit to give upstream.
    pub(crate) fn on_downstream_progress(&self, buffer: &Buffer) {
        let state = lock(&self.state);
        let Some(in_log) = &state.log else { return };
        if buffer.ended() && !self.is_spliced_to(buffer) {
            // The last subscribers of a destroyed buffer hold the ring, and confirm nothing any more.
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

    /// The next thing to tell; moves `read` past it. Data stays until it is given back.
    pub(crate) fn next_item(&self, pin: bool) -> Option<Item> {
        let mut state = lock(&self.state);
        if state.done {
            // What was not read when it was unsubscribed is gone; the next subscription has the buffer's name now.
            return None;
        }
        let (spliced, wire, ending) = (self.is_spliced(), state.wire, state.ending.is_some());
        if let Some(in_log) = &mut state.log {
            if !in_log.catch_up() {
                return None;
            }
            let consumed = in_log.consumed;
            if let Some(item) = in_log.next_item(pin, spliced) {
                // Reading a hole, or what is copied out anyway, gives it back. A spliced one is told by the worker.
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

    /// Lands what its ring has, and takes the next thing to tell. With nothing: the ring, to look at.
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

    /// Whether [`InboundShared::next_item`] would tell something.
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

    /// Whether the application has heard its end: the same buffer can be subscribed to again.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).ending_told
    }

    /// Whether it is over and everything of it was given back.
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

    /// Gives back `size` bytes, oldest first (`data_consumed`).
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

    /// The sender waits until these are confirmed: so do those who have to confirm them.
    pub(crate) fn want_confirmed(self: &Arc<Self>, [_, delivered, consumed]: [Position; 3]) {
        if delivered.max(consumed) == 0 {
            return;
        }
        if let Some(buffer) = self.spliced_to() {
            // What is to be delivered must have landed with those that hand it on, which they tell with it.
            buffer.want([0, delivered, consumed]);
        } else if let (ConfirmMode::Relayed, Some(rin)) = (self.options.confirm, self.rin.upgrade()) {
            rin.tell_of(self, InEvent::Asked { bid: self.bid, delivered, consumed });
        }
    }

    /// What was handed on is confirmed so far. False if the subscription is none that relays.
    pub(crate) fn confirm(&self, delivered: Position, consumed: Position, coverage: Coverage) -> bool {
        let confirm = |in_log: &mut InLog| {
            let told = in_log.relayed.as_mut()?;
            // Positions never go back; the count is that of the positions told with it.
            told.delivered = told.delivered.max(delivered);
            told.consumed = told.consumed.max(consumed);
            told.coverage = coverage;
            Some(())
        };
        self.update(confirm).flatten().is_some()
    }

    /// A view is no more.
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
    fn update<R>(&self, change: impl FnOnce(&mut InLog) -> R) -> Option<R> {
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

    /// Has the worker send the credit that is due.
    #[inline]
    fn tell_worker(&self, due: bool, wire: Option<(u64, WireId)>) {
        if let (true, Some((conn, _))) = (due, wire) {
            self.inner.workers[self.inner.worker_of(conn)].mark_for_later(self.slot);
        }
    }

    /// Everything received and not given back, pinned.
    pub(crate) fn buf_ref(&self) -> Option<(View, Epoch, Position)> {
        let mut state = lock(&self.state);
        let in_log = state.log.as_mut()?;
        in_log.catch_up();
        // Nothing is kept in place for the application where it holds for itself only what was not told yet.
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
    /// No connection brings anything any more.
    pub(crate) fn disconnect(&mut self) {
        self.wire = None;
        self.looked_at = false;
        if let Some(in_log) = &self.log {
            in_log.ring().stop_following();
        }
    }

    /// The connection over which it goes on now, if it only waited for its application.
    fn resumes(&mut self) -> Option<u64> {
        if self.resume_on.is_none() || self.wire.is_some() {
            return None;
        }
        let given_back = self.log.as_mut().is_some_and(InLog::is_given_back);
        self.resume_on.take_if(|_| given_back)
    }
}
