//! The log of an accepted subscription, and the reports that are due upstream.

use rocketring::Ring;

use super::allocation::{CreditAllocation, Drained, RingPositions, Share, Suspension};
use super::credit_report::CreditReport;
use super::cursor::ReceiveCursor;
use crate::ground::planted;
use crate::ground::types::{Epoch, Position};
use crate::proto::coverage::Coverage;
use crate::proto::credit::Credit;

/// The options of an accepted subscription.
#[derive(Debug, Clone, Copy)]
pub struct ReceiveConfig {
    /// Report only released bytes as landed.
    pub confirm_consumed: bool,
    /// Whether the application reports how far forwarded data is confirmed.
    pub relays: bool,
    /// Whether the sender holds unreleased bytes while the connection is gone: the subscription is durable.
    pub place_kept: bool,
    /// The most bytes of one view; 0: no limit.
    pub max_view_bytes: u64,
    /// Whether data is kept until enough receivers downstream have it.
    pub keeps_for_others: bool,
    /// The subscription has every byte from here on.
    pub covered_from: Position,
}

/// The progress of the receivers downstream of a splice.
#[derive(Debug, Clone, Copy)]
pub struct Downstream {
    /// Bytes below this position are in the memory of every last receiver.
    pub delivered: Position,
    /// Bytes below this position were released by all counted receivers.
    pub consumed: Position,
    /// The receivers that the positions speak for.
    pub coverage: Coverage,
}

/// How much a CREDIT may grant, by the limits of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantLimit {
    /// Everything for which the ring has room.
    Unlimited,
    /// At most one window beyond the landed bytes.
    Window,
    /// Nothing more than before.
    Nothing,
}

/// Up to where forwarded data is confirmed.
#[derive(Debug, Clone, Copy)]
struct Relayed {
    delivered: Position,
    consumed: Position,
    coverage: Coverage,
}

/// The positions of an accepted subscription, see the module.
#[derive(Debug)]
pub struct ReceiveLog {
    config: ReceiveConfig,
    epoch: Epoch,
    credit: CreditReport,
    /// The share of a budget, for a subscription that has a ring only while there is data.
    allocation: Option<CreditAllocation>,
    relayed: Option<Relayed>,
    covered_from: Position,
    cursor: ReceiveCursor,
}

impl ReceiveLog {
    /// Creates the log of a subscription that begins at `start`. `window`: the smaller of the two rings'
    /// capacities for bytes in flight.
    pub fn new(
        config: ReceiveConfig,
        epoch: Epoch,
        start: Position,
        window: u64,
        allocation: Option<CreditAllocation>,
    ) -> Self {
        let nothing = Relayed { delivered: start, consumed: start, coverage: Coverage::default() };
        Self {
            config,
            epoch,
            credit: CreditReport::new(start, window),
            allocation,
            relayed: config.relays.then_some(nothing),
            covered_from: config.covered_from,
            cursor: ReceiveCursor::new(start, config.max_view_bytes),
        }
    }

    /// Continues the log at `start` in another ring. Nothing in the old one is needed any more.
    pub fn move_to(&mut self, start: Position, window: u64, allocation: Option<CreditAllocation>) {
        self.credit = CreditReport::new(start, window);
        self.allocation = allocation;
        self.cursor.move_to(start);
    }

    /// Returns the epoch of the writer's log.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the application's cursor.
    pub fn cursor(&self) -> &ReceiveCursor {
        &self.cursor
    }

    /// Returns the application's cursor, to change it.
    pub fn cursor_mut(&mut self) -> &mut ReceiveCursor {
        &mut self.cursor
    }

    /// Gives all further data to a reader. Returns its first position, or `None` if the subscription relays
    /// or has no ring of its own, or if received data was not released yet.
    pub fn begin_reading(&mut self, ring: &Ring) -> Option<Position> {
        let plain = self.relayed.is_none() && self.allocation.is_none();
        if plain { self.cursor.begin_reading(ring) } else { None }
    }

    /// Returns the last CREDIT and the positions that the sender waits for.
    pub fn credit(&self) -> &CreditReport {
        &self.credit
    }

    /// Returns the share of a budget, if the subscription has one.
    pub fn allocation(&self) -> Option<&CreditAllocation> {
        self.allocation.as_ref()
    }

    /// Returns the share of a budget, to change it.
    pub fn allocation_mut(&mut self) -> Option<&mut CreditAllocation> {
        self.allocation.as_mut()
    }

    /// Returns the position up to which every receiver that this end speaks for has released the data.
    pub fn consumed_by_all(&self) -> Position {
        self.relayed.map_or(self.cursor.consumed(), |relayed| relayed.consumed)
    }

    /// Returns the position below which enough receivers have the data, if it is kept for them.
    pub fn keeps_from(&self, ring: &Ring, downstream: &Downstream) -> Option<Position> {
        // Part of a delivery is of no use to another receiver.
        if self.config.keeps_for_others { ring.boundary_at_or_before(downstream.delivered) } else { None }
    }

    /// Handles LOST, a hole up to `to`. `skipped`: the ring receiver continues there. Returns false if the
    /// sender must not report that hole.
    pub fn on_lost(&mut self, to: Position, skipped: bool, ring: &Ring) -> bool {
        if skipped {
            self.covered_from = to;
        }
        // A reader of the writer's own ring, past a relay, may have bytes that the relay lost.
        skipped || ring.is_peer_written() && ring.boundary() >= to
    }

    /// Records how far forwarded data is confirmed. Returns false if the subscription does not relay.
    pub fn confirm(&mut self, delivered: Position, consumed: Position, coverage: Coverage) -> bool {
        let Some(told) = &mut self.relayed else { return false };
        // Positions never go back. The coverage belongs to the positions that came with it.
        told.delivered = told.delivered.max(delivered);
        told.consumed = told.consumed.max(consumed);
        told.coverage = coverage;
        true
    }
}

/// Reports upstream.
impl ReceiveLog {
    /// Returns the present positions to report upstream.
    pub fn credit_now(&self, ring: &Ring, downstream: Option<&Downstream>) -> Credit {
        // A ring on demand drops an incomplete delivery with the connection.
        let landed = if self.allocation.is_some() { ring.boundary() } else { ring.head() };
        // Bytes in the sender's memory count as landed only if the sender holds them with or without a
        // connection.
        let lent = ring.is_peer_written() && ring.flow_control() && !self.config.place_kept;
        let landed = if lent { ring.slowest_hold().map_or(landed, |at| at.min(landed)) } else { landed };
        let early = if planted::is(planted::LANDED_EARLY) { self.credit.quarter().min(64) } else { 0 };
        let landed = landed + early;
        let grant = match &self.allocation {
            Some(allocation) => allocation.grant(),
            None if ring.flow_control() => ring.grant(),
            None => landed,
        };
        match downstream {
            Some(downstream) => {
                let delivered = downstream.delivered.min(landed);
                let consumed = downstream.consumed.min(delivered);
                Credit { landed, delivered, consumed, grant, coverage: downstream.coverage }
            }
            // The subscription is not spliced yet, so there is no receiver downstream.
            None if self.config.keeps_for_others => Credit { landed, grant, ..Credit::default() },
            None => self.own_credit(landed, grant),
        }
    }

    /// Returns the positions of a subscription whose only receiver is the application.
    fn own_credit(&self, landed: Position, grant: Position) -> Credit {
        let consumed = self.cursor.consumed().min(landed);
        if let Some(Relayed { delivered, consumed: by_all, coverage }) = self.relayed {
            let (landed, delivered) = (consumed, delivered.min(consumed));
            return Credit { landed, delivered, consumed: by_all.min(delivered), grant, coverage };
        }
        let landed = if self.config.confirm_consumed { consumed } else { landed };
        Credit { landed, delivered: landed, consumed, grant, coverage: self.own_coverage() }
    }

    fn own_coverage(&self) -> Coverage {
        let (lost, overwritten_to) = self.cursor.overwritten();
        Coverage { lost, covered_from: self.covered_from.max(overwritten_to), ..Coverage::ONE }
    }

    /// Returns whether the worker has to send CREDIT, or to look at the ring, after the application released
    /// data. `short`: any subscription waits for the budget.
    pub fn is_credit_due(&self, ring: &Ring, short: bool) -> bool {
        let plain = self.allocation.is_none() && self.relayed.is_none();
        let bound = self.cursor.consumed().saturating_add(ring.capacity());
        if plain && !self.credit.may_be_due(ring.head(), bound, self.own_coverage()) {
            return false;
        }
        self.is_allocation_due(ring, short) || self.credit.is_due(&self.credit_now(ring, None))
    }

    /// Returns the present positions with a limited grant. A grant on demand is of what exists already, and only stopped.
    pub fn limited(&self, now: Credit, limit: GrantLimit) -> Credit {
        let told = self.granted();
        let grant = match limit {
            GrantLimit::Unlimited => now.grant,
            GrantLimit::Window if self.allocation.is_some() => now.grant,
            GrantLimit::Window => {
                now.grant.min(now.landed.saturating_add(4 * self.credit.quarter()).max(told))
            }
            GrantLimit::Nothing => told,
        };
        Credit { grant, ..now }
    }

    /// Returns the CREDIT to send, if one is due, for the present positions.
    pub fn next_credit(&mut self, now: Credit) -> Option<Credit> {
        let granted = self.granted();
        let offers = self.allocation.as_ref().is_some_and(|allocation| allocation.has_offer(granted));
        if offers && now.grant > granted {
            self.tell(now)
        } else {
            self.credit.credit(now).map(|credit| self.as_told(credit))
        }
    }

    /// Returns the CREDIT to send for the present positions, due or not.
    pub fn tell(&mut self, now: Credit) -> Option<Credit> {
        self.credit.tell(now).map(|credit| self.as_told(credit))
    }

    /// Adapts a CREDIT before it is sent: no grant while a RECALL is in flight.
    fn as_told(&self, credit: Credit) -> Credit {
        match &self.allocation {
            Some(allocation) if allocation.is_recalling() => Credit { grant: credit.landed, ..credit },
            _ => credit,
        }
    }

    /// Handles ASK, for confirmations or for credit.
    pub fn on_ask(&mut self, mut wanted: [Position; 3]) {
        let granted = self.granted();
        if let Some(allocation) = self.allocation.as_mut().filter(|_| wanted[0] > granted) {
            allocation.on_ask(wanted[0]);
            wanted[0] = 0;
        }
        self.credit.on_ask(wanted);
    }
}

/// The share of a budget.
impl ReceiveLog {
    fn granted(&self) -> Position {
        self.credit.told().grant
    }

    /// Returns the positions that decide about the ring.
    pub fn ring_positions(&self, ring: &Ring) -> RingPositions {
        RingPositions {
            head: ring.head(),
            boundary: ring.boundary(),
            room: ring.grant(),
            granted: self.granted(),
            drained: self.cursor.is_given_back(ring.head()),
        }
    }

    fn is_allocation_due(&self, ring: &Ring, short: bool) -> bool {
        let is_due = |allocation: &CreditAllocation| allocation.is_due(&self.ring_positions(ring), short);
        self.allocation.as_ref().is_some_and(is_due)
    }

    /// Handles a release by the application. `detached`: no connection brings data.
    pub fn on_released(&mut self, ring: &Ring, detached: bool) -> Option<Drained> {
        let allocation = self.allocation.as_mut()?;
        let drained = self.cursor.is_given_back(ring.head());
        allocation.on_released(drained, detached)
    }

    /// The subscription has a ring of its own from now on.
    pub fn leave_budget(&mut self) {
        self.allocation = None;
    }

    /// The sender has given up what was granted beyond `at`, for RECALLs that were sent before the budget was left.
    pub fn take_back(&mut self, at: Position) {
        self.credit.take_back(at.min(self.granted()).max(self.cursor.consumed()));
    }

    /// Handles RECALLED: the grant ends at `at`. Returns false if the sender must not send that.
    pub fn on_recalled(&mut self, at: Position) -> bool {
        let granted = self.granted();
        let answers = self.allocation.as_mut().is_some_and(|allocation| allocation.on_recalled(at, granted));
        if answers {
            self.credit.take_back(at);
        }
        answers
    }

    /// Records that the subscription has another ring, of a share or without memory.
    pub fn on_ring(&mut self, ring: &Ring, share: Option<Share>) {
        if let Some(allocation) = &mut self.allocation {
            allocation.on_ring(share, ring.head(), ring.grant());
        }
    }

    /// Handles a lost connection, after an incomplete delivery was dropped. `None` without a share.
    pub fn suspend(&mut self, ring: &Ring) -> Option<Suspension> {
        let (head, drained) = (ring.head(), self.cursor.is_given_back(ring.head()));
        let suspension = self.allocation.as_mut()?.suspend(head, drained);
        self.credit.take_back(head);
        Some(suspension)
    }
}
