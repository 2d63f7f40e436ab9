//! Accepted subscriptions of peers: turns, credit, and the end.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use rocketnet::{ConnId, Transport};
use rocketring::Ring;

use super::peer::{OutSub, Turn, Verdict, wire_of_pong};
use super::reactor::{Link, Reactor};
use crate::events::OutEvent;
use crate::lock::lock;
use crate::planted;
use crate::proto::{CloseCode, Credit, Message, RefuseCode, SendCursor};
use crate::state::{DurableCursor, Leaving, Request, SubscriptionStatus};
use crate::types::{Nanos, Position, WireId};

/// Writes to a connection between two flushes, and flushes of one connection before others have their turn.
const WRITES_PER_FLUSH: usize = 256;
const FLUSHES_PER_TURN: usize = 4;

impl<T: Transport> Reactor<T> {
    /// Handles news of the buffer for this subscription.
    pub(super) fn wake_out(&mut self, conn: ConnId, wire: WireId) {
        if let Some(mut turn) = self.out(conn, wire) {
            let verdict = turn.on_news();
            self.settle(conn, wire, verdict);
        }
    }

    fn settle(&mut self, conn: ConnId, wire: WireId, verdict: Verdict) {
        match verdict {
            Verdict::GoesOn => {}
            Verdict::TooSlow { lag, rule } => self.disconnect_slow(conn, wire, lag, rule),
            Verdict::Broken(why) => self.close(conn, CloseCode::Protocol, &why),
        }
    }

    /// Gives every connection that has something to send its turns.
    pub(super) fn pump_all(&mut self) {
        for _ in 0..self.io.dirty.len() {
            let Some(conn) = self.io.dirty.pop_front() else { break };
            if let Some(link) = self.links.get_mut(&conn) {
                link.line.dirty = false;
                self.pump(conn);
            }
        }
    }

    fn pump(&mut self, conn: ConnId) {
        let idle = self.inline_idle();
        for _ in 0..FLUSHES_PER_TURN {
            // Data follows the control messages that were queued before it.
            let wrote = self.send_waiting_app(conn) && self.write_some(conn);
            let all_left = self.io.transport.flush(conn);
            if let Some(link) = self.links.get_mut(&conn) {
                link.line.app_unflushed = 0;
                link.line.pauses.end_of_worker(self.io.now, idle);
            }
            if !wrote || !all_left {
                break;
            }
        }
        let more = self
            .links
            .get(&conn)
            .is_some_and(|link| !link.line.ready.is_empty() || !link.line.app.is_empty());
        if more && self.io.transport.room(conn) > 0 {
            self.make_dirty(conn);
        }
    }

    /// Sends one transfer of each subscription in turn, until the queue is full. Returns whether anything was
    /// written.
    pub(super) fn write_some(&mut self, conn: ConnId) -> bool {
        let Some(Link { line, outs, .. }) = self.links.get_mut(&conn) else { return false };
        let ordered = self.io.transport.promises_to(conn).ordered;
        let mut wrote = false;
        for _ in 0..WRITES_PER_FLUSH {
            let room = self.io.transport.room(conn);
            if room == 0 {
                break;
            }
            let Some(wire) = line.ready.pop_front() else { break };
            let Some(out) = outs.get_mut(&wire) else { continue };
            match (Turn { io: &mut self.io, line, wire, out }).take(room, ordered) {
                Ok(any) => wrote |= any,
                Err(verdict) => {
                    self.settle(conn, wire, verdict);
                    return true;
                }
            }
        }
        wrote
    }

    /// Handles PONG. If it answers the PING after an end, the peer has received the end.
    pub(super) fn on_pong(&mut self, conn: ConnId, token: u64) {
        if let Some(mut turn) = wire_of_pong(token).and_then(|wire| self.out(conn, wire)) {
            turn.on_end_heard();
        }
    }

    pub(super) fn on_recall(&mut self, conn: ConnId, wire: WireId) {
        // A subscription that just ended has no grant.
        if let Some(mut turn) = self.out(conn, wire) {
            turn.on_recall();
        }
    }

    pub(super) fn on_credit(&mut self, conn: ConnId, wire: WireId, credit: &Credit) {
        // Credit for a subscription that just ended may still be in flight.
        let Some(mut turn) = self.out(conn, wire) else { return };
        // Forward earlier confirmations before counting departed downstream receivers.
        if credit.coverage.left > turn.out.machine.cursor().tally().told.left
            && let Some(source) = turn.out.buffer.upstream()
        {
            self.tell_upstream(&*source);
            let Some(again) = self.out(conn, wire) else { return };
            turn = again;
        }
        let verdict = turn.on_credit(credit);
        self.settle(conn, wire, verdict);
    }

    pub(super) fn on_landed(&mut self, conn: ConnId, wire: WireId, position: Position) {
        if let Some(mut turn) = self.out(conn, wire) {
            turn.on_landed(position);
        }
    }

    pub(super) fn on_unsubscribe(&mut self, conn: ConnId, wire: WireId) {
        // Queued data is copied: the stream stays intact, and the ring is free.
        self.io.transport.detach(conn, wire);
        self.drop_out(conn, wire, "unsubscribed", false);
        self.drop_parked(conn, Some(wire));
        self.send(conn, &Message::Unsubscribed(wire));
    }

    /// Handles a lost connection: positions of durable subscriptions are held for a while, other
    /// subscriptions end.
    pub(super) fn drop_outs(&mut self, conn: ConnId, why: &str) {
        let Some(link) = self.links.get(&conn) else { return };
        let mut wires: Vec<_> = link.outs.keys().copied().collect();
        // Newest first, so that each is found at the end of its buffer's list.
        wires.sort_unstable_by_key(|wire| std::cmp::Reverse(*wire));
        for wire in wires {
            self.io.transport.detach(conn, wire);
            self.drop_out(conn, wire, why, true);
        }
    }

    fn drop_out(&mut self, conn: ConnId, wire: WireId, why: &str, hold: bool) {
        // The subscription's last confirmations are forwarded before it counts as departed.
        let buffer =
            self.links.get(&conn).and_then(|link| link.outs.get(&wire)).map(|out| out.buffer.clone());
        if let Some(source) = buffer.and_then(|buffer| buffer.upstream()) {
            self.tell_upstream(&*source);
        }
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Some(out) = link.outs.remove(&wire) else { return };
        let number = link.line.shared.id;
        let OutSub { buffer, machine, status, hold_ms } = out;
        machine.watchers().iter().for_each(|reader| buffer.unwatch((number, wire, *reader)));
        self.slots.remove_out(buffer.slot, (conn, wire));
        let rout = buffer.out.upgrade();
        let until = self.io.now + Nanos::from(hold_ms) * 1_000_000;
        let leaving = match hold && hold_ms > 0 && !status.name.is_empty() {
            true => place_of((machine.cursor(), &status), until),
            false => Leaving::Gone,
        };
        let kept = rout.as_ref().map(|rout| rout.durable_slots());
        let removed = buffer.remove_sub((number, wire), leaving, kept);
        buffer.tell_who_follows();
        if removed == Some(true) {
            self.look_at_held(until);
        }
        buffer.report_landed_contexts();
        if let Some(rout) = rout {
            let (bid, name) = (buffer.bid, status.name.clone());
            rout.tell(OutEvent::Unsubscribed { conn: number, bid, name, why: why.to_owned() });
            rout.reap(&buffer);
        }
    }

    /// Schedules the expiry of a durable cursor. The first worker handles all of them.
    fn look_at_held(&mut self, until: Nanos) {
        match self.io.shared.index {
            0 => self.io.next_tick = self.io.next_tick.min(until),
            _ => self.io.inner.workers[0].request(Request::LookAt(until)),
        }
    }

    /// Checks whether the slowest subscription of a buffer has stalled while others wait for it. `slowest`
    /// caches each buffer's slowest position for one tick, since finding it visits all subscriptions. Returns
    /// whether any subscription holds others up.
    pub(super) fn tick_outs(&mut self, conn: ConnId, slowest: &mut HashMap<u32, Option<Position>>) -> bool {
        let now = self.io.now;
        let Some(link) = self.links.get_mut(&conn) else { return false };
        let (mut stalled, mut holds) = (None, false);
        for (wire, out) in &mut link.outs {
            let Some(log) = out.buffer.log() else { continue };
            let waits = holds_others(&log.ring, out, slowest);
            holds |= waits;
            let lag = out.machine.tick(waits, &log.ring, now);
            stalled = lag.map(|lag| (*wire, lag)).or(stalled);
        }
        if let Some((wire, lag)) = stalled {
            self.disconnect_slow(conn, wire, lag, "no progress within block_timeout while others waited");
        }
        holds
    }

    /// Ends a subscription that was too slow, and its connection. Its position is not held.
    fn disconnect_slow(&mut self, conn: ConnId, wire: WireId, lag: u64, rule: &str) {
        let why = format!("too slow: {lag} bytes behind ({rule})");
        self.tell_too_slow(conn, wire, lag);
        self.io.transport.detach(conn, wire);
        self.drop_out(conn, wire, &why, false);
        self.send(conn, &Message::Refused { wire, code: RefuseCode::TooSlow, a: lag, b: 0 });
        self.close(conn, CloseCode::Timeout, &why);
    }

    fn tell_too_slow(&self, conn: ConnId, wire: WireId, lag_bytes: u64) {
        let Some(link) = self.links.get(&conn) else { return };
        let (number, Some(out)) = (link.line.shared.id, link.outs.get(&wire)) else { return };
        let (bid, policy) = (out.buffer.bid, out.status.policy);
        if let Some(rout) = out.buffer.out.upgrade() {
            rout.tell(OutEvent::TooSlow { conn: number, bid, policy, lag_bytes });
        }
    }
}

/// Returns whether this subscription blocks the writer.
fn holds_others(ring: &Ring, out: &OutSub, slowest: &mut HashMap<u32, Option<Position>>) -> bool {
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
fn place_of((cursor, sub): (&SendCursor, &SubscriptionStatus), until: Nanos) -> Leaving {
    if planted::is(planted::PLACE_NOT_HELD)
        && let Some(hold) = &*lock(&sub.hold)
    {
        hold.advance(Position::MAX);
    }
    Leaving::Kept(DurableCursor {
        hold: None,
        policy: sub.policy,
        levels: cursor.levels(),
        tally: cursor.tally(),
        whole: sub.whole.load(Ordering::Acquire),
        until,
    })
}
