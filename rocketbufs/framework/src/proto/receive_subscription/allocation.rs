//! A subscription that has a ring only while there is data: its share of a budget.
//!
//! ```text
//!   granted          the position up to which the sender was told it may write
//!   wanted           the position up to which the sender said it has whole deliveries
//!   drained          no received byte is in memory: all were released
//!   quiet            drained, and nothing beyond was granted: the ring can go
//! ```

use crate::ground::types::Position;

/// The bytes that a subscription needs from its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The bytes of whole deliveries that the sender has for the subscription now.
    pub bytes: u64,
    /// The bytes of a ring that takes any whole delivery.
    pub least: u64,
    /// The bytes of the ring that the subscription would have without a budget.
    pub full: u64,
}

/// A part of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// A power of two.
    pub bytes: u64,
    /// Whether credit may be granted for data that the sender does not have yet, as there is plenty.
    pub ahead: bool,
}

/// The positions of a subscription's log that decide about its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingPositions {
    /// The end of the received bytes.
    pub head: Position,
    /// The end of the last complete delivery.
    pub boundary: Position,
    /// The position up to which the ring has room.
    pub room: Position,
    /// The position up to which the sender was told it may write.
    pub granted: Position,
    /// Whether every received byte was released.
    pub drained: bool,
}

/// The next step of the worker for the ring of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationStep {
    /// The ring stays as it is.
    Nothing,
    /// Send RECALL for the grant, and call [`CreditAllocation::recall`].
    Recall,
    /// Free the ring.
    Release,
    /// Take a ring from the budget.
    Take(Need),
}

/// A change that the budget has to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetNote {
    /// The ring is drained, and the budget may recall it.
    Idle,
    /// The ring may not be recalled any more.
    Busy,
    /// The subscription waits for no share any more.
    GiveBack,
}

/// The reaction to a release of data by the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Free the ring: no connection brings data, and there is no peer for a RECALL.
    Free,
    /// Report [`BudgetNote::Idle`].
    Idle,
}

/// The effects of a lost connection on a subscription's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspension {
    /// The notes for the budget, in this order.
    pub notes: [Option<BudgetNote>; 2],
    /// Whether the ring goes.
    pub free_ring: bool,
}

/// Credit on demand, see the module.
#[derive(Debug, Clone)]
pub struct CreditAllocation {
    /// The least bytes that a whole delivery needs, and the capacity of the ring that the subscription would
    /// have without a budget.
    least: u64,
    full: u64,
    /// The capacity of the ring in bytes; 0 without a ring.
    share: u64,
    /// Whether the whole ring is granted, not only as much as the sender has.
    ahead: bool,
    /// The position up to which the sender may write.
    offer: Position,
    wanted: Position,
    waiting: bool,
    /// Whether the budget knows that the ring is drained and may recall it.
    idle: bool,
    /// A RECALL is in flight. Nothing is granted before its answer.
    recalling: bool,
}

impl CreditAllocation {
    /// Creates the allocation of a subscription that begins at `start`, without a ring. `least`: the bytes of
    /// a ring that takes any whole delivery. `full`: the bytes of the ring without a budget.
    pub fn new(start: Position, least: u64, full: u64) -> Self {
        Self {
            least,
            full,
            share: 0,
            ahead: false,
            offer: start,
            wanted: start,
            waiting: false,
            idle: false,
            recalling: false,
        }
    }

    /// Returns a bound of the largest delivery, at most twice its size, in bytes.
    pub fn max_delivery(&self) -> u64 {
        self.least / 2
    }

    /// Returns the position up to which the sender may write. A smaller value than the last granted one has
    /// no effect.
    pub fn grant(&self) -> Position {
        self.offer
    }

    /// Returns the bytes of the ring that the subscription would have without a budget.
    pub fn full(&self) -> u64 {
        self.full
    }

    /// Returns whether a RECALL is in flight.
    pub fn is_recalling(&self) -> bool {
        self.recalling
    }

    /// Records the budget's answer to [`AllocationStep::Take`].
    pub fn on_share(&mut self, share: Option<Share>) {
        self.waiting = share.is_none();
    }

    /// Leaves the budget's queue: the subscription needs nothing, or gets nothing any more.
    pub fn leave_queue(&mut self) -> Option<BudgetNote> {
        std::mem::take(&mut self.waiting).then_some(BudgetNote::GiveBack)
    }

    /// Makes the ring one that the budget does not recall. The budget has to learn that.
    pub fn become_busy(&mut self) -> Option<BudgetNote> {
        std::mem::take(&mut self.idle).then_some(BudgetNote::Busy)
    }

    /// Returns whether the sender has more data than it may send.
    fn wants_more(&self, at: &RingPositions) -> bool {
        self.wanted > at.granted.max(at.head)
    }

    /// Returns the next position to grant, if it is further than before and worth a message. `short`: any
    /// subscription waits for the budget.
    fn next_offer(&self, at: &RingPositions, short: bool) -> Option<Position> {
        if self.share == 0 || self.recalling {
            return None;
        }
        let wants = self.wants_more(at);
        // The ring has the start of a delivery. Its rest must arrive before any of it can be released.
        let partial = at.head > at.boundary;
        let to = if self.ahead && !short {
            at.room
        } else if wants && (partial || !short && (self.share >= self.least || self.wanted <= at.room)) {
            self.wanted.min(at.room)
        } else {
            return None;
        };
        let stuck = wants && (partial || at.drained || to == self.wanted);
        (to > at.granted && (stuck || to >= at.granted + self.share / 4)).then_some(to)
    }

    /// Returns whether a CREDIT must carry a new grant.
    pub fn has_offer(&self, granted: Position) -> bool {
        !self.recalling && self.offer > granted
    }

    /// Returns whether the worker has something to do about the ring after the application released data.
    pub fn is_due(&self, at: &RingPositions, short: bool) -> bool {
        match self.share {
            0 => at.drained && self.wants_more(at),
            _ if self.recalling => false,
            _ => at.drained && (short || self.wants_more(at)) || self.next_offer(at, short).is_some(),
        }
    }

    /// Handles a release by the application. `detached`: no connection brings data.
    pub fn on_released(&mut self, drained: bool, detached: bool) -> Option<Drained> {
        if self.share == 0 || !drained {
            None
        } else if detached {
            Some(Drained::Free)
        } else {
            (!std::mem::replace(&mut self.idle, true)).then_some(Drained::Idle)
        }
    }

    /// Returns the next action, and the notes for the budget. The next CREDIT carries the grant.
    /// `plenty`: the budget has room for data that the sender does not have yet.
    pub fn step(
        &mut self,
        at: &RingPositions,
        short: bool,
        plenty: impl FnOnce() -> bool,
    ) -> (AllocationStep, Option<BudgetNote>) {
        let wants = self.wants_more(at);
        if self.share == 0 {
            if !wants {
                return (AllocationStep::Nothing, self.leave_queue());
            }
            // An unreported hole is in the present ring.
            let need = Need { bytes: self.wanted - at.head, least: self.least, full: self.full };
            return (if at.drained { AllocationStep::Take(need) } else { AllocationStep::Nothing }, None);
        }
        if self.recalling {
            return (AllocationStep::Nothing, None);
        }
        let release = self.release(at);
        if short && at.drained && release != AllocationStep::Nothing {
            return (release, None);
        }
        let note = if short { self.become_busy() } else { None };
        self.ahead |= wants && !self.ahead && self.share >= self.least && plenty();
        match self.next_offer(at, short) {
            Some(to) => self.offer = to,
            // The sender's data does not fit into the ring.
            None if wants && at.drained && !self.ahead => return (release, note),
            None => {}
        }
        (AllocationStep::Nothing, note)
    }

    /// Returns the action that is due when nothing arrived for a while.
    pub fn at_rest(&self, at: &RingPositions) -> AllocationStep {
        if self.share > 0 && at.drained && !self.recalling {
            self.release(at)
        } else {
            AllocationStep::Nothing
        }
    }

    /// Returns how to free a drained ring. Data that the sender asked to send is already in flight, so RECALL
    /// would change nothing there.
    fn release(&self, at: &RingPositions) -> AllocationStep {
        if at.granted <= at.head {
            AllocationStep::Release
        } else if at.granted > self.wanted {
            AllocationStep::Recall
        } else {
            AllocationStep::Nothing
        }
    }

    /// Records that RECALL is sent.
    pub fn recall(&mut self) {
        self.recalling = true;
    }

    /// Handles ASK for data up to `wanted`.
    pub fn on_ask(&mut self, wanted: Position) {
        self.wanted = self.wanted.max(wanted);
    }

    /// Handles RECALLED: the grant ends at `at`. Returns false without a RECALL in flight, or if `at` is
    /// beyond the grant.
    pub fn on_recalled(&mut self, at: Position, granted: Position) -> bool {
        let answers = self.recalling && at <= granted;
        if answers {
            self.recalling = false;
            // The sender asks again for whatever it has beyond that.
            (self.offer, self.wanted) = (at, at);
        }
        answers
    }

    /// Records another ring, which has room up to `room`: one of a share, or an empty one that begins at
    /// `head`.
    pub fn on_ring(&mut self, share: Option<Share>, head: Position, room: Position) {
        self.share = share.map_or(0, |share| share.bytes);
        self.ahead = share.is_some_and(|share| share.ahead);
        (self.idle, self.waiting) = (false, false);
        self.offer = match share {
            Some(Share { ahead: true, .. }) => room,
            Some(_) => self.wanted.min(room),
            None => head,
        };
    }

    /// Handles a lost connection: the grant is void.
    pub fn suspend(&mut self, head: Position, drained: bool) -> Suspension {
        self.recalling = false;
        self.ahead = false;
        (self.offer, self.wanted) = (head, head);
        let notes = [self.leave_queue(), self.become_busy()];
        Suspension { notes, free_ring: self.share > 0 && drained }
    }
}
