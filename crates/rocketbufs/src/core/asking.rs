//! Asking for subscriptions, and what is made of the answer: a ring, in memory of one's own or mapped from the sender.

use std::sync::Arc;

use rocketnet::{ConnId, Offered, Transport};
use rocketring::{Ring, RingConfig};

use super::{Command, Core, InSub, LinkPhase};
use crate::error::RefusedError;
use crate::events::InEvent;
use crate::limits::millis;
use crate::lock::lock;
use crate::options::ConfirmMode;
use crate::proto::{CloseCode, End, Inbound, Message, Start, Subscribe, Subscribed};
use crate::state::{Ending, InLog, InboundShared, Loan, Log};
use crate::types::{Bid, Position, WireId};

impl<T: Transport> Core<T> {
    /// Sends SUBSCRIBE: anew, or from where the subscription stopped.
    pub(super) fn subscribe(&mut self, number: u64, inbound: Arc<InboundShared>) {
        let early = || Command::Subscribe { conn: number, inbound: inbound.clone() };
        if self.too_early(number, early) {
            return;
        }
        let known = self.by_number.get(&number).and_then(|conn| Some((*conn, self.links.get_mut(conn)?)));
        let Some((conn, link)) = known.filter(|(_, link)| link.phase == LinkPhase::Up) else {
            return self.begin_linger(inbound);
        };
        let Some(there) = inbound.there.bid() else { return self.begin_linger(inbound) };
        let on_this_machine = self.transport.carrier(conn).name == "shm";
        let rin = inbound.rin.upgrade();
        let mut state = lock(&inbound.state);
        if state.done || state.ending.is_some() || state.wire.is_some_and(|(at, _)| at == number) {
            return;
        }
        // Memory that is the sender's, or will be, is not gone on with: what came before is given back first, and part
        // of a delivery comes again.
        let moves = !inbound.is_spliced()
            && !inbound.options.own_memory
            && state.log.as_ref().is_some_and(|in_log| on_this_machine || in_log.ring().is_peer_written());
        let waits = moves && !state.log.as_mut().is_some_and(InLog::is_given_back);
        if state.wire.is_some() || waits {
            // The old connection still has the landing end, and is closing; or the application has not given back all.
            // Several workers say so in any order. One that the rIn has left by now is closed, and the newest says so itself.
            if rin.as_ref().is_none_or(|rin| rin.conn().id == number) {
                state.resume_on = Some(number);
            }
            return;
        }
        let wire = link.next_wire;
        link.next_wire += 1;
        (state.wire, state.gone_at) = (Some((number, wire)), None);
        let goes_on = |in_log: &InLog| if moves { in_log.ring().boundary() } else { in_log.ring().head() };
        let resumed_at = state.log.as_ref().map(goes_on);
        let start = match &state.log {
            Some(in_log) => Start::Position(in_log.log.epoch, goes_on(in_log)),
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
        link.ins.insert(wire, InSub::new(inbound.clone(), resumed_at, moves));
        self.suspended.retain(|(other, _)| other.as_ptr() != Arc::as_ptr(&inbound));
        self.slots.entry(inbound.slot).or_default().inbound = Some(inbound.clone());
        let own_memory = on_this_machine && inbound.options.own_memory;
        let subscribe = Subscribe { own_memory, ..subscribe_message(&inbound, (wire, there), start) };
        self.send(conn, &Message::Subscribe(subscribe));
    }

    pub(super) fn in_sub(&mut self, conn: ConnId, wire: WireId) -> Option<&mut InSub> {
        self.links.get_mut(&conn)?.ins.get_mut(&wire)
    }

    pub(super) fn on_subscribed(&mut self, conn: ConnId, subscribed: &Subscribed) {
        let wire = subscribed.wire;
        let Some(in_sub) = self.in_sub(conn, wire) else {
            self.close(conn, CloseCode::Protocol, "SUBSCRIBED for an id that was not asked for");
            return;
        };
        if std::mem::replace(&mut in_sub.answered, true) {
            self.close(conn, CloseCode::Protocol, "SUBSCRIBED twice");
            return;
        }
        let (inbound, leaving, resumed_at) = (in_sub.inbound.clone(), in_sub.leaving, in_sub.resumed_at);
        let offered = in_sub.offered.take();
        if leaving {
            if !subscribed.flow_control {
                self.let_land(conn, subscribed);
            }
            return;
        }
        let known = lock(&inbound.state).log.as_ref().map(|l| l.log.epoch);
        match known {
            None => self.begin_log(conn, &inbound, subscribed, offered),
            Some(epoch) if epoch == subscribed.epoch && Some(subscribed.start) == resumed_at => {
                self.resume_log(conn, &inbound, subscribed, offered);
            }
            Some(epoch) if epoch == subscribed.epoch => {
                self.close(conn, CloseCode::Protocol, "SUBSCRIBED with another position than was asked for");
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

    /// The sender's ring came, ahead of the answer that it belongs to.
    pub(super) fn on_offered(&mut self, conn: ConnId, wire: WireId, offered: Offered) {
        if let Some(in_sub) = self.in_sub(conn, wire).filter(|in_sub| !in_sub.answered) {
            in_sub.offered = Some(offered);
        }
    }

    /// Left before it was answered, or because of the answer. Without flow control data comes until the peer has read UNSUBSCRIBE: it is
    /// thrown away, or lands in a ring that nobody reads. (With flow control nothing comes before the first CREDIT.)
    fn let_land(&mut self, conn: ConnId, subscribed: &Subscribed) {
        if self.transport.discard(conn, subscribed.wire) {
            return;
        }
        let config = RingConfig {
            capacity_bytes: 1,
            retain_bytes: Some(0),
            max_delivery_bytes: None,
            flow_control: false,
            start: subscribed.start,
        };
        if let Some(receiver) = self.inner.pool.ring(config).ok().and_then(|ring| ring.receiver()) {
            self.transport.bind(conn, subscribed.wire, receiver);
        }
    }

    /// The first answer: a ring for the log.
    fn begin_log(
        &mut self,
        conn: ConnId,
        inbound: &Arc<InboundShared>,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) {
        let Subscribed { wire, epoch, start, .. } = *subscribed;
        let Some((ring, loan)) = self.ring_for(conn, inbound, subscribed, offered) else { return };
        let Some(receiver) = ring.receiver() else { return };
        let credit = Inbound::new(start, window(&ring, loan.as_ref(), subscribed));
        let log = Log { ring, epoch };
        let mut in_log =
            InLog::new(log.clone(), receiver, credit, start, inbound.options.confirm == ConfirmMode::Relayed);
        in_log.confirm_consumed = inbound.options.confirm != ConfirmMode::OnArrival;
        in_log.place_kept = inbound.options.keeps_place();
        in_log.max_view_bytes = inbound.options.max_view_bytes.unwrap_or(0);
        in_log.loan = loan;
        if let (Start::Position(..), false) = (inbound.options.start, subscribed.restarted) {
            in_log.covered_from =
                inbound.options.covered_from.map_or(start, |covered_from| covered_from.min(start));
        }
        in_log.kept = inbound.min_receivers.is_any().then(|| log.ring.hold(start).ok()).flatten();
        let receiver = in_log.receiver.take();
        let mut state = lock(&inbound.state);
        state.log = Some(in_log);
        drop(state);
        if let Some(receiver) = receiver {
            self.transport.bind(conn, wire, receiver);
            self.follow(conn, wire, inbound);
        }
        let left = lock(&inbound.state).done;
        if let (false, Some(rin)) = (left, inbound.rin.upgrade()) {
            let asked = matches!(inbound.options.start, Start::Position(..));
            if asked && subscribed.restarted {
                rin.tell_of(inbound, InEvent::Restarted { bid: inbound.bid, epoch });
            }
            rin.tell_of(inbound, InEvent::Subscribed { bid: inbound.bid, epoch, start });
            if subscribed.placeless {
                rin.tell_of(inbound, InEvent::NoPlace { bid: inbound.bid });
            }
            self.let_look(inbound);
        }
        // A splice may have been made while the ring was: it looks at the state before this.
        if let Some(buffer) = inbound.spliced_to() {
            log.ring.set_relayed();
            let _ = buffer.log.set(log);
            buffer.unpark();
        }
        self.tell_credit(conn, wire, inbound);
    }

    /// A ring for the log, or its part in a budget and none until there is data; without either the subscription is
    /// refused.
    fn ring_for(
        &mut self,
        conn: ConnId,
        inbound: &Arc<InboundShared>,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) -> Option<(Ring, Option<Loan>)> {
        // What lies in the sender's memory takes none here.
        let loan = if subscribed.start == Position::MAX {
            Err(RefusedError::NoPositions { start: subscribed.start })
        } else if offered.is_none() {
            Self::loan(inbound, subscribed)
        } else {
            Ok(None)
        };
        let made = match loan {
            Ok(Some(loan)) => Ok((Ring::unbacked(subscribed.start), Some(loan))),
            Ok(None) => self.make_ring(inbound, subscribed, offered).map(|ring| (ring, None)),
            Err(error) => Err(error),
        };
        match made {
            Ok(made) => Some(made),
            Err(error) => {
                self.refuse(conn, subscribed.wire, inbound, error);
                if !subscribed.flow_control {
                    // It comes until the peer has read UNSUBSCRIBE.
                    self.transport.discard(conn, subscribed.wire);
                }
                None
            }
        }
    }

    fn make_ring(
        &self,
        inbound: &InboundShared,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) -> Result<Ring, RefusedError> {
        let options = &inbound.options;
        let offered = offered.map(|offered| offered.ring).transpose();
        let offered = offered.map_err(|error| RefusedError::Memory(error.to_string()))?;
        let capacity = match &offered {
            Some(ring) => ring.capacity(),
            None => options.capacity_bytes().next_power_of_two(),
        };
        let max_delivery = subscribed.max_delivery.min(capacity / 2);
        let retain = match options.retain_bytes {
            retain if !inbound.is_spliced() => Some(retain.unwrap_or(0)),
            // At least one delivery, so that whoever joins finds the start of one.
            retain => {
                retain.or(self.inner.config.buffers.retain_bytes).map(|retain| retain.max(max_delivery))
            }
        };
        // What was asked for is a part of one's own ring; of the sender's there may be less.
        let retain = retain.map(|retain| if offered.is_some() { retain.min(capacity / 2) } else { retain });
        let config = RingConfig {
            capacity_bytes: capacity,
            retain_bytes: retain,
            max_delivery_bytes: Some(max_delivery),
            flow_control: subscribed.flow_control,
            start: subscribed.start,
        };
        let made = match offered {
            Some(ring) => ring.ring(config),
            // Who keeps history keeps it for others, and may not have come as far as splicing it to them.
            None if inbound.is_spliced() || options.retain_bytes.is_some() => {
                self.inner.ring_for_others(config)
            }
            None => self.inner.pool.ring(config),
        };
        let made = made.map_err(RefusedError::from)?;
        if options.own_memory {
            made.ensure_plain();
        }
        Ok(made)
    }

    fn resume_log(
        &mut self,
        conn: ConnId,
        inbound: &Arc<InboundShared>,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) {
        let wire = subscribed.wire;
        // Not locked while its application is told.
        let left = lock(&inbound.state).done;
        if let (false, true, Some(rin)) = (left, subscribed.placeless, inbound.rin.upgrade()) {
            rin.tell_of(inbound, InEvent::NoPlace { bid: inbound.bid });
        }
        let moves = self.in_sub(conn, wire).is_some_and(|in_sub| in_sub.moves);
        if moves && !inbound.is_spliced() {
            return self.move_log(conn, inbound, subscribed, offered);
        }
        let mut state = lock(&inbound.state);
        let Some(in_log) = &mut state.log else { return };
        let boundary = in_log.ring().boundary();
        let goes_on = !moves && is_whole(in_log.ring(), subscribed.start, offered.as_ref());
        let receiver = in_log.receiver.take_if(|_| goes_on);
        drop(state);
        if !goes_on {
            // Whoever is subscribed to it here reads the memory that it had, as it was.
            self.end_inbound(inbound, Ending::End(End::Gone(boundary)));
            self.leave(conn, wire);
            return;
        }
        let Some(receiver) = receiver else {
            // Another connection still has the landing end: the application resumed over two at once.
            self.leave(conn, wire);
            return;
        };
        self.transport.bind(conn, wire, receiver);
        self.follow(conn, wire, inbound);
        self.let_look(inbound);
        self.tell_credit(conn, wire, inbound);
        // What was asked of its ring meanwhile, and what came before it was spliced meanwhile.
        self.news_of(inbound);
    }

    /// The log goes on in other memory; of what it had nothing is needed any more.
    fn move_log(
        &mut self,
        conn: ConnId,
        inbound: &Arc<InboundShared>,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) {
        let Some((ring, loan)) = self.ring_for(conn, inbound, subscribed, offered) else { return };
        let Some(receiver) = ring.receiver() else { return };
        let credit = Inbound::new(subscribed.start, window(&ring, loan.as_ref(), subscribed));
        let mut state = lock(&inbound.state);
        let mut left = None;
        if let Some(in_log) = &mut state.log {
            in_log.move_to(ring, subscribed.start, credit);
            left = std::mem::replace(&mut in_log.loan, loan);
        }
        drop(state);
        // What it had of the budget goes to others, whose locks that takes.
        drop(left);
        self.transport.bind(conn, subscribed.wire, receiver);
        self.follow(conn, subscribed.wire, inbound);
        self.let_look(inbound);
        self.tell_credit(conn, subscribed.wire, inbound);
    }
}

/// The smaller of what the two rings hold in flight.
fn window(ring: &Ring, loan: Option<&Loan>, subscribed: &Subscribed) -> u64 {
    let room = loan.map_or(ring.capacity() - ring.retain(), Loan::full);
    room.min((subscribed.capacity / 2).max(1))
}

/// Whether data that comes now, from `start` on, comes into this ring's memory, and what is held of it is still there. The
/// sender may have written over what it did not keep while the connection was lost.
fn is_whole(ring: &Ring, start: Position, offered: Option<&Offered>) -> bool {
    let Some(Offered { ring: offered, behind }) = offered else { return !ring.is_peer_written() };
    let same = offered.as_ref().is_ok_and(|offered| offered.is(ring));
    same && (!ring.flow_control() || ring.discard_below(start.saturating_sub(*behind)))
}

fn subscribe_message(inbound: &InboundShared, (wire, there): (WireId, Bid), start: Start) -> Subscribe {
    let options = &inbound.options;
    Subscribe {
        wire,
        bid: there,
        capacity: options.capacity_bytes().next_power_of_two(),
        policy: options.policy,
        own_memory: false,
        start,
        max_lag: options.max_lag_bytes.map_or(0, |bytes| bytes.max(1)),
        block_timeout_ms: options.block_timeout.millis().unwrap_or(u32::MAX),
        hold_ms: millis(options.hold),
        name: options.name.clone(),
    }
}

impl InSub {
    fn new(inbound: Arc<InboundShared>, resumed_at: Option<Position>, moves: bool) -> Self {
        Self { inbound, answered: false, resumed_at, moves, offered: None, leaving: false }
    }
}
