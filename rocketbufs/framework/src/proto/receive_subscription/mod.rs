//! One subscription of this end, at its receiver: a state machine without I/O.
//!
//! ```text
//!   events                       machine                          effects, which state and reactor execute
//!   data, LOST, the end  ──▶ ┌─────────────────────┐ ──▶ Item           what the application gets next
//!   SUBSCRIBED, ASK      ──▶ │ ReceiveSubscription │ ──▶ Credit         CREDIT
//!   RECALLED             ──▶ │  ReceiveLog         │ ──▶ AllocationStep take, free or recall a ring
//!   releases, views      ──▶ │  CreditAllocation   │ ──▶ positions      holds in the ring
//!   a lost connection    ──▶ └─────────────────────┘ ──▶ connections    where it resumes
//! ```
//!
//! A closed log stays a subscription until the sender has acknowledged that every receiver released all of it: after a
//! lost connection it resumes for nothing but its last CREDIT.
//!
//! [`ReceiveCursor`] has what was read and released, [`ReceiveLog`] what is reported, [`CreditReport`] decides when CREDIT is due, and [`CreditAllocation`] is
//! the part for a subscription that shares a budget. [`Attachment`] is the part of one connection, from
//! SUBSCRIBE to UNSUBSCRIBED. The ring, holds in it and the budget belong to the caller.

mod allocation;
mod attachment;
#[cfg(test)]
mod closed_tests;
mod credit_report;
mod cursor;
mod item;
mod log;
#[cfg(test)]
mod tests;

use rocketring::Ring;

use super::End;
use super::credit::Credit;
use crate::ground::types::{Bid, Nanos, Position, WireId};

pub use allocation::{
    AllocationStep, BudgetNote, CreditAllocation, Drained, Need, RingPositions, Share, Suspension,
};
pub use attachment::{Answer, Attachment, LogEnd, ReceiveError};
pub use credit_report::CreditReport;
pub use cursor::{ReceiveCursor, TooMuch};
pub use item::{Ending, Item};
pub use log::{Downstream, GrantLimit, ReceiveConfig, ReceiveLog};

/// One subscription of this end, see the module.
#[derive(Debug)]
pub struct ReceiveSubscription {
    /// The id of the buffer at the peer. `None` while the peer is another process than the one that assigned
    /// the id, and its id for the buffer is not known.
    remote_id: Option<Bid>,
    log: Option<ReceiveLog>,
    /// The connection and the wire id under which data arrives; `None` while suspended.
    wire: Option<(u64, WireId)>,
    /// The deadline after which the writer counts as gone, while no connection brings its data. Each lost
    /// connection sets a new deadline, which makes one that another worker still waits for void.
    gone_at: Option<Nanos>,
    ending: Option<Ending>,
    ending_told: bool,
    /// The sender needs nothing more of a closed log.
    settled: bool,
    /// The connection over which the subscription resumes once the old one has returned the ring receiver.
    resume_on: Option<u64>,
    /// The application has unsubscribed, or the subscription is over.
    left: bool,
    /// Whether application threads may land data from mapped memory. Always false without a connection.
    looked_at: bool,
}

/// The connection over which a subscription begins or resumes.
#[derive(Debug, Clone, Copy)]
pub struct SubscribeOver {
    /// The number of the connection.
    pub conn: u64,
    /// The id under which data arrives there.
    pub wire: WireId,
    /// The log continues in another ring, so the application first releases its data.
    pub moves: bool,
    /// The connection is the one that the application has chosen.
    pub is_current: bool,
}

impl ReceiveSubscription {
    /// Creates a subscription of the buffer that the peer knows by this id.
    pub fn new(remote_id: Bid) -> Self {
        Self {
            remote_id: Some(remote_id),
            log: None,
            wire: None,
            gone_at: None,
            ending: None,
            ending_told: false,
            settled: false,
            resume_on: None,
            left: false,
            looked_at: false,
        }
    }

    /// Returns the id of the buffer at the peer, if it is known.
    pub fn remote_id(&self) -> Option<Bid> {
        self.remote_id
    }

    /// Sets the id of the buffer at the peer; `None`: the peer is another process, and its id is not known.
    pub fn set_remote_id(&mut self, remote_id: Option<Bid>) {
        self.remote_id = remote_id;
    }

    /// Returns the log, if the subscription was accepted.
    pub fn log(&self) -> Option<&ReceiveLog> {
        self.log.as_ref()
    }

    /// Returns the log, to change it.
    pub fn log_mut(&mut self) -> Option<&mut ReceiveLog> {
        self.log.as_mut()
    }

    /// Handles the first SUBSCRIBED.
    pub fn begin(&mut self, log: ReceiveLog) {
        self.log = Some(log);
    }

    /// Returns the connection and the wire id under which data arrives; `None` while suspended.
    pub fn wire(&self) -> Option<(u64, WireId)> {
        self.wire
    }

    /// Returns the wire id, if data arrives over this connection.
    pub fn wire_on(&self, conn: u64) -> Option<WireId> {
        self.wire.and_then(|(at, wire)| (at == conn).then_some(wire))
    }

    /// Begins to subscribe, or to resume, over a connection. Returns `None` if nothing is to be sent, or not yet.
    pub fn subscribe(&mut self, over: SubscribeOver, ring: Option<&Ring>) -> Option<Attachment> {
        let SubscribeOver { conn, wire, moves, is_current } = over;
        let closed = self.is_unsettled();
        if self.left || (self.ending.is_some() && !closed) || self.wire_on(conn).is_some() {
            return None;
        }
        // Nothing arrives any more, so the log needs no other ring.
        let moves = moves && !closed;
        let given_back =
            |ring: &Ring| self.log.as_ref().is_some_and(|log| log.cursor().is_given_back(ring.boundary()));
        let waits = moves && !ring.is_some_and(given_back);
        if self.wire.is_some() || waits {
            // Either the old connection is closing and still has the ring receiver, or the application has
            // not released all data. Several workers may set `resume_on` in any order; only the rIn's current
            // connection counts. A connection that the rIn has left is closed, and the current one sets
            // `resume_on` itself.
            if is_current {
                self.resume_on = Some(conn);
            }
            return None;
        }
        (self.wire, self.gone_at) = (Some((conn, wire)), None);
        if let Some(Ending::End(end)) = self.ending {
            return Some(Attachment::of_closed(end.position()));
        }
        // An incomplete delivery is sent again if the ring changes.
        let resumed_at = ring.map(|ring| if moves { ring.boundary() } else { ring.head() });
        Some(Attachment::new(resumed_at, moves))
    }

    /// Suspends the subscription: no connection brings data.
    pub fn disconnect(&mut self) {
        self.wire = None;
        self.looked_at = false;
    }

    /// Returns the connection over which the subscription resumes, if it only waited for the application to
    /// release data. The log's data ends at `boundary`.
    pub fn resumes(&mut self, boundary: Position) -> Option<u64> {
        if self.resume_on.is_none() || self.wire.is_some() {
            return None;
        }
        let given_back = self.log.as_ref().is_some_and(|log| log.cursor().is_given_back(boundary));
        self.resume_on.take_if(|_| given_back)
    }

    /// Returns whether the subscription resumes once the application has released its data.
    pub fn waits_to_resume(&self) -> bool {
        self.resume_on.is_some() && self.wire.is_none()
    }

    /// Returns the connection over which the subscription resumes now that the old one is down.
    pub fn take_resume(&mut self) -> Option<u64> {
        self.resume_on.take()
    }

    /// Starts the linger time of a spliced subscription, which ends at `gone_at`. Returns false if a
    /// connection carries the subscription or is about to, or if it is over.
    pub fn begin_linger(&mut self, gone_at: Nanos) -> bool {
        let goes_on = self.wire.is_some() || self.resume_on.is_some();
        let begins = !(goes_on || self.left || self.ending.is_some() || self.gone_at.is_some());
        if begins {
            self.gone_at = Some(gone_at);
        }
        begins
    }

    /// Returns whether the writer was away until `gone_at`, when a linger time ends.
    pub fn is_gone(&self, gone_at: Nanos) -> bool {
        self.gone_at == Some(gone_at) && !self.left
    }

    /// Handles RECALLED: the grant ends at `at`.
    ///
    /// # Errors
    /// The sender may not answer that.
    pub fn on_recalled(&mut self, at: Position) -> Result<(), ReceiveError> {
        let log = self.log.as_mut().filter(|log| log.allocation().is_some()).ok_or(ReceiveError::NoGrant)?;
        if log.on_recalled(at) { Ok(()) } else { Err(ReceiveError::RecalledMore) }
    }

    /// Ends the subscription. Returns false if it had ended before.
    pub fn end(&mut self, ending: Ending) -> bool {
        let ends = self.ending.is_none();
        self.ending.get_or_insert(ending);
        ends
    }

    /// Returns how the subscription ends, if it does.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Returns whether final positions may be reported: the sender has not switched to another log and has
    /// not lost part of this one.
    pub fn reports_last_credit(&self) -> bool {
        !self.settled && matches!(self.ending, None | Some(Ending::End(End::Closed(_))))
    }

    /// Returns whether the log is closed, and the sender may still wait for its receivers to release bytes.
    pub fn is_unsettled(&self) -> bool {
        !self.settled && !self.left && matches!(self.ending, Some(Ending::End(End::Closed(_))))
    }

    /// Records that the sender needs nothing more of this log: the sender has acknowledged that all of it was released,
    /// refuses the subscription, or has another log. A sent CREDIT is not enough, since it may be lost with its
    /// connection.
    pub fn settle(&mut self) {
        (self.settled, self.resume_on) = (true, None);
    }

    /// Returns whether the log has ended and, with this CREDIT, all of it was released.
    pub fn is_released(&self, now: &Credit) -> bool {
        matches!(&self.ending, Some(Ending::End(end)) if now.consumed >= end.position())
    }

    /// Takes the end, once everything before it was handed out.
    pub fn next_ending(&mut self) -> Option<Item> {
        if self.ending_told {
            return None;
        }
        let ending = self.ending.as_ref()?;
        if let (Ending::End(end), Some(log)) = (ending, &self.log)
            && log.cursor().read() < end.position()
        {
            return None;
        }
        self.ending_told = true;
        Some(Item::Ending(ending.clone()))
    }

    /// Returns whether the end is set and was not taken yet.
    pub fn has_ending(&self) -> bool {
        self.ending.is_some() && !self.ending_told
    }

    /// Returns whether the application has received the end.
    pub fn is_over(&self) -> bool {
        self.ending_told
    }

    /// Returns whether the subscription is over and all of its data was released. `spliced`: receivers
    /// downstream release the data.
    pub fn is_finished(&self, spliced: bool) -> bool {
        let given_back = match (&self.ending, &self.log) {
            (Some(Ending::End(end)), Some(log)) => log.consumed_by_all() >= end.position() || spliced,
            _ => true,
        };
        self.ending_told && given_back
    }

    /// Records that the application has unsubscribed. Returns whether it had before.
    pub fn leave(&mut self) -> bool {
        std::mem::replace(&mut self.left, true)
    }

    /// Returns whether the application has unsubscribed.
    pub fn is_left(&self) -> bool {
        self.left
    }

    /// Allows or forbids application threads to land data from mapped memory.
    pub fn let_look(&mut self, looked_at: bool) {
        self.looked_at = looked_at;
    }

    /// Returns whether application threads may land data from mapped memory.
    pub fn is_looked_at(&self) -> bool {
        self.looked_at
    }

    /// Returns whether an application thread may land and take data now.
    pub fn may_follow(&self) -> bool {
        self.looked_at && !self.left && self.ending.is_none()
    }
}
