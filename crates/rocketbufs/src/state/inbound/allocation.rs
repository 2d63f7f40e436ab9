//! A subscription that has a ring only while there is data: its share of a budget.
//!
//! ```text
//!   granted          the position up to which the sender was told it may write
//!   wanted           the position up to which the sender said it has whole deliveries
//!   drained          no received byte is in memory: all were released
//!   quiet            drained, and nothing beyond was granted: the ring can go
//! ```

use rocketring::{Ring, RingReceiver};

use super::{InboundShared, ReceiveLog};
use crate::lock::lock;
use crate::proto::Credit;
use crate::state::{Calls, Member, Membership, Need, Share};
use crate::types::Position;

/// Credit on demand, see [the module](self).
pub(crate) struct CreditAllocation {
    member: Membership,
    /// The least bytes that a whole delivery needs, and the capacity of the ring that the subscription would
    /// have without a budget.
    least: u64,
    full: u64,
    /// The capacity of the ring in bytes; 0 without a ring.
    share: u64,
    /// Whether the whole ring is granted, not only what the sender has.
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

/// The next step of the worker for the ring of a subscription.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AllocationStep {
    Nothing,
    /// Send RECALL for the grant.
    Recall,
    /// Free the ring.
    Release,
    /// Take a ring from the budget.
    Take(Need),
}

impl CreditAllocation {
    /// Creates the allocation of a subscription that begins at `start`, without a ring.
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

    /// Returns a bound of the largest delivery, at most twice its size, in bytes.
    pub(crate) fn max_delivery(&self) -> u64 {
        self.least / 2
    }

    /// Returns the position up to which the sender may write. A smaller value than the last granted one has
    /// no effect.
    pub(super) fn grant(&self) -> Position {
        self.offer
    }

    /// Returns the bytes of the ring that the subscription would have without a budget.
    pub(crate) fn full(&self) -> u64 {
        self.full
    }

    pub(crate) fn take(&mut self, need: Need) -> (Option<Share>, Calls) {
        let (share, calls) = self.member.take(need);
        self.waiting = share.is_none();
        (share, calls)
    }

    /// Leaves the budget's queue: the subscription needs nothing, or gets nothing any more.
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

    /// Returns whether the sender has more data than it may send.
    fn wants_more(&self, allocation: &CreditAllocation) -> bool {
        allocation.wanted > self.granted().max(self.log.ring.head())
    }

    /// Returns the next position to grant, if it is further than before and worth a message.
    fn next_offer(&self, allocation: &CreditAllocation) -> Option<Position> {
        if allocation.share == 0 || allocation.recalling {
            return None;
        }
        let (granted, reach) = (self.granted(), self.log.ring.grant());
        let wants = self.wants_more(allocation);
        // The ring has the start of a delivery. Its rest must arrive before any of it can be released.
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

    /// Returns whether the worker has something to do about the ring after the application released data.
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

    /// Handles a release by the application. If nothing is left, the budget learns that the ring can be
    /// recalled. Without a connection the ring is freed at once, since no data can arrive and there is no
    /// peer for a RECALL.
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

    /// Frees the ring. The ring receiver must be here.
    fn free_ring(&mut self) -> Calls {
        let (receiver, calls) = self.swap_ring(Ring::unbacked(self.log.ring.head()), None);
        self.receiver = receiver;
        calls
    }

    /// Returns what to do now, and the calls to make afterwards. The next CREDIT carries what may be granted.
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
            // An unreported hole is in the present ring.
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
            // The sender's data does not fit into the ring.
            None if wants && drained && !allocation.ahead => return (release, calls),
            None => {}
        }
        (AllocationStep::Nothing, calls)
    }

    /// Returns what to do when nothing arrived for a while.
    pub(crate) fn allocation_at_rest(&self) -> AllocationStep {
        match &self.allocation {
            Some(allocation) if allocation.share > 0 && self.is_drained() && !allocation.recalling => {
                self.release(allocation)
            }
            _ => AllocationStep::Nothing,
        }
    }

    /// Returns how to free a drained ring. Data that the sender asked to send is already in flight, so RECALL
    /// would change nothing there.
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

    /// Handles ASK, for confirmations or for credit.
    pub(crate) fn on_ask(&mut self, mut wanted: [Position; 3]) {
        let granted = self.granted();
        if let Some(allocation) = self.allocation.as_mut().filter(|_| wanted[0] > granted) {
            allocation.wanted = allocation.wanted.max(wanted[0]);
            wanted[0] = 0;
        }
        self.credit.on_ask(wanted);
    }

    /// Returns the CREDIT to send, if one is due, for the present positions.
    pub(crate) fn next_credit(&mut self, now: Credit) -> Option<Credit> {
        let granted = self.granted();
        let offers = self
            .allocation
            .as_ref()
            .is_some_and(|allocation| !allocation.recalling && allocation.offer > granted);
        let credit = if offers { self.credit.tell(now) } else { self.credit.credit(now) }?;
        Some(self.as_told(credit))
    }

    /// Adapts a CREDIT before it is sent: no grant while a RECALL is in flight.
    pub(crate) fn as_told(&self, credit: Credit) -> Credit {
        match &self.allocation {
            Some(allocation) if allocation.recalling => Credit { grant: credit.landed, ..credit },
            _ => credit,
        }
    }

    /// Handles RECALLED: the grant ends at `at`. Returns false without a RECALL in flight, or if `at` is
    /// beyond the grant.
    pub(crate) fn recalled(&mut self, at: Position) -> bool {
        let granted = self.granted();
        let Some(allocation) =
            self.allocation.as_mut().filter(|allocation| allocation.recalling && at <= granted)
        else {
            return false;
        };
        allocation.recalling = false;
        // The sender asks again for whatever it has beyond that.
        (allocation.offer, allocation.wanted) = (at, at);
        self.credit.take_back(at);
        true
    }

    /// Replaces the ring, by one of the given share or by an empty one. Returns the ring receiver to bind.
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

    /// Handles a lost connection: the grant is void, and the ring receiver is here.
    pub(crate) fn suspend_allocation(&mut self) -> Calls {
        // After a resume over another connection the sender may no longer know where the incomplete delivery
        // ends. A new ring for a later end might be too small.
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
    /// Marks the subscription as suspended and leaves the budget's queue, so that other subscriptions do not
    /// wait behind it.
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
