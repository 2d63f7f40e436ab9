//! The rate limits of a connection: the work that waits because of them.
//!
//! ```text
//!   data arrives ──▶ charged ── in debt? ──▶ the grant of CREDIT stays where it is until the debt is paid
//!   data to send ──▶ reserved ── too early? ──▶ no transfers until then; control messages go
//! ```
//!
//! Limits act where a worker handles a batch: at the CREDIT for what arrived, and at a connection's turn to send. Bytes that had
//! been granted still arrive and are a debt. A subscription of a limited connection is granted at most a window of the limit's
//! burst, so the debt stays small. A delay is no fault of the peer: time-outs do not count it.

use std::collections::HashMap;

use rocketnet::Transport;
use rocketring::Ring;

use super::connection::Connection;
use super::in_effects::IncomingSubscription;
use super::out_effects::OutgoingEntry;
use super::rate_limit_state::Limiting;
use super::reactor_action::ReactorAction;
use super::worker_context::SendState;
use crate::ground::lock::lock;
use crate::ground::types::{Nanos, Position, WireId};
use crate::proto::GrantLimit;
use crate::state::RateLimits;

/// A transfer has at least so many bytes, if its delivery has: a smaller one would cost more than the bytes that wait for the next
/// reservation.
const LEAST_TRANSFER_BYTES: u64 = 256;

impl SendState {
    /// Returns whether a limit delays the sending of this connection.
    pub(super) fn delays_sending(&self, now: Nanos) -> bool {
        self.limiting.as_ref().is_some_and(|limiting| limiting.delays_sending(now))
    }

    /// Returns whether the rest of a reservation is not worth a transfer of the next subscription. The bucket gets the rest back.
    pub(super) fn is_rest_too_small(&self, outs: &HashMap<WireId, OutgoingEntry>, rest: u64) -> bool {
        let next = || {
            let out = outs.get(self.ready.front()?)?;
            Some(out.machine.cursor().pending_bytes(&out.buffer.log()?.ring))
        };
        rest < LEAST_TRANSFER_BYTES && next().is_some_and(|pending| pending > rest)
    }
}

impl<T: Transport> Connection<'_, T> {
    /// Sets other limits, and looks again at everything that waits because of the earlier ones.
    pub(super) fn set_rate_limits(&mut self, limits: RateLimits) {
        let before = self.link.line.limiting.take();
        if !before.as_ref().is_some_and(|before| before.limits_arrivals()) {
            for sub in self.link.ins.values_mut() {
                // Bytes from before the first limit are free.
                sub.metered.charged = lock(&sub.shared.state).ring().map_or(0, Ring::head);
                sub.metered.owes_credit = false;
            }
        }
        if !limits.is_empty() {
            let limiting = Limiting {
                limits,
                reserved: 0,
                send_at: 0,
                waiting: Vec::new(),
                look_at: None,
                paused: false,
            };
            self.link.line.limiting = Some(Box::new(limiting));
        }
        let Some(mut before) = before else { return };
        self.io.deferred.forget(self.id(), before.times());
        if before.paused {
            self.io.transport.pause(self.id(), false);
        }
        self.give_waiting_credit(std::mem::take(&mut before.waiting));
        self.io.mark_dirty(&mut self.link.line);
    }

    /// Handles the end of a delay.
    pub(super) fn on_delay_over(&mut self) {
        let (now, conn) = (self.io.now, self.id());
        let Some(limiting) = &mut self.link.line.limiting else { return };
        let sends = limiting.reserved > 0 && limiting.send_at <= now;
        let credits = limiting.look_at.take_if(|at| *at <= now).is_some();
        let waiting = if credits { std::mem::take(&mut limiting.waiting) } else { Vec::new() };
        if credits && std::mem::take(&mut limiting.paused) {
            self.io.transport.pause(conn, false);
            self.link.line.session.heard(now);
        }
        if sends {
            self.io.mark_dirty(&mut self.link.line);
        }
        self.give_waiting_credit(waiting);
    }

    fn give_waiting_credit(&mut self, waiting: Vec<WireId>) {
        for wire in waiting {
            if let Some(mut incoming) = self.incoming(wire) {
                incoming.sub.metered.waits = false;
                incoming.give_credit();
            }
        }
    }

    /// Sends what the limits allow now, one transfer of each subscription in turn. Returns whether anything was written.
    #[cold]
    pub(super) fn write_within_limits(&mut self) -> Result<bool, ReactorAction> {
        let now = self.io.now;
        let limits = |limiting: &mut Box<Limiting>| limiting.limits_sending();
        let Some(mut limiting) = self.link.line.limiting.take_if(limits) else {
            return self.write_turns::<false>(u64::MAX);
        };
        if limiting.reserved == 0 {
            let wanted = self.pending_bytes(limiting.limits.reservation());
            limiting.reserved = wanted;
            limiting.send_at = if wanted == 0 { now } else { limiting.limits.reserve(wanted, now) };
            if limiting.send_at > now {
                self.io.deferred.delay(self.id(), limiting.send_at);
            }
        }
        let mut wrote = Ok(false);
        if limiting.send_at <= now {
            let before = self.link.line.pauses.written();
            // Without data there may be something else to tell, for which a turn needs room.
            wrote = self.write_turns::<true>(limiting.reserved.max(1));
            let sent = self.link.line.pauses.written() - before;
            limiting.limits.settle(std::mem::take(&mut limiting.reserved), sent, now);
        }
        self.link.line.limiting = Some(limiting);
        wrote
    }

    /// Returns how many bytes wait for their turn, at most `most`.
    fn pending_bytes(&self, most: u64) -> u64 {
        let mut pending = 0_u64;
        for out in self.link.line.ready.iter().filter_map(|wire| self.link.outs.get(wire)) {
            let Some(log) = out.buffer.log() else { continue };
            pending = pending.saturating_add(out.machine.cursor().pending_bytes(&log.ring));
            if pending >= most {
                return most;
            }
        }
        pending
    }
}

impl<T: Transport> IncomingSubscription<'_, T> {
    /// Charges what has arrived, and returns what a CREDIT may grant now. `None`: no CREDIT may be sent yet.
    #[inline]
    pub(super) fn grant_limit(&mut self) -> Option<GrantLimit> {
        if self.line.limiting.is_none() { Some(GrantLimit::Unlimited) } else { self.charge_arrived() }
    }

    #[cold]
    fn charge_arrived(&mut self) -> Option<GrantLimit> {
        let state = lock(&self.sub.shared.state);
        let ring = state.ring().map(|ring| (ring.head(), ring.flow_control()));
        let grants = state.is_granted_beyond_head();
        drop(state);
        let Some((head, flow_control)) = ring else { return Some(GrantLimit::Window) };
        let limit = self.charge(head, flow_control);
        // A first CREDIT that grants nothing would speak of credit on demand.
        let must_wait = limit == GrantLimit::Nothing && self.sub.metered.owes_credit && !grants;
        (!must_wait).then_some(limit)
    }

    /// Charges what has arrived in a ring with this head. Returns what may be granted now.
    fn charge(&mut self, head: Position, flow_control: bool) -> GrantLimit {
        let (now, conn) = (self.io.now, self.line.id);
        let Some(limiting) = &mut self.line.limiting else { return GrantLimit::Unlimited };
        if !limiting.limits_arrivals() {
            return GrantLimit::Unlimited;
        }
        let metered = &mut self.sub.metered;
        let bytes = head.saturating_sub(std::mem::replace(&mut metered.charged, head));
        if bytes > 0 {
            limiting.limits.arrived(bytes, now);
        }
        let at = limiting.limits.credit_at(now);
        if at <= now {
            return GrantLimit::Window;
        }
        if !std::mem::replace(&mut metered.waits, true) {
            limiting.waiting.push(self.wire);
        }
        if limiting.look_at.is_none() {
            limiting.look_at = Some(at);
            self.io.deferred.delay(conn, at);
        }
        if !flow_control && !std::mem::replace(&mut limiting.paused, true) {
            self.io.transport.pause(conn, true);
        }
        GrantLimit::Nothing
    }

    /// Returns whether the first CREDIT has waited, and is to be sent.
    pub(super) fn owes_credit(&self, limit: GrantLimit) -> bool {
        limit != GrantLimit::Unlimited && self.sub.metered.owes_credit
    }
}
