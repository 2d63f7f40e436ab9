//! Subscriptions of others to our buffers: answering them, sending, credit, and what ends them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use rocketnet::{ConnId, NotWritten, SourceRange, Transport};
use rocketring::Ring;

use super::{Command, Core, LinkPhase, OutSub};
use crate::events::OutEvent;
use crate::proto::{CloseCode, Credit, Message, Outbound, RefuseCode, Step};
use crate::state::{Held, Leaving, SubShared, tell_subscriber_progress};
use crate::types::{ConfirmLevel, Nanos, Policy, Position, WireId};

/// Writes given to a connection before it is flushed, and flushes of one connection before others have their turn.
const WRITES_PER_FLUSH: usize = 256;
const FLUSHES_PER_TURN: usize = 4;

/// The PING that follows an end has this bit and the wire id; others have the time, which does not reach it.
const END_HEARD: u64 = 1 << 63;

impl<T: Transport> Core<T> {
    /// A buffer has news for this subscription: looks at its policy and gives it a turn.
    pub(super) fn wake_out(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Some(out) = link.outs.get_mut(&wire) else { return };
        let Some(log) = out.buffer.log() else { return };
        out.buffer.times.note(self.now, &log.ring);
        if out.outbound.too_far_behind(&log.ring) {
            self.act_on_lag(conn, wire);
        }
        self.look_at_early(conn, wire);
        self.queue_out(conn, wire);
    }

    fn queue_out(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.phase != LinkPhase::Up {
            return;
        }
        let Some(out) = link.outs.get_mut(&wire) else { return };
        if out.can_wait() {
            self.tell_later(conn, wire);
        } else {
            if !std::mem::replace(&mut out.queued, true) {
                link.ready.push_back(wire);
            }
            self.make_dirty(conn);
        }
        self.stirred();
    }

    fn act_on_lag(&mut self, conn: ConnId, wire: WireId) {
        let Some(out) = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire)) else { return };
        let Some(log) = out.buffer.log().cloned() else { return };
        if out.outbound.config().policy == Policy::Disconnect {
            let lag = out.outbound.behind(&log.ring);
            self.disconnect_slow(conn, wire, lag, "policy disconnect");
            return;
        }
        // What is half sent is copied; from here on the subscription holds nothing of the ring below.
        #[cfg(feature = "planted-bugs")]
        let detaches = !crate::planted::is(crate::planted::NOT_DETACHED);
        #[cfg(not(feature = "planted-bugs"))]
        let detaches = true;
        if detaches {
            self.transport.detach(conn, wire);
        }
        let step = out.outbound.drop_to_boundary(&log.ring);
        out.sub.publish(&out.outbound, &out.buffer);
        let buffer = out.buffer.clone();
        if let Some(Step::Lost { from, to }) = step {
            self.tell_lost(conn, wire, (from, to));
        }
        buffer.on_progress();
        Self::data_out(&buffer);
    }

    fn tell_lost(&mut self, conn: ConnId, wire: WireId, (from, to): (Position, Position)) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::LOST_NOT_TOLD) {
            return;
        }
        self.send(conn, &Message::Lost { wire, from, to });
        let Some(link) = self.links.get(&conn) else { return };
        let (number, Some(out)) = (link.shared.id, link.outs.get(&wire)) else { return };
        let (bid, policy, rout) = (out.buffer.bid, out.sub.policy, out.buffer.out.upgrade());
        if let Some(rout) = rout {
            rout.tell(OutEvent::Dropped { conn: number, bid, from, to, policy });
        }
    }

    /// Gives every connection that has something to send its turns.
    pub(super) fn pump_all(&mut self) {
        for _ in 0..self.dirty.len() {
            let Some(conn) = self.dirty.pop_front() else { break };
            if let Some(link) = self.links.get_mut(&conn) {
                link.dirty = false;
                self.pump(conn);
            }
        }
    }

    fn pump(&mut self, conn: ConnId) {
        let idle = self.inline_idle();
        for _ in 0..FLUSHES_PER_TURN {
            // Data follows what was said before it.
            let wrote = self.send_waiting_app(conn) && self.write_some(conn);
            let all_left = self.transport.flush(conn);
            if let Some(link) = self.links.get_mut(&conn) {
                link.app_unflushed = 0;
                link.pauses.end_of_worker(self.now, idle);
            }
            if !wrote || !all_left {
                break;
            }
        }
        let more = self.links.get(&conn).is_some_and(|link| !link.ready.is_empty() || !link.app.is_empty());
        if more && self.transport.room(conn) > 0 {
            self.make_dirty(conn);
        }
    }

    /// Subscriptions take turns, one transfer each, until the queue is full. True if anything was written.
    pub(super) fn write_some(&mut self, conn: ConnId) -> bool {
        let mut wrote = false;
        for _ in 0..WRITES_PER_FLUSH {
            let room = self.transport.room(conn);
            if room == 0 {
                break;
            }
            let Some(wire) = self.links.get_mut(&conn).and_then(|link| link.ready.pop_front()) else { break };
            wrote |= self.one_turn(conn, wire, room);
        }
        wrote
    }

    fn one_turn(&mut self, conn: ConnId, wire: WireId, room: u64) -> bool {
        let ordered = self.transport.promises_to(conn).ordered;
        let Some(link) = self.links.get_mut(&conn) else { return false };
        let Some(out) = link.outs.get_mut(&wire) else { return false };
        out.queued = false;
        let Some(log) = out.buffer.log() else { return false };
        if out.in_flight && !ordered {
            return false;
        }
        match out.outbound.next(&log.ring, out.buffer.end(), room) {
            Step::Idle => {
                self.ask_if_wanted(conn, wire);
                false
            }
            Step::Write { from, to, more } => {
                let mapped = out.outbound.config().maps.is_some();
                let source = SourceRange { ring: log.ring.clone(), from, to, mapped };
                let written = self.transport.write(conn, wire, source, more);
                self.after_write(conn, wire, (from, to), written);
                true
            }
            Step::Lost { from, to } => {
                out.sub.publish(&out.outbound, &out.buffer);
                let buffer = out.buffer.clone();
                self.tell_lost(conn, wire, (from, to));
                buffer.on_progress();
                self.queue_out(conn, wire);
                true
            }
            Step::End(end) => {
                let message = match end {
                    crate::proto::End::Closed(end) => Message::Closed { wire, end },
                    crate::proto::End::Gone(end) => Message::Gone { wire, end },
                };
                self.send(conn, &message);
                // The answer proves that the end was heard: whoever drains waits for it.
                self.send(conn, &Message::Ping(END_HEARD | u64::from(wire)));
                self.ask_if_wanted(conn, wire);
                true
            }
        }
    }

    fn after_write(
        &mut self,
        conn: ConnId,
        wire: WireId,
        (from, to): (Position, Position),
        written: Result<(), NotWritten>,
    ) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Some(out) = link.outs.get_mut(&wire) else { return };
        out.queued = true;
        link.ready.push_back(wire);
        match written {
            Ok(()) => {
                out.sub.show_sent(from, to, self.now);
                out.in_flight = true;
                link.pauses.wrote(to - from);
                link.session.spoke(self.now);
                if out.buffer.is_waited_for() {
                    // Whoever waits must not wait until there is nothing more to send.
                    self.ask_if_wanted(conn, wire);
                }
            }
            Err(NotWritten::Overwritten) => out.outbound.take_back(),
            Err(NotWritten::QueueFull) => {
                // `room` said that there is place: the transport broke its word.
                self.close(conn, CloseCode::Protocol, "the transport took no write where it had room");
            }
        }
    }

    /// A PONG: if it answers the PING that followed an end, the end was heard.
    pub(super) fn on_pong(&mut self, conn: ConnId, token: u64) {
        let wire = (token & !END_HEARD) as WireId;
        let Some(out) = self.links.get(&conn).and_then(|link| link.outs.get(&wire)) else { return };
        if token & END_HEARD != 0 && out.outbound.ended() {
            out.sub.heard_end.store(true, Ordering::Release);
            out.buffer.on_progress();
        }
    }

    /// Asks the receiver how far it is, if somebody waits for that.
    fn ask_if_wanted(&mut self, conn: ConnId, wire: WireId) {
        let Some(out) = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire)) else { return };
        let (wanted, all) = out.buffer.wanted(out.outbound.levels());
        // An end is told, and whoever destroyed the buffer waits until all have it.
        let all = all.or(out.outbound.ended().then_some(ConfirmLevel::Landed));
        let confirm = out.outbound.ask(wanted, all);
        let more = out.buffer.log().and_then(|log| out.outbound.ask_for_more(&log.ring));
        for wanted in [confirm, more.map(|to| [to, 0, 0])].into_iter().flatten() {
            self.send(conn, &Message::Ask { wire, wanted });
        }
    }

    pub(super) fn on_recall(&mut self, conn: ConnId, wire: WireId) {
        // A subscription that just ended has no grant.
        let Some(out) = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire)) else { return };
        let at = out.outbound.on_recall();
        self.send(conn, &Message::Recalled { wire, at });
        // Perhaps there is data for which it asks anew.
        self.queue_out(conn, wire);
    }

    pub(super) fn on_credit(&mut self, conn: ConnId, wire: WireId, credit: &Credit) {
        // Who went behind the receiver counts for what was told before: that is told on before it is one that left.
        let left = |out: &&OutSub| credit.coverage.left > out.outbound.tally().told.left;
        let out = self.links.get(&conn).and_then(|link| link.outs.get(&wire)).filter(left);
        if let Some(source) = out.and_then(|out| out.buffer.upstream()) {
            self.tell_on(&source);
        }
        let credit = self.seen_of(conn, wire, credit);
        // Credit for a subscription that just ended may still be under way.
        let Some(out) = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire)) else { return };
        if let Err(error) = out.outbound.on_credit(&credit, self.now) {
            self.close(conn, CloseCode::Protocol, &error.to_string());
            return;
        }
        self.moved_on(conn, wire);
    }

    pub(super) fn on_landed(&mut self, conn: ConnId, wire: WireId, position: Position) {
        let Some(out) = self.links.get_mut(&conn).and_then(|link| link.outs.get_mut(&wire)) else { return };
        out.in_flight = position < out.outbound.sent();
        out.outbound.on_landed(position, self.now);
        self.moved_on(conn, wire);
    }

    /// A subscription's positions moved: lets go of what it held, and looks whether more can be sent.
    fn moved_on(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let (number, Some(out)) = (link.shared.id, link.outs.get_mut(&wire)) else { return };
        if let Some(log) = out.buffer.log() {
            out.outbound.catch_up(&log.ring);
        }
        out.sub.publish(&out.outbound, &out.buffer);
        let (levels, count) = (out.outbound.levels(), out.sub.count());
        let buffer = out.buffer.clone();
        buffer.on_progress();
        tell_subscriber_progress(&buffer, number, levels, count);
        Self::data_out(&buffer);
        self.queue_out(conn, wire);
        if buffer.source.is_some()
            && buffer.drained()
            && let Some(rout) = buffer.out.upgrade()
        {
            rout.reap(&buffer);
        }
    }

    pub(super) fn on_unsubscribe(&mut self, conn: ConnId, wire: WireId) {
        // What is queued is copied: the stream stays whole, and the ring is free.
        self.transport.detach(conn, wire);
        self.drop_out(conn, wire, "unsubscribed", false);
        self.drop_parked(conn, Some(wire));
        self.send(conn, &Message::Unsubscribed(wire));
    }

    /// The connection is down: named subscriptions keep their place for a while, the others end.
    pub(super) fn drop_outs(&mut self, conn: ConnId, why: &str) {
        let Some(link) = self.links.get(&conn) else { return };
        let mut wires: Vec<_> = link.outs.keys().copied().collect();
        // The newest first: each is found at the end of its buffer's list.
        wires.sort_unstable_by_key(|wire| std::cmp::Reverse(*wire));
        for wire in wires {
            self.transport.detach(conn, wire);
            self.drop_out(conn, wire, why, true);
        }
    }

    fn drop_out(&mut self, conn: ConnId, wire: WireId, why: &str, hold: bool) {
        // What it said last counts with it, and is told on before it is one that left.
        let buffer =
            self.links.get(&conn).and_then(|link| link.outs.get(&wire)).map(|out| out.buffer.clone());
        if let Some(source) = buffer.and_then(|buffer| buffer.upstream()) {
            self.tell_on(&source);
        }
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Some(out) = link.outs.remove(&wire) else { return };
        let number = link.shared.id;
        let OutSub { buffer, outbound, sub, hold_ms, follows, .. } = out;
        follows.watchers.iter().for_each(|reader| buffer.unwatch((number, wire, *reader)));
        if let Some(used) = self.slots.get_mut(&buffer.slot) {
            // From the end: a connection that goes with many takes them off there.
            if let Some(at) = used.outs.iter().rposition(|at| *at == (conn, wire)) {
                used.outs.remove(at);
            }
            if used.outs.is_empty() && used.inbound.is_none() {
                self.slots.remove(&buffer.slot);
            }
        }
        let rout = buffer.out.upgrade();
        let until = self.now + Nanos::from(hold_ms) * 1_000_000;
        let leaving = match hold && hold_ms > 0 && !sub.name.is_empty() {
            true => place_of((&outbound, &sub), until),
            false => Leaving::Gone,
        };
        let kept = rout.as_ref().map(|rout| &rout.kept);
        let removed = buffer.remove_sub((number, wire), leaving, kept);
        buffer.tell_who_follows();
        if removed == Some(true) {
            self.look_at_held(until);
        }
        Self::data_out(&buffer);
        if let Some(rout) = rout {
            let (bid, name) = (buffer.bid, sub.name.clone());
            rout.tell(OutEvent::Unsubscribed { conn: number, bid, name, why: why.to_owned() });
            rout.reap(&buffer);
        }
    }

    /// Has somebody look when a place that is kept has been kept long enough: the first worker looks after all of them.
    fn look_at_held(&mut self, until: Nanos) {
        match self.shared.index {
            0 => self.next_tick = self.next_tick.min(until),
            _ => self.inner.workers[0].send(Command::LookAt(until)),
        }
    }

    /// The slowest subscription of a buffer that somebody waits for: has it stalled?
    /// `slowest` remembers for the length of a tick who is the slowest of each buffer: finding that costs a look at all.
    /// True if there is somebody who holds others.
    pub(super) fn tick_outs(&mut self, conn: ConnId, slowest: &mut HashMap<u32, Option<Position>>) -> bool {
        let now = self.now;
        let Some(link) = self.links.get_mut(&conn) else { return false };
        let (mut stalled, mut holds) = (None, false);
        for (wire, out) in &mut link.outs {
            let Some(log) = out.buffer.log() else { continue };
            let waits = holds_others(&log.ring, out, slowest);
            holds |= waits;
            if waits && !out.others_wait {
                out.outbound.begin_waiting(now);
            }
            out.others_wait = waits;
            if waits && out.outbound.stalled(now) {
                stalled = Some((*wire, out.outbound.behind(&log.ring)));
            }
        }
        if let Some((wire, lag)) = stalled {
            self.disconnect_slow(conn, wire, lag, "no progress within block_timeout while others waited");
        }
        holds
    }

    /// Ends a subscription that was too slow, and its connection. No place is kept for it.
    fn disconnect_slow(&mut self, conn: ConnId, wire: WireId, lag: u64, rule: &str) {
        let why = format!("too slow: {lag} bytes behind ({rule})");
        self.tell_too_slow(conn, wire, lag);
        self.transport.detach(conn, wire);
        self.drop_out(conn, wire, &why, false);
        self.send(conn, &Message::Refused { wire, code: RefuseCode::TooSlow, a: lag, b: 0 });
        self.close(conn, CloseCode::Timeout, &why);
    }

    fn tell_too_slow(&self, conn: ConnId, wire: WireId, lag_bytes: u64) {
        let Some(link) = self.links.get(&conn) else { return };
        let (number, Some(out)) = (link.shared.id, link.outs.get(&wire)) else { return };
        let (bid, policy) = (out.buffer.bid, out.sub.policy);
        if let Some(rout) = out.buffer.out.upgrade() {
            rout.tell(OutEvent::TooSlow { conn: number, bid, policy, lag_bytes });
        }
    }
}

/// Whether this subscription is what keeps the writer from going on.
fn holds_others(ring: &Ring, out: &OutSub, slowest: &mut HashMap<u32, Option<Position>>) -> bool {
    let Some(at) = out.outbound.holds_at() else { return false };
    let head = ring.head();
    // A remote writer is out of credit when less than an eighth is left; a local one says that it waits.
    let exhausted = ring.horizon().saturating_sub(head) < ring.capacity() / 8;
    if at >= head || !(ring.writer_waits() || (out.buffer.source.is_some() && exhausted)) {
        return false;
    }
    let slowest = slowest.entry(out.buffer.slot).or_insert_with(|| ring.slowest_hold());
    slowest.is_none_or(|slowest| slowest >= at)
}

/// The place to keep for a named subscription that goes.
fn place_of((outbound, sub): (&Outbound, &SubShared), until: Nanos) -> Leaving {
    #[cfg(feature = "planted-bugs")]
    if let (true, Some(hold)) =
        (crate::planted::is(crate::planted::PLACE_NOT_HELD), &*crate::lock::lock(&sub.hold))
    {
        hold.advance(Position::MAX);
    }
    Leaving::Kept(Held {
        hold: None,
        policy: sub.policy,
        levels: outbound.levels(),
        tally: outbound.tally(),
        whole: sub.whole.load(Ordering::Acquire),
        until,
    })
}
