//! The memory of a subscription: its ring, its holds there, and its share of a budget. Executes the
//! effects of [`ReceiveSubscription`].

use std::sync::Arc;

use rocketring::{Hold, LazyCursor, Ring, RingReceiver};

use crate::ground::types::Position;
use crate::proto::{
    AllocationStep, BudgetNote, Credit, CreditAllocation, Downstream, Drained, GrantLimit, Need, ReceiveLog,
    ReceiveSubscription, Share,
};
use crate::state::{Calls, Log, Membership};

/// The state that the lock of a subscription protects.
pub(crate) struct SubscriptionState {
    pub(crate) sub: ReceiveSubscription,
    /// The memory, once the subscription was accepted.
    pub(crate) memory: Option<ReceiveMemory>,
}

/// The memory of an accepted subscription.
pub(crate) struct ReceiveMemory {
    pub(crate) log: Log,
    /// The ring receiver while no connection has it.
    pub(crate) receiver: Option<RingReceiver>,
    /// The application's hold.
    hold: Option<Hold>,
    /// Holds data until enough receivers have it (`SubscribeOptions::min_receivers`).
    pub(crate) receivers_hold: Option<Hold>,
    /// The cursor of the reader that reads the subscription alone. The machine catches up with it on demand.
    pub(super) reader: Option<Arc<LazyCursor>>,
    /// The membership of a budget, for a subscription that has a ring only while there is data.
    member: Option<Membership>,
}

impl ReceiveMemory {
    /// Creates the memory of a log that begins at `start`. `keeps`: data is held until enough receivers have
    /// it.
    pub(crate) fn new(log: Log, start: Position, keeps: bool, member: Option<Membership>) -> Self {
        let hold = if log.ring.flow_control() { log.ring.hold(start).ok() } else { None };
        let receivers_hold = keeps.then(|| log.ring.hold(start).ok()).flatten();
        Self { log, receiver: None, hold, receivers_hold, reader: None, member }
    }

    /// Continues the log at `start` in another ring. Returns the former membership, to be dropped without the
    /// lock: returning budget takes the locks of other subscriptions.
    pub(crate) fn move_to(
        &mut self,
        ring: Ring,
        start: Position,
        member: Option<Membership>,
    ) -> Option<Membership> {
        self.hold = if ring.flow_control() { ring.hold(start).ok() } else { None };
        self.log.ring = ring;
        self.reader = None;
        self.receiver = None;
        std::mem::replace(&mut self.member, member)
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.log.ring
    }

    /// Returns whether the application holds data in the ring.
    pub(super) fn has_hold(&self) -> bool {
        self.hold.is_some()
    }

    /// Moves the application's hold to where the log says.
    pub(super) fn move_hold(&self, log: &ReceiveLog) {
        if let Some(hold) = &self.hold {
            hold.advance(log.cursor().holds_at());
        }
    }

    /// Gives up the ring. A ring of a budget goes by itself once it is drained.
    fn drop_ring(&mut self) {
        if self.member.is_none() {
            (self.receiver, self.hold, self.receivers_hold, self.reader) = (None, None, None, None);
            self.log.ring = Ring::unbacked(self.ring().head());
        }
    }

    /// Returns whether any subscription waits for the budget.
    fn is_short(&self) -> bool {
        self.member.as_ref().is_some_and(Membership::is_short)
    }

    fn note(&self, note: Option<BudgetNote>) -> Calls {
        let (Some(member), Some(note)) = (&self.member, note) else { return Calls::default() };
        match note {
            BudgetNote::Idle => member.idle(),
            BudgetNote::Busy => member.busy(),
            BudgetNote::GiveBack => member.give_back(),
        }
    }

    /// Returns whether the worker has something to do after the application released data.
    pub(super) fn is_credit_due(&self, log: &ReceiveLog) -> bool {
        log.is_credit_due(self.ring(), self.is_short())
    }

    /// Handles a release by the application: the budget learns of a drained ring. The worker is not needed
    /// for that without a connection.
    pub(super) fn on_released(&mut self, log: &mut ReceiveLog) -> Calls {
        match log.on_released(self.ring(), self.receiver.is_some()) {
            None => Calls::default(),
            Some(Drained::Idle) => self.note(Some(BudgetNote::Idle)),
            Some(Drained::Free) => self.free_ring(log),
        }
    }

    /// Frees the ring. The ring receiver must be here.
    fn free_ring(&mut self, log: &mut ReceiveLog) -> Calls {
        let (receiver, calls) = self.swap_ring(log, Ring::unbacked(self.ring().head()), None);
        self.receiver = receiver;
        calls
    }

    /// Replaces the ring, by one of the given share or by an empty one. Returns the ring receiver to bind.
    fn swap_ring(
        &mut self,
        log: &mut ReceiveLog,
        ring: Ring,
        share: Option<Share>,
    ) -> (Option<RingReceiver>, Calls) {
        if self.member.is_none() {
            return (None, Calls::default());
        }
        let calls = if share.is_none() { self.note(Some(BudgetNote::GiveBack)) } else { Calls::default() };
        log.on_ring(&ring, share);
        self.hold = ring.hold(ring.head()).ok();
        let receiver = ring.receiver();
        self.log.ring = ring;
        (receiver, calls)
    }
}

impl SubscriptionState {
    pub(super) fn new(sub: ReceiveSubscription) -> Self {
        Self { sub, memory: None }
    }

    /// Returns the log and its memory, if the subscription was accepted.
    pub(crate) fn parts(&mut self) -> Option<(&mut ReceiveLog, &mut ReceiveMemory)> {
        self.sub.log_mut().zip(self.memory.as_mut())
    }

    /// Returns the ring, if the subscription was accepted.
    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.memory.as_ref().map(ReceiveMemory::ring)
    }

    /// Handles SUBSCRIBED for a new log.
    pub(crate) fn begin(&mut self, log: ReceiveLog, memory: ReceiveMemory) {
        self.sub.begin(log);
        self.memory = Some(memory);
    }

    /// Marks the subscription as suspended: no connection brings data.
    pub(crate) fn disconnect(&mut self) {
        self.sub.disconnect();
        if let Some(ring) = self.ring() {
            ring.stop_following();
        }
    }

    /// Returns the connection over which the subscription resumes, if it only waited for the application to
    /// release data.
    pub(super) fn resumes(&mut self) -> Option<u64> {
        if !self.sub.waits_to_resume() {
            return None;
        }
        self.ask_reader();
        let boundary = self.ring().map_or(0, Ring::boundary);
        self.sub.resumes(boundary)
    }

    /// Takes over the position of a reader that reads alone. Returns whether others may read on.
    pub(crate) fn catch_up(&mut self) -> bool {
        let Some((log, memory)) = self.parts() else { return true };
        let Some(reader) = &memory.reader else { return true };
        if log.cursor_mut().catch_up(reader.position(), &memory.log.ring) {
            memory.move_hold(log);
        }
        false
    }

    /// Asks the reader to report when it moves, since the peer waits for that. The present position counts
    /// already.
    pub(crate) fn ask_reader(&mut self) {
        if let Some(reader) = self.memory.as_ref().and_then(|memory| memory.reader.as_ref()) {
            reader.request();
        }
        self.catch_up();
    }

    /// Moves the hold of kept data past the bytes that enough receivers have.
    pub(crate) fn keep_for(&self, downstream: &Downstream) {
        let (Some(log), Some(memory)) = (self.sub.log(), &self.memory) else { return };
        if let Some(receivers_hold) = &memory.receivers_hold
            && let Some(at) = log.keeps_from(memory.ring(), downstream)
        {
            receivers_hold.advance(at);
        }
    }

    /// Returns the present positions to report upstream.
    pub(crate) fn credit_now(&self, downstream: Option<&Downstream>) -> Option<Credit> {
        self.sub.log().zip(self.ring()).map(|(log, ring)| log.credit_now(ring, downstream))
    }

    /// Returns the CREDIT to send, due or not.
    pub(crate) fn tell(&mut self, downstream: Option<&Downstream>, limit: GrantLimit) -> Option<Credit> {
        self.catch_up();
        let (log, memory) = self.parts()?;
        log.tell(log.limited(log.credit_now(memory.ring(), downstream), limit))
    }

    /// Returns whether the sender may still write.
    pub(crate) fn is_granted_beyond_head(&self) -> bool {
        let head = self.ring().map_or(0, Ring::head);
        self.sub.log().is_some_and(|log| log.credit().told().grant > head)
    }

    /// Returns the CREDIT to send, if one is due, and whether the log has ended and every receiver has
    /// released all of it.
    pub(crate) fn next_credit(
        &mut self,
        downstream: Option<&Downstream>,
        limit: GrantLimit,
    ) -> Option<(Option<Credit>, bool)> {
        if self.sub.log()?.credit().is_asked() {
            self.ask_reader();
        } else {
            self.catch_up();
        }
        if let Some(downstream) = downstream {
            // A downstream receiver that resumed may already have the bytes that land only now.
            self.keep_for(downstream);
        }
        let now = self.credit_now(downstream)?;
        let finished = self.sub.is_released(&now);
        let log = self.sub.log_mut()?;
        Some((log.next_credit(log.limited(now, limit)), finished))
    }

    /// Handles a lost connection, which has returned the ring receiver.
    pub(crate) fn suspend(&mut self, receiver: Option<RingReceiver>) -> Calls {
        self.disconnect();
        let Some((log, memory)) = self.parts() else { return Calls::default() };
        if let Some(receiver) = receiver {
            memory.receiver = Some(receiver);
        }
        // After a resume over another connection the sender may no longer know where the incomplete delivery
        // ends. A new ring for a later end might be too small.
        if let (Some(_), Some(receiver)) = (&memory.member, &mut memory.receiver) {
            receiver.drop_partial();
        }
        let Some(suspension) = log.suspend(memory.ring()) else { return Calls::default() };
        let mut calls = Calls::default();
        suspension.notes.into_iter().for_each(|note| calls.add(memory.note(note)));
        if suspension.free_ring {
            calls.add(memory.free_ring(log));
        }
        calls
    }

    /// Gives up the ring of a closed log of which nothing but the last CREDIT is left to send: the application has received
    /// the end, no connection needs the ring, and everything was released.
    pub(super) fn drop_released_ring(&mut self, downstream: Option<&Downstream>) {
        let waits = self.sub.is_unsettled() && self.sub.is_over() && self.sub.wire().is_none();
        if waits
            && self.credit_now(downstream).is_some_and(|now| self.sub.is_released(&now))
            && let Some(memory) = &mut self.memory
        {
            memory.drop_ring();
        }
    }

    /// Returns the next step for the ring of a subscription that shares a budget, and the calls to make
    /// afterwards.
    pub(crate) fn allocation_step(&mut self) -> (AllocationStep, Calls) {
        let nothing = (AllocationStep::Nothing, Calls::default());
        let Some((log, memory)) = self.parts() else { return nothing };
        let (at, short) = (log.ring_positions(memory.ring()), memory.is_short());
        let Some(allocation) = log.allocation_mut() else { return nothing };
        let plenty = || memory.member.as_ref().is_some_and(Membership::is_plenty);
        let (step, note) = allocation.step(&at, short, plenty);
        (step, memory.note(note))
    }

    /// Returns the next step when nothing arrived for a while.
    pub(crate) fn allocation_at_rest(&self) -> AllocationStep {
        let (Some(log), Some(ring)) = (self.sub.log(), self.ring()) else { return AllocationStep::Nothing };
        let step = |allocation: &CreditAllocation| allocation.at_rest(&log.ring_positions(ring));
        log.allocation().map_or(AllocationStep::Nothing, step)
    }

    /// Takes a share of the budget; `None` if the subscription has to wait, or if it has no budget.
    pub(crate) fn take_share(&mut self, need: Need) -> (Option<Share>, Calls) {
        let Some((log, memory)) = self.parts() else { return (None, Calls::default()) };
        let (Some(member), Some(allocation)) = (&memory.member, log.allocation_mut()) else {
            return (None, Calls::default());
        };
        let (share, calls) = member.take(need);
        allocation.on_share(share);
        (share, calls)
    }

    /// Replaces the ring, by one of the given share or by an empty one. Returns the ring receiver to bind.
    pub(crate) fn swap_ring(&mut self, ring: Ring, share: Option<Share>) -> (Option<RingReceiver>, Calls) {
        match self.parts() {
            Some((log, memory)) => memory.swap_ring(log, ring, share),
            None => (None, Calls::default()),
        }
    }

    /// Leaves the budget. Returns the membership, to be dropped without the lock.
    pub(crate) fn leave_budget(&mut self) -> Option<Membership> {
        let (log, memory) = self.parts()?;
        log.leave_budget();
        memory.member.take()
    }

    /// Marks the subscription as suspended and leaves the budget's queue, so that other subscriptions do not
    /// wait behind it.
    pub(super) fn detach(&mut self) -> Calls {
        self.disconnect();
        let Some((log, memory)) = self.parts() else { return Calls::default() };
        memory.note(log.allocation_mut().and_then(CreditAllocation::leave_queue))
    }

    /// Handles a call of the budget while no connection brings data.
    pub(super) fn on_call(&mut self) -> Option<Calls> {
        let (log, memory) = self.parts()?;
        // Without a connection the ring goes as soon as it is drained, so it is never idle.
        let _ = log.allocation_mut()?.become_busy();
        Some(memory.note(Some(BudgetNote::Busy)))
    }
}
