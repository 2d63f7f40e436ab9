//! The log of a subscription: the next item, released data, and the positions to report upstream.

use rocketring::{Hold, Ring, RingReceiver, verify};

use super::{InboundShared, Item, ReceiveLog, Relayed};
use crate::planted;
use crate::proto::{Coverage, Credit, Inbound};
use crate::state::{Buffer, Log};
use crate::types::Position;

impl InboundShared {
    /// Releases everything below `to`.
    pub(crate) fn consume_to(&self, to: Position) {
        self.update(|in_log| in_log.give_back(to.min(in_log.reached())));
    }

    /// Moves the start of a view forward.
    pub(crate) fn unpin_part(&self, at: Position, to: Position) {
        self.update(|in_log| {
            if let Some(pin) = in_log.pins.iter_mut().find(|pin| **pin == at) {
                *pin = to;
            }
            in_log.give_back(to);
        });
    }
}

impl ReceiveLog {
    /// Returns whether the application has released every complete delivery. If not, a reader reports its
    /// next release.
    pub(crate) fn is_given_back(&mut self) -> bool {
        self.ask_reader();
        self.pins.is_empty() && self.consumed >= self.log.ring.boundary()
    }

    /// Continues the log at `start` in another ring.
    pub(crate) fn move_to(&mut self, ring: Ring, start: Position, credit: Inbound) {
        self.hold = if ring.flow_control() { ring.hold(start).ok() } else { None };
        self.log.ring = ring;
        self.credit = credit;
        self.read = start;
        self.consumed = start;
        self.reader = None;
        self.receiver = None;
    }

    pub(crate) fn new(
        log: Log,
        receiver: RingReceiver,
        credit: Inbound,
        start: Position,
        relays: bool,
    ) -> Self {
        let nothing = Relayed { delivered: start, consumed: start, coverage: Coverage::default() };
        let hold = if log.ring.flow_control() { log.ring.hold(start).ok() } else { None };
        let (confirm_consumed, place_kept) = (false, false);
        let pins = Vec::new();
        Self {
            log,
            credit,
            receiver: Some(receiver),
            confirm_consumed,
            place_kept,
            max_view_bytes: 0,
            allocation: None,
            relayed: relays.then_some(nothing),
            hold,
            kept: None,
            covered_from: start,
            consumed: start,
            read: start,
            pins,
            reader: None,
        }
    }

    /// Releases everything below `to`. Released data counts as read, since only held data may be handed out.
    pub(super) fn give_back(&mut self, to: Position) {
        let to = self.reader.as_ref().map_or(to, |reader| to.min(reader.position()));
        self.consumed = self.consumed.max(to);
        self.read = self.read.max(to);
        // A reported hole is released with the last bytes before it.
        while self.consumed < self.read
            && let Some(gap) = self.log.ring.gap_after(self.consumed)
            && gap.from <= self.consumed
        {
            self.consumed = gap.to.min(self.read);
        }
    }

    pub(super) fn move_hold(&mut self) {
        if let Some(hold) = &self.hold {
            let pins = self.pins.iter().copied().filter(|_| !planted::is(planted::PIN_IGNORED));
            hold.advance(pins.min().unwrap_or(Position::MAX).min(self.consumed));
        }
    }

    /// Moves the hold past data that enough receivers have.
    pub(crate) fn keep_for(&self, buffer: &Buffer) {
        // Part of a delivery is of no use to another receiver.
        let whole = |kept: &Hold| {
            let at = self.log.ring.boundary_at_or_before(buffer.confirmed().delivered)?;
            kept.advance(at);
            Some(())
        };
        self.kept.as_ref().and_then(whole);
    }

    /// Returns the present positions to report upstream.
    pub(crate) fn credit_now(&self, downstream: Option<&Buffer>) -> Credit {
        let ring = &self.log.ring;
        // A ring on demand drops an incomplete delivery with the connection.
        let landed = if self.allocation.is_some() { ring.boundary() } else { ring.head() };
        // Bytes in the sender's memory count as landed only if the sender holds them with or without a
        // connection.
        let lent = ring.is_peer_written() && ring.flow_control() && !self.place_kept;
        let landed = if lent { ring.slowest_hold().map_or(landed, |at| at.min(landed)) } else { landed };
        let early = if planted::is(planted::LANDED_EARLY) { self.credit.quarter().min(64) } else { 0 };
        let landed = landed + early;
        let grant = match &self.allocation {
            Some(allocation) => allocation.grant(),
            None if ring.flow_control() => ring.grant(),
            None => landed,
        };
        let Some(buffer) = downstream else {
            if self.kept.is_some() {
                // The subscription is not spliced yet, so there is no receiver downstream.
                return Credit { landed, grant, ..Credit::default() };
            }
            let consumed = self.consumed.min(landed);
            if let Some(Relayed { delivered, consumed: by_all, coverage }) = self.relayed {
                let (landed, delivered) = (consumed, delivered.min(consumed));
                return Credit { landed, delivered, consumed: by_all.min(delivered), grant, coverage };
            }
            let landed = if self.confirm_consumed { consumed } else { landed };
            let coverage = Coverage { covered_from: self.covered_from, ..Coverage::ONE };
            return Credit { landed, delivered: landed, consumed, grant, coverage };
        };
        let confirmed = buffer.confirmed();
        let delivered = confirmed.delivered.min(landed);
        Credit {
            landed,
            delivered,
            consumed: confirmed.consumed.min(delivered),
            grant,
            coverage: confirmed.coverage,
        }
    }

    pub(super) fn credit_due(&self) -> bool {
        let coverage = Coverage { covered_from: self.covered_from, ..Coverage::ONE };
        let plain = self.allocation.is_none() && self.relayed.is_none();
        let bound = self.consumed.saturating_add(self.log.ring.capacity());
        if plain && !self.credit.may_be_due(self.log.ring.head(), bound, coverage) {
            return false;
        }
        self.allocation_due() || self.credit.is_due(&self.credit_now(None))
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.log.ring
    }

    pub(super) fn next_item(&mut self, pin: bool, spliced: bool) -> Option<Item> {
        if !self.log.ring.flow_control() {
            let ring = self.log.ring.clone();
            return self.next_payload(&ring);
        }
        let boundary = self.log.ring.boundary();
        if let Some(lost) = self.overwritten(boundary) {
            return Some(lost);
        }
        if spliced && self.consumed < self.read {
            // The application was told of this data before the splice, and does not release it any more.
            self.give_back(self.read);
            self.move_hold();
        }
        let limit = match self.log.ring.gap_after(self.read) {
            Some(gap) if gap.from <= self.read => {
                let from = self.read;
                self.read = gap.to;
                if self.consumed >= from {
                    self.consumed = gap.to;
                    self.move_hold();
                }
                return Some(Item::Lost(from, gap.to));
            }
            Some(gap) => gap.from.min(boundary),
            None => boundary,
        };
        if limit <= self.read {
            return None;
        }
        let (from, limit) = (self.read, self.step_to(limit));
        self.read = limit;
        if pin {
            self.pins.push(from);
        }
        if spliced {
            self.consumed = self.consumed.max(limit);
            self.move_hold();
        }
        Some(Item::Data(from, limit))
    }

    /// Returns where the next view ends: at the end of a delivery, at most at `limit`.
    fn step_to(&self, limit: Position) -> Position {
        if self.max_view_bytes == 0 || limit - self.read <= self.max_view_bytes {
            return limit;
        }
        let ring = &self.log.ring;
        let before = ring.boundary_at_or_before(self.read + self.max_view_bytes);
        let step = before.filter(|at| *at > self.read).or_else(|| ring.boundary_at_or_after(self.read + 1));
        step.map_or(limit, |at| at.min(limit))
    }

    /// In memory that the sender writes, a subscriber that was too slow or was disconnected can lose data
    /// that is held for all others. Returns the lost range, up to the next complete delivery.
    fn overwritten(&mut self, boundary: Position) -> Option<Item> {
        let (ring, from) = (&self.log.ring, self.read);
        if !ring.is_peer_written() || from >= boundary || ring.is_stable(from) {
            return None;
        }
        let by = ring.view(from, from).copy_to(0, &mut []).err()?.by;
        let to = ring.boundary_at_or_after(from.saturating_add(by)).unwrap_or(boundary);
        self.skip_to(to);
        self.move_hold();
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
}
