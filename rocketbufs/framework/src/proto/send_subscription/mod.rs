//! One subscription of the peer, at its sender: a state machine without I/O.
//!
//! ```text
//!   events                      machine                        effects, which the reactor executes
//!   news of the buffer ──▶ ┌──────────────────┐ ──▶ LagAction     skip, or disconnect
//!   a turn, with room  ──▶ │ PeerSubscription │ ──▶ Step          write a range, report a hole or the end
//!   CREDIT, landed     ──▶ │  SendCursor      │ ──▶ Enqueue       give it a turn, or report later
//!   RECALL             ──▶ │                  │ ──▶ positions     RECALLED, ASK
//!   time               ──▶ └──────────────────┘ ──▶ lag in bytes  of a subscription that stalled
//! ```
//!
//! [`Begin`] decides where a subscription begins. [`SendCursor`] has the positions and the subscription's hold in the log, `OnDemandCredit` the part for a receiver that
//! grants on demand. A peer that follows maps the ring, and sees new data by itself.

mod begin;
mod cursor;
mod on_demand;

use rocketring::Ring;

use super::credit::{Credit, CreditError};
use crate::ground::types::{Nanos, Policy, Position, ProgressLevel};

pub use begin::{Begin, KnownPositions, Origin};
pub use cursor::{End, SendConfig, SendCursor, Step};

/// More than this is a batch. A thread that writes so much soon writes more, and the worker sends meanwhile.
const SMALL_PAYLOAD_BYTES: u64 = 16 << 10;
/// From this size on a system call is cheap compared to moving the bytes. The calling thread moves them out
/// of its own cache, from which another core would have to fetch them.
const BATCH_BYTES: u64 = 48 << 10;

/// The number of the peer's own doorbell. Other numbers belong to readers downstream of the peer.
const OWN_DOORBELL: u32 = 0;

/// Whether a thread that has delivered sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerSend {
    /// The thread sends.
    Now,
    /// Nothing may leave before there is credit. The rest leaves with it.
    Later,
    /// The worker sends.
    Not,
}

impl CallerSend {
    /// Decides for so many pending bytes. `more`: there is data beyond the grant. `paused`: there was enough
    /// pause since the connection's last sends. `hears`: the thread also receives the credit.
    fn of(pending: u64, more: bool, paused: bool, hears: bool) -> Self {
        match (pending, more) {
            (0, true) if hears => Self::Later,
            // Data within the grant is sent however little it is, since a receiver with a small ring gives no
            // credit for less.
            (_, true) if hears => Self::Now,
            (_, true) => Self::Not,
            (BATCH_BYTES.., false) => Self::Now,
            (1..=SMALL_PAYLOAD_BYTES, false) if paused => Self::Now,
            _ => Self::Not,
        }
    }
}

/// One subscription of the peer, at its sender.
#[derive(Debug)]
pub struct PeerSubscription {
    cursor: SendCursor,
    /// Readers whose doorbells ring when there is new data, by their numbers on this connection.
    watchers: Vec<u32>,
    /// A CREDIT that speaks of data that this end has not seen yet.
    deferred_credit: Option<Credit>,
    /// Whether there may be news that was not reported to the peer, which follows.
    unreported: bool,
    /// Whether it waits for its turn.
    queued: bool,
    /// On a transport without a promise of order: whether a range is in flight.
    in_flight: bool,
    /// Whether it holds up the writer or others.
    holds_others: bool,
}

/// The action that a subscription's policy demands because of its lag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LagAction {
    /// Detach the ranges that the transport still reads, then call [`PeerSubscription::skip`].
    Skip,
    /// Close the connection.
    Disconnect {
        /// The lag in bytes.
        lag: u64,
    },
}

/// How a subscription reacts to news of its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueue {
    /// The subscription joins the queue of its connection.
    Queue,
    /// The subscription waits for its turn already.
    Queued,
    /// The receiver sees the news by itself: report them later.
    Later,
    /// Like `Later`, but a report was already deferred.
    Unreported,
}

impl PeerSubscription {
    /// Creates a new subscription.
    pub fn new(cursor: SendCursor) -> Self {
        Self {
            cursor,
            watchers: Vec::new(),
            deferred_credit: None,
            unreported: false,
            queued: false,
            in_flight: false,
            holds_others: false,
        }
    }

    /// Returns the positions.
    pub fn cursor(&self) -> &SendCursor {
        &self.cursor
    }

    /// Returns the action that the policy demands because of the lag, if any.
    pub fn lag_action(&self, log: &Ring) -> Option<LagAction> {
        if !self.cursor.too_far_behind(log) {
            return None;
        }
        Some(match self.cursor.config().policy {
            Policy::Disconnect => LagAction::Disconnect { lag: self.cursor.behind(log) },
            _ => LagAction::Skip,
        })
    }

    /// Skips to the last boundary. Returns the lost range, if any.
    pub fn skip(&mut self, log: &Ring) -> Option<(Position, Position)> {
        match self.cursor.drop_to_boundary(log) {
            Some(Step::Lost { from, to }) => Some((from, to)),
            _ => None,
        }
    }

    /// Handles news of the buffer. `waited_for`: a call waits for the receiver's positions, or the log has
    /// ended.
    pub fn enqueue(&mut self, log: &Ring, waited_for: bool) -> Enqueue {
        if self.sees_all(log) && !waited_for {
            return if self.defer_report() { Enqueue::Later } else { Enqueue::Unreported };
        }
        if self.queue() { Enqueue::Queue } else { Enqueue::Queued }
    }

    /// Queues the subscription for its turn. Returns false if it was queued already.
    pub fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Returns whether it waits for its turn.
    pub fn is_queued(&self) -> bool {
        self.queued
    }

    /// Takes a turn: returns what to send, at most `room` bytes. `ordered`: the transport keeps the order of
    /// writes. Returns `None` if data in flight has to land first.
    pub fn take_turn(
        &mut self,
        log: &Ring,
        end: impl FnOnce() -> Option<End>,
        room: u64,
        ordered: bool,
    ) -> Option<Step> {
        let waits = self.in_flight && !ordered;
        (!waits).then(|| self.cursor.next(log, end(), room))
    }

    /// Removes it from the queue.
    pub fn dequeue(&mut self) {
        self.queued = false;
    }

    /// Records that the transport took the range of [`Step::Write`].
    pub fn on_written(&mut self) {
        self.in_flight = true;
    }

    /// Records that the range of [`Step::Write`] was overwritten before the transport could take it.
    pub fn on_overwritten(&mut self) {
        self.cursor.take_back();
    }

    /// Handles CREDIT. `spliced`: the buffer's data comes from upstream, and a receiver that follows may have
    /// seen more of it than this end.
    ///
    /// # Errors
    /// The receiver claims an impossible position: close the connection.
    pub fn on_credit(
        &mut self,
        credit: &Credit,
        log: Option<&Ring>,
        spliced: bool,
        now: Nanos,
    ) -> Result<(), CreditError> {
        let credit = self.confirmed_prefix(credit, log, spliced);
        self.cursor.on_credit(&credit, now)?;
        self.catch_up(log);
        Ok(())
    }

    /// Returns the part of a CREDIT that is known to be true. A peer that follows can report data that it was
    /// not sent and that this end has not seen yet; that part waits for the data. The known part must not
    /// wait with it: this end's own credit depends on it, and without that credit the missing data may not be
    /// sent here.
    fn confirmed_prefix(&mut self, credit: &Credit, log: Option<&Ring>, spliced: bool) -> Credit {
        self.deferred_credit = None;
        let Some(log) = log.filter(|_| credit.landed > self.cursor.sent() && self.follows()) else {
            return *credit;
        };
        if credit.landed <= log.head() {
            self.cursor.followed_to(credit.landed, credit.landed);
            return *credit;
        }
        if !spliced {
            return *credit;
        }
        self.deferred_credit = Some(*credit);
        // The boundary is loaded first: a delivery that ends meanwhile is reported once more.
        let boundary = log.boundary();
        self.cursor.followed_to(log.head(), boundary);
        credit.up_to(self.cursor.sent())
    }

    /// Returns the deferred CREDIT, which the buffer's present data may confirm.
    pub fn take_deferred_credit(&mut self) -> Option<Credit> {
        self.deferred_credit.take()
    }

    /// Handles the transport's report that everything up to `landed` is in the receiver's memory.
    pub fn on_landed(&mut self, landed: Position, log: Option<&Ring>, now: Nanos) {
        self.in_flight = landed < self.cursor.sent();
        self.cursor.on_landed(landed, now);
        self.catch_up(log);
    }

    fn catch_up(&mut self, log: Option<&Ring>) {
        if let Some(log) = log {
            self.cursor.catch_up(log);
        }
    }

    /// Handles RECALL. Returns the end of the remaining grant.
    pub fn on_recall(&mut self) -> Position {
        self.cursor.on_recall()
    }

    /// Returns what to ask the receiver: for confirmations that a call waits for (see [`SendCursor::ask`]),
    /// and for more credit.
    pub fn questions(
        &mut self,
        wanted: [Option<Position>; 3],
        all: Option<ProgressLevel>,
        log: Option<&Ring>,
    ) -> [Option<[Position; 3]>; 2] {
        // A buffer's end is reported, and the call that destroyed the buffer waits until all receivers have
        // it.
        let all = all.or(self.cursor.ended().then_some(ProgressLevel::Landed));
        let confirm = self.cursor.ask(wanted, all);
        let more = log.and_then(|log| self.cursor.ask_for_more(log));
        [confirm, more.map(|to| [to, 0, 0])]
    }

    /// Checks the time-out. `holds_others`: others wait for this subscription. Returns the lag in bytes if it
    /// has stalled.
    pub fn tick(&mut self, holds_others: bool, log: &Ring, now: Nanos) -> Option<u64> {
        if holds_others && !self.holds_others {
            self.cursor.begin_waiting(now);
        }
        self.holds_others = holds_others;
        (holds_others && self.cursor.stalled(now)).then(|| self.cursor.behind(log))
    }

    /// Records that this end delays the subscription, which is no stall of its receiver.
    pub fn delayed(&mut self, now: Nanos) {
        self.cursor.begin_waiting(now);
    }

    /// Returns whether readers' doorbells may ring: the peer maps the ring, and published data is never taken
    /// back.
    pub fn may_be_watched(&self) -> bool {
        let config = self.cursor.config();
        config.maps.is_some() && config.policy == Policy::Block
    }

    /// Adds a reader's doorbell.
    pub fn watch(&mut self, number: u32) {
        if !self.watchers.contains(&number) {
            self.watchers.push(number);
        }
    }

    /// Removes a reader's doorbell. Returns whether it was there.
    pub fn unwatch(&mut self, number: u32) -> bool {
        let at = self.watchers.iter().position(|known| *known == number);
        at.map(|at| self.watchers.swap_remove(at)).is_some()
    }

    /// Returns the readers whose doorbells ring.
    pub fn watchers(&self) -> &[u32] {
        &self.watchers
    }

    /// Returns whether the peer itself is woken when there is new data.
    fn follows(&self) -> bool {
        self.watchers.contains(&OWN_DOORBELL)
    }

    /// Returns the position up to which the receiver sees data by itself: at most its grant, and at most what
    /// a relaying receiver may take without being told the ends of deliveries ([`Ring::set_relayed`]). `None`
    /// if it does not follow.
    pub fn follows_to(&self, log: &Ring) -> Option<Position> {
        let step = self.cursor.sent().saturating_add(log.max_delivery());
        self.follows().then(|| step.min(self.cursor.grant()))
    }

    /// Returns whether the receiver sees all data by itself and no writer waits.
    pub fn sees_all(&self, log: &Ring) -> bool {
        self.follows_to(log).is_some_and(|to| log.head() <= to && !log.writer_waits())
    }

    /// Defers a report of news. Returns false if one was deferred already.
    pub fn defer_report(&mut self) -> bool {
        !std::mem::replace(&mut self.unreported, true)
    }

    /// Returns whether a report is deferred.
    pub fn is_unreported(&self) -> bool {
        self.unreported
    }

    /// Ends the deferral. Returns whether there is something to send, for which the subscription is now
    /// queued.
    pub fn report(&mut self, head: Position) -> bool {
        self.unreported = false;
        head > self.cursor.sent() && self.queue()
    }
}

impl PeerSubscription {
    /// Returns whether a thread that has delivered to the log sends, on a connection where nothing waits to be
    /// sent. See [`CallerSend`] for the conditions.
    pub fn caller_send(&self, log: &Ring, paused: bool, hears: bool) -> CallerSend {
        if self.is_queued() || self.lag_action(log).is_some() {
            return CallerSend::Not;
        }
        let pending = self.cursor().pending_in_order(log);
        pending.map_or(CallerSend::Not, |(bytes, more)| CallerSend::of(bytes, more, paused, hears))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_after_a_pause_and_much_at_any_time() {
        use CallerSend::{Later, Not, Now};
        let cases = [
            // Pending bytes, data beyond the grant, paused, hears.
            ((0, false, true, true), Not),
            ((1, false, true, false), Now),
            ((1, false, false, false), Not),
            ((SMALL_PAYLOAD_BYTES, false, true, false), Now),
            ((SMALL_PAYLOAD_BYTES + 1, false, true, false), Not),
            ((BATCH_BYTES - 1, false, true, false), Not),
            ((BATCH_BYTES, false, false, false), Now),
            ((0, true, true, true), Later),
            ((1, true, false, true), Now),
            ((BATCH_BYTES, true, true, false), Not),
        ];
        for ((pending, more, paused, hears), decision) in cases {
            assert_eq!(
                CallerSend::of(pending, more, paused, hears),
                decision,
                "{pending} {more} {paused} {hears}"
            );
        }
    }
}
