//! One subscription of the peer, at its sender: a machine without I/O.
//!
//! ```text
//!   events                      machine                        effects, which the reactor executes
//!   news of the buffer ──▶ ┌──────────────────┐ ──▶ LagAction     skip, or disconnect
//!   a turn, with room  ──▶ │ PeerSubscription │ ──▶ Step          write a range, report a hole or the end
//!   CREDIT, landed     ──▶ │  SendCursor      │ ──▶ Enqueue       give it a turn, or report later
//!   RECALL             ──▶ │  FollowState     │ ──▶ positions     RECALLED, ASK
//!   time               ──▶ └──────────────────┘ ──▶ lag in bytes  of a subscription that stalled
//! ```
//!
//! [`SendCursor`] has the positions, `OnDemandCredit` the part of a receiver that gives credit on demand, `retention` what the
//! subscription holds in the log, and `FollowState` what there is to know of a peer that maps the ring.

mod cursor;
mod follow;
mod on_demand;
mod retention;

use rocketring::Ring;

use super::credit::{Credit, CreditError};
use crate::types::{ConfirmLevel, Nanos, Policy, Position};

pub use cursor::{End, SendConfig, SendCursor, Step};
use follow::FollowState;

/// One subscription of the peer, at its sender.
#[derive(Debug)]
pub struct PeerSubscription {
    cursor: SendCursor,
    follow: FollowState,
    /// It waits for its turn.
    queued: bool,
    /// On a transport that does not promise order: a range is in flight.
    in_flight: bool,
    /// It keeps the writer, or others, from going on.
    holds_others: bool,
}

/// What the policy of a subscription demands because it lags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LagAction {
    /// Detach what the transport still reads, then [`PeerSubscription::skip`].
    Skip,
    /// Close the connection.
    Disconnect {
        /// How far the subscription is behind, in bytes.
        lag: u64,
    },
}

/// What becomes of a subscription whose buffer has news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueue {
    /// It takes its place in the queue of its connection.
    Queue,
    /// It waits for its turn already.
    Queued,
    /// Its receiver sees the news by itself: report them later.
    Later,
    /// The same, and it was to be reported later already.
    Unreported,
}

impl PeerSubscription {
    /// A subscription that begins.
    pub fn new(cursor: SendCursor) -> Self {
        Self { cursor, follow: FollowState::default(), queued: false, in_flight: false, holds_others: false }
    }

    /// Its positions.
    pub fn cursor(&self) -> &SendCursor {
        &self.cursor
    }

    /// Whether its policy must act on its lag now.
    pub fn lag_action(&self, log: &Ring) -> Option<LagAction> {
        if !self.cursor.too_far_behind(log) {
            return None;
        }
        Some(match self.cursor.config().policy {
            Policy::Disconnect => LagAction::Disconnect { lag: self.cursor.behind(log) },
            _ => LagAction::Skip,
        })
    }

    /// Skips to the last boundary. Returns the range that is lost, if any.
    pub fn skip(&mut self, log: &Ring) -> Option<(Position, Position)> {
        match self.cursor.drop_to_boundary(log) {
            Some(Step::Lost { from, to }) => Some((from, to)),
            _ => None,
        }
    }

    /// The buffer has news. `waited_for`: somebody waits for the receiver to tell how far it is, or the log has ended.
    pub fn enqueue(&mut self, log: &Ring, waited_for: bool) -> Enqueue {
        if self.sees_all(log) && !waited_for {
            return if self.defer_report() { Enqueue::Later } else { Enqueue::Unreported };
        }
        if self.queue() { Enqueue::Queue } else { Enqueue::Queued }
    }

    /// It waits for its turn from here on. False if it did already.
    pub fn queue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    /// Whether it waits for its turn.
    pub fn is_queued(&self) -> bool {
        self.queued
    }

    /// Its turn: what to send, at most `room` bytes. `ordered`: the transport keeps the order of writes. None if what is in
    /// flight has to land first.
    pub fn take_turn(
        &mut self,
        log: &Ring,
        end: impl FnOnce() -> Option<End>,
        (room, ordered): (u64, bool),
    ) -> Option<Step> {
        let waits = self.in_flight && !ordered;
        (!waits).then(|| self.cursor.next(log, end(), room))
    }

    /// It does not wait for its turn any more.
    pub fn dequeue(&mut self) {
        self.queued = false;
    }

    /// The transport took the range of [`Step::Write`].
    pub fn on_written(&mut self) {
        self.in_flight = true;
    }

    /// The range of [`Step::Write`] was overwritten before the transport could take it.
    pub fn on_overwritten(&mut self) {
        self.cursor.take_back();
    }

    /// A CREDIT. `spliced`: what the buffer has comes from elsewhere, and a receiver that follows may have seen more of it
    /// than this end.
    ///
    /// # Errors
    /// The receiver claims what cannot be: close the connection.
    pub fn on_credit(
        &mut self,
        credit: &Credit,
        (log, spliced): (Option<&Ring>, bool),
        now: Nanos,
    ) -> Result<(), CreditError> {
        let credit = self.known_part(credit, log, spliced);
        self.cursor.on_credit(&credit, now)?;
        self.catch_up(log);
        Ok(())
    }

    /// A peer that follows can speak of data that it was not sent, and that this end has not seen yet: returns as much of its
    /// CREDIT as is known to be true. The rest waits for that data. Nothing known waits with it: this end returns credit by it,
    /// and may not be sent what the rest waits for before it does.
    fn known_part(&mut self, credit: &Credit, log: Option<&Ring>, spliced: bool) -> Credit {
        self.follow.defer(None);
        let Some(log) = log.filter(|_| credit.landed > self.cursor.sent() && self.follow.is_active()) else {
            return *credit;
        };
        if credit.landed <= log.head() {
            self.cursor.followed_to(credit.landed, credit.landed);
            return *credit;
        }
        if !spliced {
            return *credit;
        }
        self.follow.defer(Some(*credit));
        // The boundary first: a delivery that ends here meanwhile is reported once more.
        let boundary = log.boundary();
        self.cursor.followed_to(log.head(), boundary);
        credit.up_to(self.cursor.sent())
    }

    /// A CREDIT that waited for what the buffer has now, perhaps.
    pub fn take_deferred_credit(&mut self) -> Option<Credit> {
        self.follow.take_deferred()
    }

    /// The transport reports that everything up to `landed` is in the receiver's memory.
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

    /// RECALL. Returns where the grant ends now.
    pub fn on_recall(&mut self) -> Position {
        self.cursor.on_recall()
    }

    /// What to ask the receiver: to confirm what somebody waits for (see [`SendCursor::ask`]), and for more credit.
    pub fn questions(
        &mut self,
        (wanted, all): ([Option<Position>; 3], Option<ConfirmLevel>),
        log: Option<&Ring>,
    ) -> [Option<[Position; 3]>; 2] {
        // A buffer's end is reported, and whoever destroyed the buffer waits until all receivers have it.
        let all = all.or(self.cursor.ended().then_some(ConfirmLevel::Landed));
        let confirm = self.cursor.ask(wanted, all);
        let more = log.and_then(|log| self.cursor.ask_for_more(log));
        [confirm, more.map(|to| [to, 0, 0])]
    }

    /// A look at the clock. `holds_others`: others wait for this one. Returns how far it is behind, in bytes, if it stalled.
    pub fn tick(&mut self, holds_others: bool, log: &Ring, now: Nanos) -> Option<u64> {
        if holds_others && !self.holds_others {
            self.cursor.begin_waiting(now);
        }
        self.holds_others = holds_others;
        (holds_others && self.cursor.stalled(now)).then(|| self.cursor.behind(log))
    }

    /// Whether a reader may have its doorbell rung: the peer maps the ring, and takes nothing back of what was published.
    pub fn may_be_watched(&self) -> bool {
        let config = self.cursor.config();
        config.maps.is_some() && config.policy == Policy::Block
    }

    /// A reader's doorbell rings from here on.
    pub fn watch(&mut self, number: u32) {
        self.follow.add(number);
    }

    /// A reader's doorbell rings no more. Whether it did.
    pub fn unwatch(&mut self, number: u32) -> bool {
        self.follow.remove(number)
    }

    /// Readers whose doorbells ring.
    pub fn watchers(&self) -> &[u32] {
        self.follow.watchers()
    }

    /// How far the receiver sees by itself what there is: not beyond its grant, and no more at a time than a receiver that
    /// relays may take without being told where deliveries end ([`Ring::set_relayed`]). None if it does not.
    pub fn follows_to(&self, log: &Ring) -> Option<Position> {
        let step = self.cursor.sent().saturating_add(log.max_delivery());
        self.follow.is_active().then(|| step.min(self.cursor.grant()))
    }

    /// Whether the receiver sees everything by itself, and the writer waits for nothing.
    pub fn sees_all(&self, log: &Ring) -> bool {
        self.follows_to(log).is_some_and(|to| log.head() <= to && !log.writer_waits())
    }

    /// There is news that the receiver is told later. False if it was to be told later already.
    pub fn defer_report(&mut self) -> bool {
        self.follow.begin_unreported()
    }

    /// Whether there is news that the receiver was not told.
    pub fn is_unreported(&self) -> bool {
        self.follow.is_unreported()
    }

    /// The receiver is told the news now. True if there is something to send, and it is to be queued.
    pub fn report(&mut self, head: Position) -> bool {
        self.follow.end_unreported();
        head > self.cursor.sent() && self.queue()
    }
}
