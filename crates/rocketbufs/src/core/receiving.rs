//! Our subscriptions: asking, receiving, credit, and what ends them.

use std::sync::Arc;

use rocketnet::{ConnId, Transport};
use rocketring::{PoolError, Ring, RingConfig};

use super::{Command, Core, InSub, LinkPhase};
use crate::buffer::{Buffer, Log};
use crate::context::lock;
use crate::error::RefusedError;
use crate::events::Received;
use crate::inbound::{Ending, InLog, InboundShared};
use crate::proto::{ByeCode, End, Inbound, Message, RefuseCode, Start, Subscribe, Subscribed};
use crate::terms::millis;
use crate::types::{Nanos, Position, WireId};

impl<T: Transport> Core<T> {
    /// Sends SUBSCRIBE: anew, or from where the subscription stopped.
    pub(super) fn subscribe(&mut self, number: u64, inbound: Arc<InboundShared>) {
        let early = || Command::Subscribe { conn: number, inbound: inbound.clone() };
        if self.too_early(number, early) {
            return;
        }
        let Some(&conn) = self.by_number.get(&number) else { return };
        let Some(link) = self.links.get_mut(&conn) else { return };
        if link.phase != LinkPhase::Up {
            return;
        }
        let mut state = lock(&inbound.state);
        if state.done || state.ending.is_some() || state.wire.is_some_and(|(at, _)| at == number) {
            return;
        }
        if state.wire.is_some() {
            // The old connection still has the landing end; it is closing.
            state.resume_on = Some(number);
            return;
        }
        let wire = link.next_wire;
        link.next_wire += 1;
        state.wire = Some((number, wire));
        let resumed_at = state.log.as_ref().map(|in_log| in_log.ring().head());
        let start = match &state.log {
            Some(in_log) => Start::Position(in_log.log.epoch, in_log.ring().head()),
            None => inbound.options.start,
        };
        #[cfg(feature = "planted-bugs")]
        let start = match start {
            Start::Position(epoch, at) if crate::planted::is(crate::planted::RESUME_OFF_BY_ONE) => {
                Start::Position(epoch, at - 1)
            }
            start => start,
        };
        drop(state);
        let in_sub = InSub { inbound: inbound.clone(), answered: false, resumed_at, leaving: false };
        link.ins.insert(wire, in_sub);
        self.suspended.retain(|(other, _)| !Arc::ptr_eq(other, &inbound));
        self.slots.entry(inbound.slot).or_default().inbound = Some(inbound.clone());
        let subscribe = subscribe_message(&inbound, wire, start);
        self.send(conn, &Message::Subscribe(subscribe));
    }

    pub(super) fn in_sub(&mut self, conn: ConnId, wire: WireId) -> Option<&mut InSub> {
        self.links.get_mut(&conn)?.ins.get_mut(&wire)
    }

    pub(super) fn on_subscribed(&mut self, conn: ConnId, subscribed: &Subscribed) {
        let wire = subscribed.wire;
        let Some(in_sub) = self.in_sub(conn, wire) else {
            self.close(conn, ByeCode::Protocol, "SUBSCRIBED for an id that was not asked for");
            return;
        };
        if std::mem::replace(&mut in_sub.answered, true) {
            self.close(conn, ByeCode::Protocol, "SUBSCRIBED twice");
            return;
        }
        let (inbound, leaving) = (in_sub.inbound.clone(), in_sub.leaving);
        if leaving {
            if !subscribed.flow_control {
                self.let_land(conn, subscribed);
            }
            return;
        }
        let known = lock(&inbound.state).log.as_ref().map(|l| (l.log.epoch, l.ring().head()));
        match known {
            None => self.begin_log(conn, &inbound, subscribed),
            Some((epoch, head)) if epoch == subscribed.epoch && subscribed.start == head => {
                self.resume_log(conn, wire, &inbound);
            }
            Some((epoch, _)) if epoch == subscribed.epoch => {
                self.close(conn, ByeCode::Protocol, "SUBSCRIBED with another position than was asked for");
            }
            Some(_) => {
                self.end_inbound(&inbound, Ending::Restarted(subscribed.epoch));
                self.leave(conn, wire);
                if !subscribed.flow_control {
                    self.let_land(conn, subscribed);
                }
            }
        }
    }

    /// Left before it was answered, or because of the answer. Without flow control data comes until the peer has read UNSUBSCRIBE: it lands in
    /// a ring that nobody reads. (With flow control nothing comes before the first CREDIT.)
    fn let_land(&mut self, conn: ConnId, subscribed: &Subscribed) {
        let config = RingConfig {
            capacity_bytes: 1,
            retain_bytes: Some(0),
            max_delivery_bytes: None,
            flow_control: false,
            start: subscribed.start,
        };
        if let Some(inlet) = self.inner.pool.ring(config).ok().and_then(|ring| ring.inlet()) {
            self.transport.bind(conn, subscribed.wire, inlet);
        }
    }

    /// The first answer: a ring for the log.
    fn begin_log(&mut self, conn: ConnId, inbound: &Arc<InboundShared>, subscribed: &Subscribed) {
        let Subscribed { wire, epoch, start, .. } = *subscribed;
        let ring = self.make_ring(inbound, subscribed);
        let ring = match ring {
            Ok(ring) => ring,
            Err(error) => {
                let error = RefusedError::Memory(error.to_string());
                self.end_inbound(inbound, Ending::Refused(error));
                self.leave(conn, wire);
                return;
            }
        };
        let Some(inlet) = ring.inlet() else { return };
        let window = (ring.capacity() - ring.retain()).min((subscribed.capacity / 2).max(1));
        let log = Log { ring, epoch };
        let credit = Inbound::new(start, window);
        let mut in_log = InLog::new(log.clone(), inlet, credit, start, inbound.options.relays);
        in_log.confirm_consumed = inbound.options.confirm_consumed;
        let inlet = in_log.inlet.take();
        let mut state = lock(&inbound.state);
        state.log = Some(in_log);
        drop(state);
        if let Some(inlet) = inlet {
            self.transport.bind(conn, wire, inlet);
        }
        let left = lock(&inbound.state).done;
        if let (false, Some(rin)) = (left, inbound.rin.upgrade()) {
            let asked = matches!(inbound.options.start, Start::Position(..));
            if asked && subscribed.restarted {
                rin.tell(Received::Restarted { bid: inbound.bid, epoch });
            }
            rin.tell(Received::Subscribed { bid: inbound.bid, epoch, start });
        }
        // A splice may have been made while the ring was: it looks at the state before this.
        if let Some(buffer) = inbound.spliced_to() {
            let _ = buffer.log.set(log);
            buffer.unpark();
        }
        self.tell_credit(conn, wire, inbound);
    }

    fn make_ring(&self, inbound: &InboundShared, subscribed: &Subscribed) -> Result<Ring, PoolError> {
        let options = &inbound.options;
        let capacity = options.size_bytes.next_power_of_two();
        let max_delivery = subscribed.max_delivery.min(capacity / 2);
        let retain = match options.retain_bytes {
            retain if !inbound.is_spliced() => Some(retain.unwrap_or(0)),
            // At least one delivery, so that whoever joins finds the start of one.
            retain => {
                retain.or(self.inner.config.buffers.retain_bytes).map(|retain| retain.max(max_delivery))
            }
        };
        self.inner.pool.ring(RingConfig {
            capacity_bytes: capacity,
            retain_bytes: retain,
            max_delivery_bytes: Some(max_delivery),
            flow_control: subscribed.flow_control,
            start: subscribed.start,
        })
    }

    fn resume_log(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        let inlet = lock(&inbound.state).log.as_mut().and_then(|l| l.inlet.take());
        let Some(inlet) = inlet else {
            // Another connection still has the landing end: the application resumed over two at once.
            self.leave(conn, wire);
            return;
        };
        self.transport.bind(conn, wire, inlet);
        self.tell_credit(conn, wire, inbound);
    }

    /// CREDIT, due or not.
    pub(super) fn tell_credit(&mut self, conn: ConnId, wire: WireId, inbound: &Arc<InboundShared>) {
        let downstream = inbound.spliced_to();
        let mut state = lock(&inbound.state);
        let Some(in_log) = &mut state.log else { return };
        let now = in_log.credit_now(downstream.as_deref());
        let Some(credit) = in_log.credit.tell(now) else { return };
        drop(state);
        self.send(conn, &Message::Credit { wire, credit });
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

    /// Nothing may come after CLOSED or GONE: closes the connection of a peer that goes on.
    fn is_after_end(&mut self, conn: ConnId, inbound: &InboundShared) -> bool {
        let ended = lock(&inbound.state).ending.is_some();
        if ended {
            self.close(conn, ByeCode::Protocol, "a log goes on after its end was told");
        }
        ended
    }

    /// Tells whoever is interested: subscribers downstream, the application, the sender.
    fn news_of(&mut self, inbound: &Arc<InboundShared>) {
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
        let now = in_log.credit_now(downstream.as_deref());
        let due = in_log.credit.credit(now);
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
            in_log.credit.on_ask(wanted);
        }
        inbound.want_confirmed(wanted);
        self.give_credit(&inbound);
    }

    pub(super) fn on_lost(&mut self, conn: ConnId, wire: WireId, to: Position) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if in_sub.leaving {
            return;
        }
        let inbound = in_sub.inbound.clone();
        if self.is_after_end(conn, &inbound) {
            return;
        }
        if !self.transport.skip(conn, wire, to) {
            let why = "LOST goes backwards, beyond all positions, or comes for an id without data";
            self.close(conn, ByeCode::Protocol, why);
            return;
        }
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
        let has = lock(&inbound.state).log.as_ref().map(|l| (l.ring().boundary(), l.ring().head()));
        let end = match has {
            Some((boundary, _)) if boundary == end.position() => end,
            // A relay that was restarted ends with less than came here from the one before, or inside a delivery.
            Some((boundary, head)) if head >= end.position() && resumed_at == Some(head) => {
                End::Gone(boundary)
            }
            _ => {
                self.close(conn, ByeCode::Protocol, "the log ends where its data does not");
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
        lock(&in_sub.inbound.state).wire = None;
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
        let boundary = state.log.as_ref().map_or(0, |l| l.ring().boundary());
        drop(state);
        if let Some(buffer) = inbound.spliced_to() {
            end_buffer(
                &buffer,
                match ending {
                    Ending::End(end) => end,
                    Ending::Restarted(_) | Ending::Refused(_) => End::Gone(boundary),
                },
            );
        }
        if let Some(rin) = inbound.rin.upgrade() {
            rin.on_news(inbound);
        }
    }

    pub(super) fn unsubscribe(&mut self, number: u64, inbound: Arc<InboundShared>) {
        let mut state = lock(&inbound.state);
        state.done = true;
        let wire = state.wire;
        let boundary = state.log.as_ref().map_or(0, |l| l.ring().boundary());
        let ended = state.ending.is_some();
        drop(state);
        self.suspended.retain(|(other, _)| !Arc::ptr_eq(other, &inbound));
        self.idle.forget(&inbound);
        if let (false, Some(buffer)) = (ended, inbound.spliced_to()) {
            end_buffer(&buffer, End::Gone(boundary));
        }
        if let (Some(&conn), Some((at, wire))) = (self.by_number.get(&number), wire)
            && at == number
        {
            self.leave(conn, wire);
        }
    }

    /// Sends UNSUBSCRIBE; the id stays bound until the peer has acknowledged it.
    fn leave(&mut self, conn: ConnId, wire: WireId) {
        let Some(in_sub) = self.in_sub(conn, wire) else { return };
        if std::mem::replace(&mut in_sub.leaving, true) {
            return;
        }
        let inbound = in_sub.inbound.clone();
        lock(&inbound.state).wire = None;
        self.slots.remove(&inbound.slot);
        self.send(conn, &Message::Unsubscribe(wire));
    }

    pub(super) fn on_unsubscribed(&mut self, conn: ConnId, wire: WireId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        match link.ins.get(&wire) {
            Some(in_sub) if in_sub.leaving => {
                let gone = link.ins.remove(&wire);
                let inlet = self.transport.unbind(conn, wire);
                self.keep_inlet(gone.map(|in_sub| in_sub.inbound), inlet);
            }
            _ => self.close(conn, ByeCode::Protocol, "UNSUBSCRIBED for an id that is in use"),
        }
    }

    /// The connection is down: subscriptions keep their rings and can go on over another.
    pub(super) fn suspend_ins(&mut self, conn: ConnId) {
        let Some(link) = self.links.get_mut(&conn) else { return };
        let mut ins: Vec<_> = link.ins.drain().collect();
        ins.sort_unstable_by_key(|(wire, _)| *wire);
        let usual = Nanos::from(self.inner.config.session.linger_ms) * 1_000_000;
        for (wire, in_sub) in ins {
            let inlet = self.transport.unbind(conn, wire);
            if in_sub.leaving {
                continue;
            }
            let inbound = in_sub.inbound;
            self.slots.remove(&inbound.slot);
            let mut state = lock(&inbound.state);
            if let (Some(in_log), Some(inlet)) = (&mut state.log, inlet) {
                in_log.inlet = Some(inlet);
            }
            state.wire = None;
            self.idle.stirred(&inbound, self.now);
            let resumed = state.resume_on.take();
            let ended = state.ending.is_some();
            drop(state);
            if let Some(next) = resumed {
                let worker = self.inner.worker_of(next);
                self.inner.workers[worker].send(Command::Subscribe { conn: next, inbound });
            } else if inbound.is_spliced() && !ended {
                let linger =
                    inbound.options.linger.map_or(usual, |linger| Nanos::from(millis(linger)) * 1_000_000);
                self.suspended.push((inbound, self.now + linger));
                self.next_tick = self.next_tick.min(self.now + linger);
            }
        }
    }

    /// Writers that were away for `linger` are gone for good, as far as their subscribers are concerned.
    pub(super) fn tick_suspended(&mut self) -> Option<Nanos> {
        let now = self.now;
        let (over, wait): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.suspended).into_iter().partition(|(_, at)| *at <= now);
        self.suspended = wait;
        for (inbound, _) in over {
            let state = lock(&inbound.state);
            let away = state.wire.is_none() && !state.done;
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

fn end_buffer(buffer: &Arc<Buffer>, end: End) {
    buffer.set_end(end);
    if let Some(out) = buffer.out.upgrade() {
        out.reap(buffer);
    }
}

fn subscribe_message(inbound: &InboundShared, wire: WireId, start: Start) -> Subscribe {
    let options = &inbound.options;
    Subscribe {
        wire,
        bid: inbound.bid,
        capacity: options.size_bytes.next_power_of_two(),
        policy: options.policy,
        start,
        max_lag: options.max_lag_bytes,
        block_timeout_ms: options.block_timeout.map_or(u32::MAX, millis),
        hold_ms: millis(options.hold),
        name: options.name.clone(),
    }
}
