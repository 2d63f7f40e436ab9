//! Our subscriptions from their answer on: receiving, credit, and what ends them.

use std::sync::Arc;

use rocketnet::{ConnId, Transport};

use super::{Command, Core};
use crate::error::RefusedError;
use crate::limits::millis;
use crate::lock::lock;
use crate::proto::{CloseCode, End, Message, RefuseCode};
use crate::state::{Ending, InLog, InboundShared};
use crate::types::{Nanos, Position, WireId};

impl<T: Transport> Core<T> {
    /// CREDIT, due or not.
    pub(super) fn tell_credit(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        let downstream = inbound.spliced_to();
        let mut state = lock(&inbound.state);
        let Some(in_log) = &mut state.log else { return };
        in_log.catch_up();
        let now = in_log.credit_now(downstream.as_deref());
        let Some(credit) = in_log.credit.tell(now).map(|credit| in_log.as_told(credit)) else { return };
        drop(state);
        self.send(conn, &Message::Credit { wire, credit });
    }

    /// CREDIT, due or not, if others have more of it than was told.
    pub(super) fn tell_on(&mut self, inbound: &Arc<InboundShared>) {
        let downstream = inbound.spliced_to();
        let state = lock(&inbound.state);
        let Some((number, wire)) = state.wire else { return };
        let Some(&conn) = self.by_number.get(&number) else { return };
        let more = state
            .log
            .as_ref()
            .is_some_and(|in_log| in_log.credit.confirms_more(&in_log.credit_now(downstream.as_deref())));
        drop(state);
        if more && self.in_sub(conn, wire).is_some_and(|in_sub| in_sub.answered) {
            self.tell_last_credit(conn, wire, inbound);
        }
    }

    /// The same, unless the sender has another log by now, or less of this one.
    pub(super) fn tell_last_credit(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        let same_log = matches!(lock(&inbound.state).ending, None | Some(Ending::End(End::Closed(_))));
        if same_log {
            self.tell_credit(conn, wire, inbound);
        }
    }

    /// How far the application came: who asked for that, or keeps its place, does not learn it any more otherwise.
    pub(super) fn tell_last_credits(&mut self, conn: ConnId) {
        let Some(link) = self.links.get(&conn) else { return };
        let ins = link.ins.iter().filter(|(_, in_sub)| in_sub.answered && !in_sub.leaving);
        let ins: Vec<_> = ins.map(|(wire, in_sub)| (*wire, in_sub.inbound.clone())).collect();
        for (wire, inbound) in ins {
            self.tell_last_credit(conn, wire, &inbound);
        }
    }

    /// Something landed.
    pub(super) fn on_arrived(&mut self, conn: ConnId, wire: WireId) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.leaving {
            return;
        }
        let inbound = in_sub.inbound.clone();
        if self.is_after_end(conn, &inbound) {
            return;
        }
        self.news_of(&inbound);
    }

    /// What this end has seen by itself: also of a log whose end it has heard of since.
    pub(super) fn on_followed(&mut self, conn: ConnId, wire: WireId) {
        let inbound = self.in_sub(conn, wire).map(|in_sub| &in_sub.inbound);
        if inbound.is_some_and(|inbound| lock(&inbound.state).ending.is_none()) {
            self.on_arrived(conn, wire);
        }
    }

    /// Nothing may come after CLOSED or GONE: closes the connection of a peer that goes on.
    fn is_after_end(&mut self, conn: ConnId, inbound: &InboundShared) -> bool {
        let ended = lock(&inbound.state).ending.is_some();
        if ended {
            self.close(conn, CloseCode::Protocol, "a log goes on after its end was told");
        }
        ended
    }

    /// Tells whoever is interested: subscribers downstream, the application, the sender.
    pub(super) fn news_of(&mut self, inbound: &Arc<InboundShared>) {
        self.idle.stirred(inbound, self.now);
        if let Some(buffer) = inbound.spliced_to() {
            if let Some(log) = buffer.log() {
                buffer.times.note(self.now, &log.ring);
            }
            buffer.notify();
        }
        if let Some(rin) = inbound.rin.upgrade() {
            rin.on_news(inbound);
        }
        self.give_credit(inbound);
    }

    /// CREDIT if it is due; a subscription whose end was told and given back is over.
    pub(super) fn give_credit(&mut self, inbound: &Arc<InboundShared>) {
        self.lend(inbound);
        let downstream = inbound.spliced_to();
        let mut state = lock(&inbound.state);
        let Some((number, wire)) = state.wire else { return };
        let Some(&conn) = self.by_number.get(&number) else { return };
        if !self.in_sub(conn, wire).is_some_and(|in_sub| in_sub.answered) {
            // Resuming: the sender's log may be another one by now. The answer is followed by a CREDIT anyway.
            return;
        }
        let ending = state.ending.clone();
        let Some(in_log) = &mut state.log else { return };
        if in_log.credit.is_asked() {
            in_log.ask_reader();
        }
        in_log.catch_up();
        if let Some(buffer) = &downstream {
            // A receiver that goes on may have had what lands only now.
            in_log.keep_for(buffer);
        }
        let now = in_log.credit_now(downstream.as_deref());
        let due = in_log.next_credit(now);
        let finished = match ending {
            Some(Ending::End(end)) => now.consumed >= end.position(),
            _ => false,
        };
        drop(state);
        if let Some(credit) = due {
            self.send(conn, &Message::Credit { wire, credit });
        }
        if finished && let Some(rin) = inbound.rin.upgrade() {
            rin.forget_if_over(inbound);
        }
        if finished {
            // The application may still have the end to hear; the id is no longer needed.
            self.leave(conn, wire);
        }
    }

    pub(super) fn on_ask(&mut self, conn: ConnId, wire: WireId, wanted: [Position; 3]) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        let inbound = in_sub.inbound.clone();
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is(crate::planted::ASK_IGNORED) {
            return;
        }
        if let Some(in_log) = &mut lock(&inbound.state).log {
            in_log.on_ask(wanted);
        }
        inbound.want_confirmed(wanted);
        self.give_credit(&inbound);
    }

    pub(super) fn on_lost(&mut self, conn: ConnId, wire: WireId, (from, to): (Position, Position)) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.leaving {
            return;
        }
        let inbound = in_sub.inbound.clone();
        if self.is_after_end(conn, &inbound) {
            return;
        }
        if from > to {
            return self.close(conn, CloseCode::Protocol, "LOST ends before it begins");
        }
        let skipped = self.transport.skip(conn, wire, to);
        let mut state = lock(&inbound.state);
        match &mut state.log {
            Some(in_log) if skipped => in_log.covered_from = to,
            // Who follows a ring past a relay may have what the relay lost.
            Some(in_log) if in_log.ring().is_peer_written() && in_log.ring().boundary() >= to => {}
            _ => {
                drop(state);
                let why = "LOST goes backwards, beyond all positions, or comes for an id without data";
                return self.close(conn, CloseCode::Protocol, why);
            }
        }
        drop(state);
        self.news_of(&inbound);
    }

    pub(super) fn on_end(&mut self, conn: ConnId, wire: WireId, end: End) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.leaving {
            return;
        }
        let (inbound, resumed_at) = (in_sub.inbound.clone(), in_sub.resumed_at);
        if self.is_after_end(conn, &inbound) {
            return;
        }
        let has = lock(&inbound.state).log.as_ref().map(|l| {
            let boundary = l.ring().stop_following();
            (boundary, l.ring().head(), l.ring().is_peer_written())
        });
        let end = match has {
            Some((boundary, ..)) if boundary == end.position() => end,
            // Who follows has seen what the relay had not, or never has.
            Some((boundary, _, true)) if boundary > end.position() => End::Gone(boundary),
            // A relay that was restarted ends with less than came here from the one before, or inside a delivery. It knows no
            // delivery that began before the resume.
            Some((boundary, ..)) if resumed_at.is_some_and(|at| boundary.max(end.position()) <= at) => {
                End::Gone(boundary)
            }
            _ => {
                self.close(conn, CloseCode::Protocol, "the log ends where its data does not");
                return;
            }
        };
        self.end_inbound(&inbound, Ending::End(end));
        self.give_credit(&inbound);
    }

    pub(super) fn on_refused(&mut self, conn: ConnId, wire: WireId, code: RefuseCode, a: u64, b: u64) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.ins.get(&wire).is_some_and(|in_sub| in_sub.leaving) {
            // It crossed UNSUBSCRIBE, whose answer still comes and frees the id.
            return;
        }
        let Some(in_sub) = link.ins.remove(&wire) else { return };
        self.transport.unbind(conn, wire);
        in_sub.inbound.detach();
        self.slots.remove(&in_sub.inbound.slot);
        let error = RefusedError::Peer { code, a, b };
        self.end_inbound(&in_sub.inbound, Ending::Refused(error));
    }

    /// How a subscription ends; told in order after its data, downstream too.
    pub(super) fn end_inbound(&mut self, inbound: &Arc<InboundShared>, ending: Ending) {
        let mut state = lock(&inbound.state);
        if state.ending.is_some() {
            return;
        }
        state.ending = Some(ending.clone());
        let boundary = state.log.as_ref().map_or(0, |l| l.ring().stop_following());
        drop(state);
        // The end stands before anybody hears of it: who removes the buffer then does not end it otherwise.
        let tell = || {
            if let Some(rin) = inbound.rin.upgrade() {
                rin.on_news(inbound);
            }
        };
        let Some(buffer) = inbound.spliced_to() else { return tell() };
        let end = match ending {
            Ending::End(end) => end,
            Ending::Restarted(_) | Ending::Refused(_) => End::Gone(boundary),
        };
        buffer.end_with(end, tell);
    }

    pub(super) fn unsubscribe(&mut self, number: u64, inbound: Arc<InboundShared>) {
        let mut state = lock(&inbound.state);
        state.done = true;
        let wire = state.wire;
        let boundary = state.log.as_ref().map_or(0, |l| l.ring().boundary());
        let ended = state.ending.is_some();
        drop(state);
        self.suspended.retain(|(other, _)| other.as_ptr() != Arc::as_ptr(&inbound));
        self.idle.forget(&inbound.rest);
        if let (false, Some(buffer)) = (ended, inbound.spliced_to()) {
            buffer.end_with(End::Gone(boundary), || ());
        }
        if let (Some(&conn), Some((at, wire))) = (self.by_number.get(&number), wire)
            && at == number
        {
            self.leave(conn, wire);
        }
    }

    /// Sends UNSUBSCRIBE; the id stays bound until the peer has acknowledged it.
    pub(super) fn leave(&mut self, conn: ConnId, wire: WireId) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.leaving {
            return;
        }
        let (answered, inbound) = (in_sub.answered, in_sub.inbound.clone());
        if answered {
            self.tell_last_credit(conn, wire, &inbound);
        }
        if let Some(in_sub) = self.in_sub(conn, wire) {
            in_sub.leaving = true;
        }
        inbound.detach();
        self.slots.remove(&inbound.slot);
        self.send(conn, &Message::Unsubscribe(wire));
    }

    pub(super) fn on_unsubscribed(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        match link.ins.get(&wire) {
            Some(in_sub) if in_sub.leaving => {
                let gone = link.ins.remove(&wire);
                let receiver = self.transport.unbind(conn, wire);
                self.keep_receiver(gone.map(|in_sub| in_sub.inbound), receiver);
            }
            _ => self.close(conn, CloseCode::Protocol, "UNSUBSCRIBED for an id that is in use"),
        }
    }

    /// The connection is down: subscriptions keep their rings and can go on over another.
    pub(super) fn suspend_ins(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut ins: Vec<_> = link.ins.drain().collect();
        ins.sort_unstable_by_key(|(wire, _)| *wire);
        for (wire, in_sub) in ins {
            let receiver = self.transport.unbind(conn, wire);
            if in_sub.leaving {
                continue;
            }
            let inbound = in_sub.inbound;
            self.slots.remove(&inbound.slot);
            let mut state = lock(&inbound.state);
            if let (Some(in_log), Some(receiver)) = (&mut state.log, receiver) {
                in_log.receiver = Some(receiver);
            }
            state.disconnect();
            let calls = state.log.as_mut().map(InLog::suspend_loan);
            self.idle.stirred(&inbound, self.now);
            let resumed = state.resume_on.take();
            drop(state);
            calls.unwrap_or_default().run();
            if let Some(next) = resumed {
                let worker = self.inner.worker_of(next);
                self.inner.workers[worker].send(Command::Subscribe { conn: next, inbound });
            } else {
                self.begin_linger(inbound);
            }
        }
    }

    /// No connection carries this subscription, and none is about to. If others have its buffer from here, its writer is
    /// away from now on: also one that went before it could be asked, or before the buffer was handed on.
    pub(super) fn begin_linger(&mut self, inbound: Arc<InboundShared>) {
        let mut state = lock(&inbound.state);
        let goes_on = state.wire.is_some() || state.resume_on.is_some();
        let over = state.done || state.ending.is_some();
        if goes_on || over || state.gone_at.is_some() || !inbound.is_spliced() {
            return;
        }
        let usual = Nanos::from(self.inner.config.session.linger_ms) * 1_000_000;
        let linger = inbound.options.linger.map_or(usual, |linger| Nanos::from(millis(linger)) * 1_000_000);
        let gone_at = self.now + linger;
        state.gone_at = Some(gone_at);
        drop(state);
        self.suspended.push((Arc::downgrade(&inbound), gone_at));
        self.next_tick = self.next_tick.min(gone_at);
    }

    /// Writers that were away for `linger` are gone for good, as far as their subscribers are concerned.
    pub(super) fn tick_suspended(&mut self) -> Option<Nanos> {
        let now = self.now;
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.suspended).into_iter().partition(|(_, at)| *at <= now);
        self.suspended = wait;
        for (inbound, gone_at) in over {
            let Some(inbound) = inbound.upgrade() else { continue };
            let state = lock(&inbound.state);
            let away = state.gone_at == Some(gone_at) && !state.done;
            let boundary = state.log.as_ref().map_or(0, |l| l.ring().boundary());
            #[cfg(feature = "planted-bugs")]
            let boundary = match &state.log {
                Some(l) if crate::planted::is(crate::planted::GONE_AT_HEAD) => l.ring().head(),
                _ => boundary,
            };
            drop(state);
            if away {
                self.end_inbound(&inbound, Ending::End(End::Gone(boundary)));
            }
        }
        self.suspended.iter().map(|(_, at)| *at).min()
    }
}
