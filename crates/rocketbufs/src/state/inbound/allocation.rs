//! A subscription that has a ring only while there is data for it: its share of a budget.
//!
//! ```text
//!   granted          what the sender was told, as far as it may write
//!   wanted           the sender has whole deliveries up to here, it said
//!   drained          nothing that came is still in memory: all of it was given back
//!   quiet            drained, and nothing more was granted: the ring can go
//! ```

use rocketring::{Ring, RingReceiver};

use super::{InboundShared, ReceiveLog};
use crate::lock::lock;
use crate::proto::Credit;
use crate::state::{Calls, Member, Membership, Need, Share};
use crate::types::Position;

/// See [the module](self).
pub(crate) struct CreditAllocation {
    member: Membership,
    /// What it takes at least to receive a whole delivery, and the ring it would have by itself, in bytes.
    least: u64,
    full: u64,
    /// The capacity of its ring; 0: it has none.
    share: u64,
    /// All of the ring is granted, not only what the sender has.
    ahead: bool,
    /// How far may be granted, if not all of the ring is.
    offer: Position,
    wanted: Position,
    waiting: bool,
    /// The budget knows that the ring is drained; it may be called back.
    idle: bool,
    /// RECALL is under way: nothing is granted before its answer.
    recalling: bool,
}

/// What is to be done for a subscription's ring.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AllocationStep {
    Nothing,
    /// RECALL what was granted.
    Recall,
    /// The ring goes.
    Release,
    /// A ring is needed.
    Take(Need),
}

impl CreditAllocation {
    /// A subscription that begins at `start`, with no ring.
    pub(crate) fn new(member: Membership, start: Position, least: u64, full: u64) -> Self {
        Self {
            member,
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

    /// The largest delivery, or up to twice that, in bytes.
    pub(crate) fn max_delivery(&self) -> u64 {
        self.least / 2
    }

    /// How far the sender may write; less than it was told before counts for nothing.
    pub(super) fn grant(&self) -> Position {
        self.offer
    }

    /// The ring that the subscription would have by itself, in bytes.
    pub(crate) fn full(&self) -> u64 {
        self.full
    }

    pub(crate) fn take(&mut self, need: Need) -> (Option<Share>, Calls) {
        let (share, calls) = self.member.take(need);
        self.waiting = share.is_none();
        (share, calls)
    }

    /// It wants nothing, or gets nothing any more.
    pub(crate) fn leave_line(&mut self) -> Calls {
        if std::mem::take(&mut self.waiting) { self.member.give_back() } else { Calls::default() }
    }
}

impl ReceiveLog {
    fn granted(&self) -> Position {
        self.credit.told().grant
    }

    fn is_drained(&self) -> bool {
        self.pins.is_empty() && self.consumed >= self.log.ring.head()
    }

    /// Whether the sender wants more than it may.
    fn wants_more(&self, allocation: &CreditAllocation) -> bool {
        allocation.wanted > self.granted().max(self.log.ring.head())
    }

    /// Up to where is to be granted, if that is further than before and worth a message.
    fn next_offer(&self, allocation: &CreditAllocation) -> Option<Position> {
        if allocation.share == 0 || allocation.recalling {
            return None;
        }
        let (granted, reach) = (self.granted(), self.log.ring.grant());
        let wants = self.wants_more(allocation);
        // The begin of a delivery is there: the rest must come, or nothing of it can be given back.
        let partial = self.log.ring.head() > self.log.ring.boundary();
        let short = allocation.member.is_short();
        let to = if allocation.ahead && !short {
            reach
        } else if wants
            && (partial || !short && (allocation.share >= allocation.least || allocation.wanted <= reach))
        {
            allocation.wanted.min(reach)
        } else {
            return None;
        };
        let stuck = wants && (partial || self.is_drained() || to == allocation.wanted);
        (to > granted && (stuck || to >= granted + allocation.share / 4)).then_some(to)
    }

    /// Whether the worker has something to do about the ring, as the application gave something back.
    pub(super) fn allocation_due(&self) -> bool {
        let Some(allocation) = &self.allocation else { return false };
        let drained = self.is_drained();
        match allocation.share {
            0 => drained && self.wants_more(allocation),
            _ if allocation.recalling => false,
            _ => {
                drained && (allocation.member.is_short() || self.wants_more(allocation))
                    || self.next_offer(allocation).is_some()
            }
        }
    }

    /// The application gave something back: if that was all, the budget hears that the ring can be called back. Without a
    /// connection it goes at once: nobody could bring more, or be called.
    pub(super) fn look_drained(&mut self) -> Calls {
        let has_ring = self.allocation.as_ref().is_some_and(|allocation| allocation.share > 0);
        if !has_ring || !self.is_drained() {
            return Calls::default();
        }
        if self.receiver.is_some() {
            return self.free_ring();
        }
        match &mut self.allocation {
            Some(allocation) if !allocation.idle => {
                allocation.idle = true;
                allocation.member.idle()
            }
            _ => Calls::default(),
        }
    }

    /// The ring goes, where the landing end is here.
    fn free_ring(&mut self) -> Calls {
        let (receiver, calls) = self.swap_ring(Ring::unbacked(self.log.ring.head()), None);
        self.receiver = receiver;
        calls
    }

    /// What to do now, and whom that concerns. What may be granted is in the next CREDIT.
    pub(crate) fn allocation_step(&mut self) -> (AllocationStep, Calls) {
        let nothing = || (AllocationStep::Nothing, Calls::default());
        let (drained, head) = (self.is_drained(), self.log.ring.head());
        let Some(allocation) = &self.allocation else { return nothing() };
        let wants = self.wants_more(allocation);
        let (short, plenty) =
            (allocation.member.is_short(), wants && !allocation.ahead && allocation.member.is_plenty());
        let release = self.release(allocation);
        let Some(allocation) = &mut self.allocation else { return nothing() };
        if allocation.share == 0 {
            if !wants {
                return (AllocationStep::Nothing, allocation.leave_line());
            }
            // A hole that was not told yet lies in the ring that is there.
            let need =
                Need { bytes: allocation.wanted - head, least: allocation.least, full: allocation.full };
            return (
                if drained { AllocationStep::Take(need) } else { AllocationStep::Nothing },
                Calls::default(),
            );
        }
        if allocation.recalling {
            return nothing();
        }
        if short && drained && release != AllocationStep::Nothing {
            return (release, Calls::default());
        }
        let mut calls = Calls::default();
        if short && std::mem::take(&mut allocation.idle) {
            calls = allocation.member.busy();
        }
        allocation.ahead |= plenty && allocation.share >= allocation.least;
        let offer = self.allocation.as_ref().and_then(|allocation| self.next_offer(allocation));
        let Some(allocation) = &mut self.allocation else { return nothing() };
        match offer {
            Some(to) => allocation.offer = to,
            // What the sender has does not fit.
            None if wants && drained && !allocation.ahead => return (release, calls),
            None => {}
        }
        (AllocationStep::Nothing, calls)
    }

    /// Nothing came for a while.
    pub(crate) fn allocation_at_rest(&self) -> AllocationStep {
        match &self.allocation {
            Some(allocation) if allocation.share > 0 && self.is_drained() && !allocation.recalling => {
                self.release(allocation)
            }
            _ => AllocationStep::Nothing,
        }
    }

    /// How the ring goes in which nothing is. What was granted because the sender asked for it is on its way, and RECALL
    /// would change nothing.
    fn release(&self, allocation: &CreditAllocation) -> AllocationStep {
        let granted = self.granted();
        if granted <= self.log.ring.head() {
            AllocationStep::Release
        } else if granted > allocation.wanted {
            AllocationStep::Recall
        } else {
            AllocationStep::Nothing
        }
    }

    pub(crate) fn recalling(&mut self) {
        if let Some(allocation) = &mut self.allocation {
            allocation.recalling = true;
        }
    }

    /// The sender asked for confirmations, or for credit.
    pub(crate) fn on_ask(&mut self, mut wanted: [Position; 3]) {
        let granted = self.granted();
        if let Some(allocation) = self.allocation.as_mut().filter(|_| wanted[0] > granted) {
            allocation.wanted = allocation.wanted.max(wanted[0]);
            wanted[0] = 0;
        }
        self.credit.on_ask(wanted);
    }

    /// CREDIT, if one is due, with the positions as they are now.
    pub(crate) fn next_credit(&mut self, now: Credit) -> Option<Credit> {
        let granted = self.granted();
        let offers = self
            .allocation
            .as_ref()
            .is_some_and(|allocation| !allocation.recalling && allocation.offer > granted);
        let credit = if offers { self.credit.tell(now) } else { self.credit.credit(now) }?;
        Some(self.as_told(credit))
    }

    /// A CREDIT as it is sent: while a grant is called back none is told.
    pub(crate) fn as_told(&self, credit: Credit) -> Credit {
        match &self.allocation {
            Some(allocation) if allocation.recalling => Credit { grant: credit.landed, ..credit },
            _ => credit,
        }
    }

    /// RECALLED: the grant ends at `at`. False if that is no answer to a RECALL, or more than was granted.
    pub(crate) fn recalled(&mut self, at: Position) -> bool {
        let granted = self.granted();
        let Some(allocation) =
            self.allocation.as_mut().filter(|allocation| allocation.recalling && at <= granted)
        else {
            return false;
        };
        allocation.recalling = false;
        // Whatever it wants beyond that it asks for anew.
        (allocation.offer, allocation.wanted) = (at, at);
        self.credit.take_back(at);
        true
    }

    /// The ring of its share, from here on, or none; returns the ring receiver that is to be bound.
    pub(crate) fn swap_ring(&mut self, ring: Ring, share: Option<Share>) -> (Option<RingReceiver>, Calls) {
        let head = ring.head();
        let Some(allocation) = &mut self.allocation else { return (None, Calls::default()) };
        let calls = if share.is_none() { allocation.member.give_back() } else { Calls::default() };
        allocation.share = share.map_or(0, |share| share.bytes);
        allocation.ahead = share.is_some_and(|share| share.ahead);
        (allocation.idle, allocation.waiting) = (false, false);
        let reach = ring.grant();
        allocation.offer = match share {
            Some(Share { ahead: true, .. }) => reach,
            Some(_) => allocation.wanted.min(reach),
            None => head,
        };
        self.hold = ring.hold(head).ok();
        let receiver = ring.receiver();
        self.log.ring = ring;
        (receiver, calls)
    }

    /// The connection is gone: nothing is granted any more, and the landing end is here.
    pub(crate) fn suspend_allocation(&mut self) -> Calls {
        // Over another connection the sender may not know any more where the delivery ends whose begin is here, and a
        // ring that was made for it may have no room for a later end.
        if let (Some(_), Some(receiver)) = (&self.allocation, &mut self.receiver) {
            receiver.drop_partial();
        }
        let (head, drained) = (self.log.ring.head(), self.is_drained());
        let Some(allocation) = &mut self.allocation else { return Calls::default() };
        allocation.recalling = false;
        allocation.ahead = false;
        (allocation.offer, allocation.wanted) = (head, head);
        let mut calls = allocation.leave_line();
        if std::mem::take(&mut allocation.idle) {
            calls.add(allocation.member.busy());
        }
        let share = allocation.share;
        self.credit.take_back(head);
        if share > 0 && drained {
            calls.add(self.free_ring());
        }
        calls
    }
}

impl InboundShared {
    /// No connection brings anything any more: others need not wait behind it.
    pub(crate) fn detach(&self) {
        let mut state = lock(&self.state);
        state.disconnect();
        let calls = state
            .log
            .as_mut()
            .and_then(|in_log| in_log.allocation.as_mut())
            .map(CreditAllocation::leave_line);
        drop(state);
        calls.unwrap_or_default().run();
    }
}

impl Member for InboundShared {
    fn call(&self) -> Option<Calls> {
        let mut state = lock(&self.state);
        if let Some((conn, _)) = state.wire {
            drop(state);
            self.inner.workers[self.inner.worker_of(conn)].mark(self.slot);
            return None;
        }
        let allocation = state.log.as_mut()?.allocation.as_mut()?;
        allocation.idle = false;
        Some(allocation.member.busy())
    }
}
