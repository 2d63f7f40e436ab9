//! Subscriptions of peers that go: unsubscribed, too slow, or without their connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketnet::Transport;
use rocketring::Ring;

use super::connection::Connection;
use super::out_effects::OutgoingEntry;
use super::reactor_action::{Outcome, ReactorAction};
use super::worker_context::SubscriptionKey;
use crate::ground::limits::Asking;
use crate::ground::lock::lock;
use crate::ground::planted;
use crate::ground::types::{Nanos, Position, WireId};
use crate::proto::{Message, RefuseCode, SendCursor};
use crate::state::events::OutEvent;
use crate::state::{DurableCursor, Leaving, ROutShared, Role, SubscriptionStatus};

impl<T: Transport> Connection<'_, T> {
    /// Handles UNSUBSCRIBE, and REFUSED of a receiver that has no room for larger deliveries, whose place is kept as if its
    /// connection were lost. `forwarded`: the subscription's last confirmations were forwarded, which comes before it counts as
    /// departed.
    pub(super) fn on_unsubscribe(&mut self, message: Message, wire: WireId, forwarded: bool) -> Outcome {
        let keeps_place = matches!(message, Message::Refused { .. });
        if !forwarded && let Some(source) = self.link.outs.get(&wire).and_then(|out| out.buffer.upstream()) {
            return Err(ReactorAction::Forward(source.slot(), Box::new(message)));
        }
        // Queued data is copied: the stream stays intact, and the ring is free.
        self.io.transport.detach(self.id(), wire);
        let why = if keeps_place { "no room for larger deliveries" } else { "unsubscribed" };
        self.drop_out(wire, why, keeps_place);
        self.drop_parked(Some(wire));
        self.send(&Message::Unsubscribed(wire));
        Ok(())
    }

    /// Returns the slots of the subscriptions that the peer's ones are spliced from. Their senders learn the
    /// last confirmations before the connection goes.
    pub(super) fn upstreams(&self) -> Vec<u32> {
        let sources = self.link.outs.values().filter_map(|out| out.buffer.upstream());
        let mut slots: Vec<_> = sources.map(|source| source.slot()).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Handles a lost connection: positions of durable subscriptions are held for a while, other
    /// subscriptions end.
    pub(super) fn drop_outs(&mut self, why: &str) {
        let mut wires: Vec<_> = self.link.outs.keys().copied().collect();
        // Newest first, so that each is found at the end of its buffer's list.
        wires.sort_unstable_by_key(|wire| std::cmp::Reverse(*wire));
        for wire in wires {
            self.io.transport.detach(self.id(), wire);
            self.drop_out(wire, why, true);
        }
    }

    fn drop_out(&mut self, wire: WireId, why: &str, hold: bool) {
        let Some(out) = self.link.outs.remove(&wire) else { return };
        let number = self.link.line.shared.id;
        let OutgoingEntry { buffer, machine, status, hold_ms } = out;
        machine.watchers().iter().for_each(|reader| buffer.unwatch((number, wire, *reader)));
        self.io.slots.remove_out(buffer.slot, SubscriptionKey { conn: self.link.line.id, wire });
        let rout = buffer.out.upgrade();
        let until = self.io.now + Nanos::from(hold_ms) * 1_000_000;
        let leaving = match hold && hold_ms > 0 && !status.name.is_empty() {
            true => place_of(machine.cursor(), &status, until),
            false => Leaving::Gone,
        };
        let slots = rout.as_ref().map(|rout| rout.durable_slots());
        let removed = buffer.remove_sub(number, wire, leaving, slots);
        buffer.notify_upstream();
        if removed == Some(true) {
            self.io.look_at_held(until);
        }
        buffer.report_landed_contexts();
        if let Some(rout) = rout {
            let (bid, name) = (buffer.bid, status.name.name.clone());
            rout.report(OutEvent::Unsubscribed { conn: number, bid, name, why: why.to_owned() });
            rout.reap(&buffer);
        }
    }

    /// Checks whether the slowest subscription of a buffer has stalled while others wait for it. `slowest`
    /// caches each buffer's slowest position for one tick, since finding it visits all subscriptions. Returns
    /// whether any subscription holds others up, and which one has stalled.
    pub(super) fn tick_outs(&mut self, slowest: &mut HashMap<u32, Option<Position>>) -> (bool, Outcome) {
        let (mut stalled, mut holds) = (Ok(()), false);
        let rule = "no progress within block_timeout while others waited";
        let delays = self.link.line.delays_sending(self.io.now);
        for (&wire, out) in &mut self.link.outs {
            let Some(log) = out.buffer.log() else { continue };
            if delays && out.machine.is_queued() {
                out.machine.delayed(self.io.now);
            }
            let waits = holds_others(&log.ring, out, slowest);
            holds |= waits;
            if let Some(lag) = out.machine.tick(waits, &log.ring, self.io.now) {
                stalled = Err(ReactorAction::TooSlow { wire, lag, rule });
            }
        }
        (holds, stalled)
    }

    /// Ends a subscription that was too slow, ahead of its connection. Its position is not held. Returns the
    /// reason to close the connection.
    pub(super) fn disconnect_slow(&mut self, wire: WireId, lag: u64, rule: &str) -> String {
        let why = format!("too slow: {lag} bytes behind ({rule})");
        self.report_too_slow(wire, lag);
        self.io.transport.detach(self.id(), wire);
        self.drop_out(wire, &why, false);
        self.send(&Message::Refused { wire, code: RefuseCode::TooSlow, a: lag, b: 0 });
        why
    }

    /// Ends a subscription whose receiver has no room for the deliveries that follow. Nothing of them was sent. A durable one keeps
    /// its place: it goes on there when it comes back with more room.
    pub(super) fn leave_outgrown(&mut self, wire: WireId, max_delivery: u64) {
        let Some(out) = self.link.outs.get(&wire) else { return };
        let (has, needs) = (out.machine.cursor().config().largest, max_delivery);
        let why = format!("deliveries of {needs} bytes follow, and the receiver takes at most {has}");
        self.io.transport.detach(self.id(), wire);
        self.drop_out(wire, &why, true);
        let (a, b) = (has.saturating_mul(2), needs.saturating_mul(2));
        self.send(&Message::Refused { wire, code: RefuseCode::RingTooSmall, a, b });
    }

    /// Ends the subscriptions to buffers of an rOut that its application does not allow any more. Others go on.
    pub(super) fn review(&mut self, of: &Arc<ROutShared>) {
        let link = &*self.link;
        let Some(Role::Out(out)) =
            link.role.clone().filter(|role| matches!(role, Role::Out(out) if Arc::ptr_eq(out, of)))
        else {
            return;
        };
        let conn = link.line.shared.id;
        let is_allowed = |sub: &OutgoingEntry| {
            let asking = Asking { conn, bid: sub.buffer.bid, name: &sub.status.name.name };
            out.admitted(&asking).is_some_and(|admitted| admitted.policies.contains(sub.status.policy))
        };
        let mut wires: Vec<_> =
            link.outs.iter().filter(|(_, sub)| !is_allowed(sub)).map(|(wire, _)| *wire).collect();
        // Newest first, so that each is found at the end of its buffer's list.
        wires.sort_unstable_by_key(|wire| std::cmp::Reverse(*wire));
        for wire in wires {
            // Queued data is copied: the stream stays intact, and the ring is free.
            self.io.transport.detach(self.id(), wire);
            self.drop_out(wire, "not allowed any more", false);
            self.send(&Message::Refused { wire, code: RefuseCode::NotAllowed, a: 0, b: 0 });
        }
    }

    fn report_too_slow(&self, wire: WireId, lag_bytes: u64) {
        let (conn, Some(out)) = (self.link.line.shared.id, self.link.outs.get(&wire)) else { return };
        let (bid, policy) = (out.buffer.bid, out.status.policy);
        if let Some(rout) = out.buffer.out.upgrade() {
            rout.report(OutEvent::TooSlow { conn, bid, policy, lag_bytes });
        }
    }
}

/// Returns whether this subscription blocks the writer.
fn holds_others(ring: &Ring, out: &OutgoingEntry, slowest: &mut HashMap<u32, Option<Position>>) -> bool {
    let Some(at) = out.machine.cursor().holds_at() else { return false };
    let head = ring.head();
    // A remote writer is out of credit when less than an eighth is left. A local writer shows that it waits.
    let exhausted = ring.horizon().saturating_sub(head) < ring.capacity() / 8;
    if at >= head || !(ring.writer_waits() || (out.buffer.source.is_some() && exhausted)) {
        return false;
    }
    let slowest = slowest.entry(out.buffer.slot).or_insert_with(|| ring.slowest_hold());
    slowest.is_none_or(|slowest| slowest >= at)
}

/// Returns the durable cursor of a named subscription that goes.
fn place_of(cursor: &SendCursor, sub: &SubscriptionStatus, until: Nanos) -> Leaving {
    if planted::is(planted::PLACE_NOT_HELD)
        && let Some(hold) = &*lock(&sub.hold)
    {
        hold.advance(Position::MAX);
    }
    Leaving::Kept(DurableCursor {
        hold: None,
        policy: sub.policy,
        levels: cursor.levels(),
        coverage: cursor.coverage(),
        resume_boundary: sub.resume_boundary.load(Ordering::Acquire),
        until,
    })
}
