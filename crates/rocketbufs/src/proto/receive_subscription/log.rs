//! The positions of an accepted subscription: what was read, released, and is to be reported upstream.
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

use rocketring::{Ring, verify};

use super::allocation::{CreditAllocation, Drained, RingPositions, Share, Suspension};
use super::credit_report::CreditReport;
use super::item::Item;
use crate::planted;
use crate::proto::coverage::Coverage;
use crate::proto::credit::Credit;
use crate::types::{Epoch, Position};

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

/// What the receivers downstream of a splice have.
#[derive(Debug, Clone, Copy)]
pub struct Downstream {
    /// Everything below is in the memory of every last receiver.
    pub delivered: Position,
    /// Everything below was released by every such receiver.
    pub consumed: Position,
    /// The receivers that the positions speak for.
    pub coverage: Coverage,
}

/// More was released than was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMuch {
    /// The bytes that were received and not released yet.
    pub received: u64,
}

/// Up to where forwarded data is confirmed.
#[derive(Debug, Clone, Copy)]
struct Relayed {
    delivered: Position,
    consumed: Position,
    coverage: Coverage,
}

/// The positions of an accepted subscription, see [the module](self).
#[derive(Debug)]
pub struct ReceiveLog {
    config: ReceiveConfig,
    epoch: Epoch,
    credit: CreditReport,
    /// The share of a budget, for a subscription that has a ring only while there is data.
    allocation: Option<CreditAllocation>,
    relayed: Option<Relayed>,
    covered_from: Position,
    consumed: Position,
    read: Position,
    pins: Vec<Position>,
    /// The last known position of the reader that reads the subscription alone.
    reader: Option<Position>,
}

impl ReceiveLog {
    /// Creates the log of a subscription that begins at `start`. `window`: the smaller of the two rings'
    /// capacities for bytes in flight.
    pub fn new(
        config: ReceiveConfig,
        (epoch, start): (Epoch, Position),
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
            consumed: start,
            read: start,
            pins: Vec::new(),
            reader: None,
        }
    }

    /// Continues the log at `start` in another ring. Nothing in the old one is needed any more.
    pub fn move_to(&mut self, start: Position, window: u64, allocation: Option<CreditAllocation>) {
        self.credit = CreditReport::new(start, window);
        self.allocation = allocation;
        self.read = start;
        self.consumed = start;
        self.reader = None;
    }

    /// Returns the epoch of the writer's log.
    pub fn epoch(&self) -> Epoch {
        self.epoch
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

    /// Everything below was released.
    pub fn consumed(&self) -> Position {
        self.consumed
    }

    /// Everything below was handed out.
    pub fn read(&self) -> Position {
        self.read
    }

    /// Returns the position up to which every receiver that this end speaks for has released the data.
    pub fn consumed_by_all(&self) -> Position {
        self.relayed.map_or(self.consumed, |relayed| relayed.consumed)
    }

    /// Returns the position that the application holds in the ring.
    pub fn holds_at(&self) -> Position {
        let pins = self.pins.iter().copied().filter(|_| !planted::is(planted::PIN_IGNORED));
        pins.min().unwrap_or(Position::MAX).min(self.consumed)
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

/// The release of data.
impl ReceiveLog {
    /// Releases everything below `to`. Released data counts as read, since only held data may be handed out.
    pub fn give_back(&mut self, to: Position, ring: &Ring) {
        let to = self.reader.map_or(to, |reader| to.min(reader));
        self.consumed = self.consumed.max(to);
        self.read = self.read.max(to);
        // A reported hole is released with the last bytes before it.
        while self.consumed < self.read
            && let Some(gap) = ring.gap_after(self.consumed)
            && gap.from <= self.consumed
        {
            self.consumed = gap.to.min(self.read);
        }
    }

    /// Releases everything below `to`, as far as it was received.
    pub fn give_back_received(&mut self, to: Position, ring: &Ring) {
        self.give_back(to.min(self.reached(ring)), ring);
    }

    /// Releases the oldest `size` bytes.
    ///
    /// # Errors
    /// Not so many bytes were received.
    pub fn consume(&mut self, size: u64, ring: &Ring) -> Result<(), TooMuch> {
        let boundary = self.reached(ring);
        let mut left = size;
        let mut to = self.consumed;
        while let Some(gap) = ring.gap_after(to) {
            let before = gap.from.saturating_sub(to);
            if left <= before {
                break;
            }
            left -= before;
            to = gap.to;
        }
        if left > boundary.saturating_sub(to) {
            return Err(TooMuch { received: boundary.saturating_sub(self.consumed) });
        }
        self.give_back(to + left, ring);
        Ok(())
    }

    /// Returns the position up to which data may be released.
    fn reached(&self, ring: &Ring) -> Position {
        self.reader.unwrap_or_else(|| ring.boundary())
    }

    /// Holds everything from `at` for a view.
    pub fn pin(&mut self, at: Position) {
        self.pins.push(at);
    }

    /// Ends the hold of a view.
    pub fn unpin(&mut self, at: Position) {
        if let Some(index) = self.pins.iter().position(|pin| *pin == at) {
            self.pins.swap_remove(index);
        }
    }

    /// Moves the hold of a view forward.
    pub fn move_pin(&mut self, at: Position, to: Position) {
        if let Some(pin) = self.pins.iter_mut().find(|pin| **pin == at) {
            *pin = to;
        }
    }

    /// Returns whether every complete delivery up to `boundary` was released.
    pub fn is_given_back(&self, boundary: Position) -> bool {
        self.pins.is_empty() && self.consumed >= boundary
    }

    fn is_drained(&self, ring: &Ring) -> bool {
        self.is_given_back(ring.head())
    }
}

/// A reader that reads alone.
impl ReceiveLog {
    /// Returns whether a reader takes the data.
    pub fn is_read_alone(&self) -> bool {
        self.reader.is_some()
    }

    /// Gives all further data to a reader. Returns its first position, or `None` if received data was not
    /// released yet.
    pub fn begin_reading(&mut self, ring: &Ring) -> Option<Position> {
        let plain = self.reader.is_none() && self.relayed.is_none() && self.allocation.is_none();
        let given_back = self.pins.is_empty() && self.consumed == self.read;
        if !(plain && given_back && ring.head() == self.read) {
            return None;
        }
        self.reader = Some(self.read);
        Some(self.read)
    }

    /// Takes over the reader's position. Returns whether anything was released.
    pub fn catch_up(&mut self, reader: Position, ring: &Ring) -> bool {
        self.reader = Some(reader);
        let moves = reader > self.consumed;
        if moves {
            self.give_back(reader, ring);
        }
        moves
    }

    /// Ends the reading alone. The reader was shown everything up to `read`.
    pub fn end_reading(&mut self, read: Position) {
        self.reader = None;
        self.read = self.read.max(read);
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
        let consumed = self.consumed.min(landed);
        if let Some(Relayed { delivered, consumed: by_all, coverage }) = self.relayed {
            let (landed, delivered) = (consumed, delivered.min(consumed));
            return Credit { landed, delivered, consumed: by_all.min(delivered), grant, coverage };
        }
        let landed = if self.config.confirm_consumed { consumed } else { landed };
        Credit { landed, delivered: landed, consumed, grant, coverage: self.own_coverage() }
    }

    fn own_coverage(&self) -> Coverage {
        Coverage { covered_from: self.covered_from, ..Coverage::ONE }
    }

    /// Returns whether the worker has to send CREDIT, or to look at the ring, after the application released
    /// data. `short`: any subscription waits for the budget.
    pub fn is_credit_due(&self, ring: &Ring, short: bool) -> bool {
        let plain = self.allocation.is_none() && self.relayed.is_none();
        let bound = self.consumed.saturating_add(ring.capacity());
        if plain && !self.credit.may_be_due(ring.head(), bound, self.own_coverage()) {
            return false;
        }
        self.is_allocation_due(ring, short) || self.credit.is_due(&self.credit_now(ring, None))
    }

    /// Returns the CREDIT to send, if one is due, for the present positions.
    pub fn next_credit(&mut self, now: Credit) -> Option<Credit> {
        let granted = self.granted();
        let offers = self.allocation.as_ref().is_some_and(|allocation| allocation.has_offer(granted));
        if offers { self.tell(now) } else { self.credit.credit(now).map(|credit| self.as_told(credit)) }
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
            drained: self.is_drained(ring),
        }
    }

    fn is_allocation_due(&self, ring: &Ring, short: bool) -> bool {
        let is_due = |allocation: &CreditAllocation| allocation.is_due(&self.ring_positions(ring), short);
        self.allocation.as_ref().is_some_and(is_due)
    }

    /// Handles a release by the application. `detached`: no connection brings data.
    pub fn on_released(&mut self, ring: &Ring, detached: bool) -> Option<Drained> {
        let allocation = self.allocation.as_mut()?;
        let drained = self.pins.is_empty() && self.consumed >= ring.head();
        allocation.on_released(drained, detached)
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
        let (head, drained) = (ring.head(), self.is_drained(ring));
        let suspension = self.allocation.as_mut()?.suspend(head, drained);
        self.credit.take_back(head);
        Some(suspension)
    }
}

/// The data, in order.
impl ReceiveLog {
    /// Returns whether [`ReceiveLog::next_item`] would return something.
    pub fn has_item(&self, ring: &Ring) -> bool {
        ring.boundary() > self.read || ring.gap_after(self.read).is_some_and(|gap| gap.from <= self.read)
    }

    /// Returns the next thing to report and moves `read` past it. `pin`: a view of the data keeps it in the
    /// ring. `spliced`: receivers downstream hold what they need.
    pub fn next_item(&mut self, ring: &Ring, pin: bool, spliced: bool) -> Option<Item> {
        if !ring.flow_control() {
            return self.next_payload(ring);
        }
        let boundary = ring.boundary();
        if let Some(lost) = self.overwritten(ring, boundary) {
            return Some(lost);
        }
        if spliced && self.consumed < self.read {
            // The application was told of this data before the splice, and does not release it any more.
            self.give_back(self.read, ring);
        }
        let limit = match ring.gap_after(self.read) {
            Some(gap) if gap.from <= self.read => {
                let from = self.read;
                self.read = gap.to;
                if self.consumed >= from {
                    self.consumed = gap.to;
                }
                return Some(Item::Lost(from, gap.to));
            }
            Some(gap) => gap.from.min(boundary),
            None => boundary,
        };
        if limit <= self.read {
            return None;
        }
        let (from, limit) = (self.read, self.step_to(ring, limit));
        self.read = limit;
        if pin {
            self.pins.push(from);
        }
        if spliced {
            self.consumed = self.consumed.max(limit);
        }
        Some(Item::Data(from, limit))
    }

    /// Returns where the next view ends: at the end of a delivery, at most at `limit`.
    fn step_to(&self, ring: &Ring, limit: Position) -> Position {
        let most = self.config.max_view_bytes;
        if most == 0 || limit - self.read <= most {
            return limit;
        }
        let before = ring.boundary_at_or_before(self.read + most);
        let step = before.filter(|at| *at > self.read).or_else(|| ring.boundary_at_or_after(self.read + 1));
        step.map_or(limit, |at| at.min(limit))
    }

    /// In memory that the sender writes, a subscriber that was too slow or was disconnected can lose data
    /// that is held for all others. Returns the lost range, up to the next complete delivery.
    fn overwritten(&mut self, ring: &Ring, boundary: Position) -> Option<Item> {
        let from = self.read;
        if !ring.is_peer_written() || from >= boundary || ring.is_stable(from) {
            return None;
        }
        let by = ring.view(from, from).copy_to(0, &mut []).err()?.by;
        let to = ring.boundary_at_or_after(from.saturating_add(by)).unwrap_or(boundary);
        self.skip_to(to);
        Some(Item::Lost(from, to))
    }

    /// Returns the next delivery of an overwritable buffer whose markers verify.
    fn next_payload(&mut self, ring: &Ring) -> Option<Item> {
        let boundary = ring.boundary();
        if let Some(gap) = ring.gap_after(self.read)
            && gap.from <= self.read
        {
            let from = self.read;
            self.skip_to(gap.to);
            return Some(Item::Lost(from, gap.to));
        }
        if boundary <= self.read {
            return None;
        }
        let from = self.read;
        if ring.is_stable(from) {
            let end = ring.gap_after(from).map_or(boundary, |gap| gap.from.min(boundary));
            // A damaged delivery, or one that was overwritten during the check, is not handed out.
            if let Ok(payload) = verify(&ring.view(from, end)) {
                let start = from + payload.offset as u64;
                let next = from + payload.total as u64;
                self.skip_to(next);
                return Some(Item::Payload { from: start, to: start + payload.len as u64, next });
            }
        }
        // The delivery was overwritten or is torn: continue with the oldest complete delivery.
        let next = ring.boundary_at_or_after(ring.tail().max(from + 1)).unwrap_or(boundary).max(from + 1);
        self.skip_to(next);
        Some(Item::Lost(from, next))
    }

    fn skip_to(&mut self, to: Position) {
        self.read = to;
        self.consumed = self.consumed.max(to);
    }

    /// Returns the range of all received bytes that were not released, without holes, and holds it for a
    /// view.
    pub fn pin_unreleased(&mut self, ring: &Ring) -> (Position, Position) {
        let (mut from, mut to) = (self.consumed, ring.boundary());
        while let Some(gap) = ring.gap_after(from) {
            if gap.from > from {
                to = to.min(gap.from);
                break;
            }
            from = gap.to;
        }
        self.pins.push(from);
        (from, to.max(from))
    }
}
