//! Subscribing at a peer, and the ring that an accepted subscription gets: in memory of this process or
//! mapped from the sender.

use std::sync::Arc;

use rocketnet::{ConnId, Offered, Transport};
use rocketring::{Ring, RingConfig, RingReceiver};

use super::io::LinkPhase;
use super::reactor::{InSub, Reactor};
use crate::error::RefusedError;
use crate::events::InEvent;
use crate::limits::millis;
use crate::lock::lock;
use crate::options::ConfirmMode;
use crate::planted;
use crate::proto::{CloseCode, End, Inbound, Message, Start, Subscribe, Subscribed};
use crate::state::{Command, CreditAllocation, Ending, InboundShared, Log, ReceiveLog};
use crate::types::{Bid, Position, WireId};

impl<T: Transport> Reactor<T> {
    /// Sends SUBSCRIBE, either for the first time or to resume.
    pub(super) fn subscribe(&mut self, number: u64, inbound: Arc<InboundShared>) {
        let early = || Command::Subscribe { conn: number, inbound: inbound.clone() };
        if self.too_early(number, early) {
            return;
        }
        let known = self.by_number.get(&number).and_then(|conn| Some((*conn, self.links.get_mut(conn)?)));
        let Some((conn, link)) = known.filter(|(_, link)| link.line.phase == LinkPhase::Up) else {
            return self.begin_linger(inbound);
        };
        let Some(remote_id) = inbound.remote_id.bid() else { return self.begin_linger(inbound) };
        let on_this_machine = self.io.transport.carrier(conn).name == "shm";
        let rin = inbound.rin.upgrade();
        let mut state = lock(&inbound.state);
        if state.done || state.ending.is_some() || state.wire.is_some_and(|(at, _)| at == number) {
            return;
        }
        // A log in the sender's memory, or one that moves there, does not resume in the same ring. The
        // application first releases its data, and an incomplete delivery is sent again.
        let moves = !inbound.is_spliced()
            && !inbound.options.own_memory
            && state.log.as_ref().is_some_and(|in_log| on_this_machine || in_log.ring().is_peer_written());
        let waits = moves && !state.log.as_mut().is_some_and(ReceiveLog::is_given_back);
        if state.wire.is_some() || waits {
            // Either the old connection is closing and still has the ring receiver, or the application has
            // not released all data. Several workers may set `resume_on` in any order; only the rIn's current
            // connection counts. A connection that the rIn has left is closed, and the current one sets
            // `resume_on` itself.
            if rin.as_ref().is_none_or(|rin| rin.conn().id == number) {
                state.resume_on = Some(number);
            }
            return;
        }
        let wire = link.next_wire;
        link.next_wire += 1;
        (state.wire, state.gone_at) = (Some((number, wire)), None);
        let goes_on =
            |in_log: &ReceiveLog| if moves { in_log.ring().boundary() } else { in_log.ring().head() };
        let resumed_at = state.log.as_ref().map(goes_on);
        let start = match &state.log {
            Some(in_log) => {
                let early = u64::from(planted::is(planted::RESUME_OFF_BY_ONE));
                Start::Position(in_log.log.epoch, goes_on(in_log) - early)
            }
            None => inbound.options.start,
        };
        drop(state);
        link.ins.insert(wire, InSub::new(inbound.clone(), resumed_at, moves));
        self.suspended.retain(|(other, _)| other.as_ptr() != Arc::as_ptr(&inbound));
        self.slots.entry(inbound.slot).or_default().inbound = Some(inbound.clone());
        let own_memory = on_this_machine && inbound.options.own_memory;
        let subscribe = Subscribe { own_memory, ..subscribe_message(&inbound, (wire, remote_id), start) };
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

    /// Stores the sender's ring, which arrives ahead of its SUBSCRIBED.
    pub(super) fn on_offered(&mut self, conn: ConnId, wire: WireId, offered: Offered) {
        if let Some(in_sub) = self.in_sub(conn, wire).filter(|in_sub| !in_sub.answered) {
            in_sub.offered = Some(offered);
        }
    }

    /// Receives data for a subscription that left before or because of SUBSCRIBED. Without flow control, data
    /// arrives until the peer has read UNSUBSCRIBE; the transport discards it, or it lands in a ring without
    /// a reader. With flow control nothing arrives before the first CREDIT.
    fn let_land(&mut self, conn: ConnId, subscribed: &Subscribed) {
        if self.io.transport.discard(conn, subscribed.wire) {
            return;
        }
        let config = RingConfig {
            capacity_bytes: 1,
            retain_bytes: Some(0),
            max_delivery_bytes: None,
            flow_control: false,
            start: subscribed.start,
        };
        if let Some(receiver) = self.io.inner.pool.ring(config).ok().and_then(|ring| ring.receiver()) {
            self.io.transport.bind(conn, subscribed.wire, receiver);
        }
    }

    /// Handles the first SUBSCRIBED: creates the ring of the log.
    fn begin_log(
        &mut self,
        conn: ConnId,
        inbound: &Arc<InboundShared>,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) {
        let Subscribed { wire, epoch, start, .. } = *subscribed;
        let Some((ring, allocation)) = self.ring_for(conn, inbound, subscribed, offered) else { return };
        let Some(receiver) = ring.receiver() else { return };
        let credit = Inbound::new(start, window(&ring, allocation.as_ref(), subscribed));
        let log = Log { ring, epoch };
        let mut in_log = new_log((inbound, subscribed), &log, receiver, credit, allocation);
        let receiver = in_log.receiver.take();
        let mut state = lock(&inbound.state);
        state.log = Some(in_log);
        drop(state);
        if let Some(receiver) = receiver {
            self.io.transport.bind(conn, wire, receiver);
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
                rin.tell_of(inbound, InEvent::NotDurable { bid: inbound.bid });
            }
            self.let_look(inbound);
        }
        // A concurrent splice reads the state before the log is stored there, so the splice is looked up
        // again.
        if let Some(buffer) = inbound.spliced_to() {
            log.ring.set_relayed();
            let _ = buffer.log.set(log);
            buffer.unpark();
        }
        self.tell_credit(conn, wire, inbound);
    }

    /// Creates the ring of a log, or its share of a budget, which has no ring until there is data. Refuses
    /// the subscription if neither is possible.
    fn ring_for(
        &mut self,
        conn: ConnId,
        inbound: &Arc<InboundShared>,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) -> Option<(Ring, Option<CreditAllocation>)> {
        // A ring in the sender's memory takes nothing from the budget.
        let allocation = if subscribed.start == Position::MAX {
            Err(RefusedError::NoPositions { start: subscribed.start })
        } else if offered.is_none() {
            Self::allocation(inbound, subscribed)
        } else {
            Ok(None)
        };
        let made = match allocation {
            Ok(Some(allocation)) => Ok((Ring::unbacked(subscribed.start), Some(allocation))),
            Ok(None) => self.make_ring(inbound, subscribed, offered).map(|ring| (ring, None)),
            Err(error) => Err(error),
        };
        match made {
            Ok(made) => Some(made),
            Err(error) => {
                self.refuse(conn, subscribed.wire, inbound, error);
                if !subscribed.flow_control {
                    // Without flow control, data arrives until the peer has read UNSUBSCRIBE.
                    self.io.transport.discard(conn, subscribed.wire);
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
            // At least one delivery is retained, so that a new subscriber finds the start of one.
            retain => {
                retain.or(self.io.inner.config.buffers.retain_bytes).map(|retain| retain.max(max_delivery))
            }
        };
        // The option was chosen for a ring of this process; the sender's ring may be smaller.
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
            // Retained history is for other subscribers, even if the application has not spliced the
            // subscription yet.
            None if inbound.is_spliced() || options.retain_bytes.is_some() => {
                self.io.inner.ring_for_others(config)
            }
            None => self.io.inner.pool.ring(config),
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
        // The state is not locked while the application is notified.
        let left = lock(&inbound.state).done;
        if let (false, true, Some(rin)) = (left, subscribed.placeless, inbound.rin.upgrade()) {
            rin.tell_of(inbound, InEvent::NotDurable { bid: inbound.bid });
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
            // Subscribers in this process read the old ring, unchanged.
            self.end_inbound(inbound, Ending::End(End::Gone(boundary)));
            self.leave(conn, wire);
            return;
        }
        let Some(receiver) = receiver else {
            // Another connection still has the ring receiver: the application resumed over two connections at
            // once.
            self.leave(conn, wire);
            return;
        };
        self.io.transport.bind(conn, wire, receiver);
        self.follow(conn, wire, inbound);
        self.let_look(inbound);
        self.tell_credit(conn, wire, inbound);
        // Handles confirmations that were asked for, and data that arrived, before the resume or the splice.
        self.news_of(inbound);
    }

    /// Moves the log to another ring. Nothing in the old ring is needed any more.
    fn move_log(
        &mut self,
        conn: ConnId,
        inbound: &Arc<InboundShared>,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) {
        let Some((ring, allocation)) = self.ring_for(conn, inbound, subscribed, offered) else { return };
        let Some(receiver) = ring.receiver() else { return };
        let credit = Inbound::new(subscribed.start, window(&ring, allocation.as_ref(), subscribed));
        let mut state = lock(&inbound.state);
        let mut left = None;
        if let Some(in_log) = &mut state.log {
            in_log.move_to(ring, subscribed.start, credit);
            left = std::mem::replace(&mut in_log.allocation, allocation);
        }
        drop(state);
        // Dropped outside the lock: returning budget takes the locks of other subscriptions.
        drop(left);
        self.io.transport.bind(conn, subscribed.wire, receiver);
        self.follow(conn, subscribed.wire, inbound);
        self.let_look(inbound);
        self.tell_credit(conn, subscribed.wire, inbound);
    }
}

/// Creates the log of an accepted subscription according to its options.
fn new_log(
    (inbound, subscribed): (&InboundShared, &Subscribed),
    log: &Log,
    receiver: RingReceiver,
    credit: Inbound,
    allocation: Option<CreditAllocation>,
) -> ReceiveLog {
    let (options, start) = (&inbound.options, subscribed.start);
    let relays = options.confirm == ConfirmMode::Relayed;
    let mut in_log = ReceiveLog::new(log.clone(), receiver, credit, start, relays);
    in_log.confirm_consumed = options.confirm != ConfirmMode::OnArrival;
    in_log.place_kept = options.keeps_place();
    in_log.max_view_bytes = options.max_view_bytes.unwrap_or(0);
    in_log.allocation = allocation;
    if let (Start::Position(..), false) = (options.start, subscribed.restarted) {
        in_log.covered_from = options.covered_from.map_or(start, |covered_from| covered_from.min(start));
    }
    in_log.kept = inbound.min_receivers.is_any().then(|| log.ring.hold(start).ok()).flatten();
    in_log
}

/// Returns the smaller of the two rings' capacities for bytes in flight.
fn window(ring: &Ring, allocation: Option<&CreditAllocation>, subscribed: &Subscribed) -> u64 {
    let room = allocation.map_or(ring.capacity() - ring.retain(), CreditAllocation::full);
    room.min((subscribed.capacity / 2).max(1))
}

/// Returns whether data from `start` on lands in this ring's memory, and whether the bytes held in it are
/// intact. While the connection was lost, the sender may have overwritten bytes that it did not hold.
fn is_whole(ring: &Ring, start: Position, offered: Option<&Offered>) -> bool {
    let Some(Offered { ring: offered, behind }) = offered else { return !ring.is_peer_written() };
    let same = offered.as_ref().is_ok_and(|offered| offered.is(ring));
    same && (!ring.flow_control() || ring.discard_below(start.saturating_sub(*behind)))
}

fn subscribe_message(inbound: &InboundShared, (wire, bid): (WireId, Bid), start: Start) -> Subscribe {
    let options = &inbound.options;
    Subscribe {
        wire,
        bid,
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
