//! Receiving subscriptions after SUBSCRIBED: arriving data, credit, and the end.

use std::sync::Arc;

use rocketnet::{ConnId, Transport};
use rocketring::Ring;

use super::reactor::Reactor;
use crate::error::RefusedError;
use crate::limits::millis;
use crate::lock::lock;
use crate::planted;
use crate::proto::{CloseCode, End, Ending, LogEnd, Message, ReceiveError, RefuseCode};
use crate::state::{Command, InboundShared};
use crate::types::{Nanos, Position, WireId};

impl<T: Transport> Reactor<T> {
    /// Sends CREDIT, whether it is due or not.
    pub(super) fn tell_credit(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        let downstream = inbound.downstream();
        let Some(credit) = lock(&inbound.state).tell(downstream.as_ref()) else { return };
        self.send(conn, &Message::Credit { wire, credit });
    }

    /// Sends CREDIT, whether it is due or not, if the downstream receivers confirm more than the last one
    /// did.
    pub(super) fn tell_on(&mut self, inbound: &Arc<InboundShared>) {
        let downstream = inbound.downstream();
        let state = lock(&inbound.state);
        let Some((number, wire)) = state.sub.wire() else { return };
        let Some(&conn) = self.by_number.get(&number) else { return };
        let (log, now) = (state.sub.log(), state.credit_now(downstream.as_ref()));
        let more = log.zip(now).is_some_and(|(log, now)| log.credit().confirms_more(&now));
        drop(state);
        if more && self.in_sub(conn, wire).is_some_and(|in_sub| in_sub.machine.is_answered()) {
            self.tell_last_credit(conn, wire, inbound);
        }
    }

    /// Sends CREDIT unless the sender has switched to another log or has lost part of this one.
    pub(super) fn tell_last_credit(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        let reports = lock(&inbound.state).sub.reports_last_credit();
        if reports {
            self.tell_credit(conn, wire, inbound);
        }
    }

    /// Reports the final positions of every subscription. A peer that asked for confirmations, or that holds
    /// the position of a durable subscription, has no other way to learn them.
    pub(super) fn tell_last_credits(&mut self, conn: ConnId) {
        let Some(link) = self.links.get(&conn) else { return };
        let ins = link.ins.iter().filter(|(_, in_sub)| in_sub.machine.is_live());
        let ins: Vec<_> = ins.map(|(wire, in_sub)| (*wire, in_sub.inbound.clone())).collect();
        for (wire, inbound) in ins {
            self.tell_last_credit(conn, wire, &inbound);
        }
    }

    /// Handles data that landed.
    pub(super) fn on_arrived(&mut self, conn: ConnId, wire: WireId) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.machine.is_leaving() {
            return;
        }
        let inbound = in_sub.inbound.clone();
        if self.is_after_end(conn, &inbound) {
            return;
        }
        self.news_of(&inbound);
    }

    /// Handles data that this end found in mapped memory. The data stays valid after the log's end arrived,
    /// so an ended subscription is not an error.
    pub(super) fn on_followed(&mut self, conn: ConnId, wire: WireId) {
        let inbound = self.in_sub(conn, wire).map(|in_sub| &in_sub.inbound);
        if inbound.is_some_and(|inbound| lock(&inbound.state).sub.ending().is_none()) {
            self.on_arrived(conn, wire);
        }
    }

    /// Closes the connection of a peer that sends more of a log after CLOSED or GONE.
    fn is_after_end(&mut self, conn: ConnId, inbound: &InboundShared) -> bool {
        let ended = lock(&inbound.state).sub.ending().is_some();
        if ended {
            self.close(conn, CloseCode::Protocol, &ReceiveError::AfterEnd.to_string());
        }
        ended
    }

    /// Reports progress to the subscribers downstream, the application, and the sender.
    pub(super) fn news_of(&mut self, inbound: &Arc<InboundShared>) {
        self.idle.stirred(inbound, self.io.now);
        if let Some(buffer) = inbound.spliced_to() {
            if let Some(log) = buffer.log() {
                buffer.times.note(self.io.now, &log.ring);
            }
            buffer.notify();
        }
        if let Some(rin) = inbound.rin.upgrade() {
            rin.on_news(inbound);
        }
        self.give_credit(inbound);
    }

    /// Sends CREDIT if it is due, and leaves a subscription whose log has ended and is consumed.
    pub(super) fn give_credit(&mut self, inbound: &Arc<InboundShared>) {
        self.lend(inbound);
        let downstream = inbound.downstream();
        let mut state = lock(&inbound.state);
        let Some((number, wire)) = state.sub.wire() else { return };
        let Some(&conn) = self.by_number.get(&number) else { return };
        if !self.in_sub(conn, wire).is_some_and(|in_sub| in_sub.machine.is_answered()) {
            // A resuming subscription waits for SUBSCRIBED: the sender may have another log by now. CREDIT
            // follows that answer in any case.
            return;
        }
        let Some((due, finished)) = state.next_credit(downstream.as_ref()) else { return };
        drop(state);
        if let Some(credit) = due {
            self.send(conn, &Message::Credit { wire, credit });
        }
        if finished && let Some(rin) = inbound.rin.upgrade() {
            rin.forget_if_over(inbound);
        }
        if finished {
            // The application may not have received the end yet. The wire id is no longer needed.
            self.leave(conn, wire);
        }
    }

    pub(super) fn on_ask(&mut self, conn: ConnId, wire: WireId, wanted: [Position; 3]) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        let inbound = in_sub.inbound.clone();
        if planted::is(planted::ASK_IGNORED) {
            return;
        }
        if let Some(log) = lock(&inbound.state).sub.log_mut() {
            log.on_ask(wanted);
        }
        inbound.want_confirmed(wanted);
        self.give_credit(&inbound);
    }

    pub(super) fn on_lost(&mut self, conn: ConnId, wire: WireId, (from, to): (Position, Position)) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.machine.is_leaving() {
            return;
        }
        let inbound = in_sub.inbound.clone();
        if self.is_after_end(conn, &inbound) {
            return;
        }
        if from > to {
            return self.close(conn, CloseCode::Protocol, &ReceiveError::LostEndsEarly.to_string());
        }
        let skipped = self.io.transport.skip(conn, wire, to);
        let mut state = lock(&inbound.state);
        let known = state.parts().is_some_and(|(log, memory)| log.on_lost(to, skipped, memory.ring()));
        drop(state);
        if !known {
            return self.close(conn, CloseCode::Protocol, &ReceiveError::LostElsewhere.to_string());
        }
        self.news_of(&inbound);
    }

    pub(super) fn on_end(&mut self, conn: ConnId, wire: WireId, end: End) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.machine.is_leaving() {
            return;
        }
        let inbound = in_sub.inbound.clone();
        if self.is_after_end(conn, &inbound) {
            return;
        }
        let received = lock(&inbound.state)
            .ring()
            .map(|ring| LogEnd { boundary: ring.stop_following(), peer_written: ring.is_peer_written() });
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        let end = match in_sub.machine.on_end(end, received) {
            Ok(end) => end,
            Err(error) => return self.close(conn, CloseCode::Protocol, &error.to_string()),
        };
        self.end_inbound(&inbound, Ending::End(end));
        self.give_credit(&inbound);
    }

    pub(super) fn on_refused(&mut self, conn: ConnId, wire: WireId, code: RefuseCode, a: u64, b: u64) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.ins.get(&wire).is_some_and(|in_sub| in_sub.machine.is_leaving()) {
            // REFUSED crossed UNSUBSCRIBE. UNSUBSCRIBED still arrives and frees the wire id.
            return;
        }
        let Some(in_sub) = link.ins.remove(&wire) else { return };
        self.io.transport.unbind(conn, wire);
        in_sub.inbound.detach();
        self.slots.remove(&in_sub.inbound.slot);
        let error = RefusedError::Peer { code, a, b };
        self.end_inbound(&in_sub.inbound, Ending::Refused(error));
    }

    /// Ends a subscription. The application and the subscribers downstream learn of the end after the data.
    pub(super) fn end_inbound(&mut self, inbound: &Arc<InboundShared>, ending: Ending) {
        let mut state = lock(&inbound.state);
        if state.sub.ending().is_some() {
            return;
        }
        let boundary = state.ring().map_or(0, Ring::stop_following);
        let end = ending.downstream(boundary);
        state.sub.end(ending);
        drop(state);
        // The end is set before any notification: an application that removes the buffer in response cannot
        // end it otherwise.
        let tell = || {
            if let Some(rin) = inbound.rin.upgrade() {
                rin.on_news(inbound);
            }
        };
        let Some(buffer) = inbound.spliced_to() else { return tell() };
        buffer.end_with(end, tell);
    }

    pub(super) fn unsubscribe(&mut self, number: u64, inbound: Arc<InboundShared>) {
        let mut state = lock(&inbound.state);
        state.sub.leave();
        let wire = state.sub.wire_on(number);
        let boundary = state.ring().map_or(0, Ring::boundary);
        let ended = state.sub.ending().is_some();
        drop(state);
        self.suspended.retain(|(other, _)| other.as_ptr() != Arc::as_ptr(&inbound));
        self.idle.forget(&inbound.rest);
        if let (false, Some(buffer)) = (ended, inbound.spliced_to()) {
            buffer.end_with(End::Gone(boundary), || ());
        }
        if let (Some(&conn), Some(wire)) = (self.by_number.get(&number), wire) {
            self.leave(conn, wire);
        }
    }

    /// Sends UNSUBSCRIBE. The wire id stays bound until UNSUBSCRIBED arrives.
    pub(super) fn leave(&mut self, conn: ConnId, wire: WireId) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.machine.is_leaving() {
            return;
        }
        let (answered, inbound) = (in_sub.machine.is_answered(), in_sub.inbound.clone());
        if answered {
            self.tell_last_credit(conn, wire, &inbound);
        }
        if let Some(in_sub) = self.in_sub(conn, wire) {
            in_sub.machine.leave();
        }
        inbound.detach();
        self.slots.remove(&inbound.slot);
        self.send(conn, &Message::Unsubscribe(wire));
    }

    pub(super) fn on_unsubscribed(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        match link.ins.get(&wire) {
            Some(in_sub) if in_sub.machine.is_leaving() => {
                let gone = link.ins.remove(&wire);
                let receiver = self.io.transport.unbind(conn, wire);
                self.keep_receiver(gone.map(|in_sub| in_sub.inbound), receiver);
            }
            _ => self.close(conn, CloseCode::Protocol, &ReceiveError::InUse.to_string()),
        }
    }

    /// Suspends the subscriptions of a connection that is down. Their rings stay and can resume over another
    /// connection.
    pub(super) fn suspend_ins(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut ins: Vec<_> = link.ins.drain().collect();
        ins.sort_unstable_by_key(|(wire, _)| *wire);
        for (wire, in_sub) in ins {
            let receiver = self.io.transport.unbind(conn, wire);
            if in_sub.machine.is_leaving() {
                continue;
            }
            let inbound = in_sub.inbound;
            self.slots.remove(&inbound.slot);
            let mut state = lock(&inbound.state);
            let calls = state.suspend(receiver);
            self.idle.stirred(&inbound, self.io.now);
            let resumed = state.sub.take_resume();
            drop(state);
            calls.run();
            if let Some(next) = resumed {
                let worker = self.io.inner.worker_of(next);
                self.io.inner.workers[worker].send(Command::Subscribe { conn: next, inbound });
            } else {
                self.begin_linger(inbound);
            }
        }
    }

    /// Starts the linger time of a spliced subscription that no connection carries and none is about to
    /// carry. This includes a subscription that lost its connection before SUBSCRIBE was sent or before the
    /// splice.
    pub(super) fn begin_linger(&mut self, inbound: Arc<InboundShared>) {
        let usual = Nanos::from(self.io.inner.config.session.linger_ms) * 1_000_000;
        let linger = inbound.options.linger.map_or(usual, |linger| Nanos::from(millis(linger)) * 1_000_000);
        let gone_at = self.io.now + linger;
        if !inbound.is_spliced() || !lock(&inbound.state).sub.begin_linger(gone_at) {
            return;
        }
        self.suspended.push((Arc::downgrade(&inbound), gone_at));
        self.io.next_tick = self.io.next_tick.min(gone_at);
    }

    /// Ends the spliced subscriptions whose writer was away for `linger`: their subscribers get GONE.
    pub(super) fn tick_suspended(&mut self) -> Option<Nanos> {
        let now = self.io.now;
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.suspended).into_iter().partition(|(_, at)| *at <= now);
        self.suspended = wait;
        for (inbound, gone_at) in over {
            let Some(inbound) = inbound.upgrade() else { continue };
            let state = lock(&inbound.state);
            let away = state.sub.is_gone(gone_at);
            let end = |ring: &Ring| match planted::is(planted::GONE_AT_HEAD) {
                true => ring.head(),
                false => ring.boundary(),
            };
            let boundary = state.ring().map_or(0, end);
            drop(state);
            if away {
                self.end_inbound(&inbound, Ending::End(End::Gone(boundary)));
            }
        }
        self.suspended.iter().map(|(_, at)| *at).min()
    }
}
