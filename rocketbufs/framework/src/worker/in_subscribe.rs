//! Subscriptions of this end on one connection: asking for them, suspending and ending them. An accepted subscription gets a
//! ring in memory of this process, or one that is mapped from the sender.

use std::sync::Arc;

use rocketnet::{Offered, Transport};
use rocketring::{Ring, RingConfig};

use super::connection::{Connection, Link};
use super::in_effects::{IncomingEntry, IncomingSubscription, Received};
use super::in_linger::end_subscription;
use super::on_demand;
use super::worker_context::{LinkPhase, SubscriptionKey};
use crate::ground::limits::millis;
use crate::ground::lock::lock;
use crate::ground::planted;
use crate::ground::types::{Bid, Nanos, Position, WireId};
use crate::proto::{
    Answer, CreditAllocation, End, Ending, Message, ReceiveConfig, ReceiveError, ReceiveLog, RefuseCode,
    Start, Subscribe, SubscribeOver, Subscribed,
};
use crate::state::error::RefusedError;
use crate::state::options::ConfirmMode;
use crate::state::{
    Command, ContextInner, Log, Membership, ReceiveMemory, Role, SubscriptionNews, SubscriptionShared,
    SubscriptionState,
};

impl<T: Transport> Connection<'_, T> {
    /// Sends SUBSCRIBE, either for the first time or to resume.
    pub(super) fn subscribe(&mut self, subscription: Arc<SubscriptionShared>) {
        let link = &mut *self.link;
        let (conn, number) = (link.line.id, link.line.shared.id);
        let asked_at = *subscription.asked_at.get_or_init(|| self.io.now);
        if link.is_early() {
            return link.early.push(Command::Subscribe { conn: number, subscription });
        }
        if link.line.phase != LinkPhase::Up {
            return self.io.begin_linger(&subscription);
        }
        let on_this_machine = self.io.transport.carrier(conn).name == "shm";
        // Only the connection that the rIn has now counts, see `ReceiveSubscription::subscribe`.
        let is_current = subscription.rin.upgrade().is_none_or(|rin| rin.conn_id() == number);
        let mut state = lock(&subscription.state);
        let Some(remote_id) = state.sub.remote_id() else {
            drop(state);
            return self.io.begin_linger(&subscription);
        };
        // A log in the sender's memory, or one that moves there, does not resume in the same ring.
        let moves = !subscription.is_spliced()
            && !subscription.options.own_memory
            && state.ring().is_some_and(|ring| on_this_machine || ring.is_peer_written());
        if moves {
            state.ask_reader();
        }
        let wire = link.next_wire;
        let SubscriptionState { sub, memory } = &mut *state;
        let ring = memory.as_ref().map(ReceiveMemory::ring);
        let is_mapped = ring.is_some_and(Ring::is_peer_written);
        let over = SubscribeOver { conn: number, wire, moves, is_current };
        let Some(machine) = sub.subscribe(over, ring) else { return };
        link.next_wire += 1;
        let start = match sub.log().zip(machine.resumed_at()) {
            Some((log, at)) => {
                let early = u64::from(planted::is(planted::RESUME_OFF_BY_ONE));
                Start::Position(log.epoch(), at - early)
            }
            None => aged(subscription.options.start, self.io.now.saturating_sub(asked_at)),
        };
        drop(state);
        // The ring of a closed log is here already. Bytes that a limit delays must not be read in the sender's memory, where the
        // worker has no part in it; a log that is there already stays.
        let limited =
            link.line.limiting.as_ref().is_some_and(|limiting| limiting.limits_arrivals()) && !is_mapped;
        let own_memory =
            on_this_machine && (subscription.options.own_memory || machine.is_closed() || limited);
        link.ins.insert(wire, IncomingEntry::new(subscription.clone(), machine));
        self.io.lingering.forget(&subscription);
        self.io.slots.set_in(subscription.slot, SubscriptionKey { conn, wire });
        let subscribe = Subscribe { own_memory, ..subscribe_message(&subscription, wire, remote_id, start) };
        self.io.send(&mut link.line, &Message::Subscribe(subscribe));
    }
}

impl<T: Transport> Connection<'_, T> {
    /// Resumes a subscription for which the application has released its data.
    pub(super) fn resume(&mut self, bid: Bid) {
        let Some(Role::In(rin)) = &self.link.role else { return };
        for subscription in rin.resumable().into_iter().filter(|subscription| subscription.bid == bid) {
            self.subscribe(subscription);
        }
    }
}

impl<T: Transport> IncomingSubscription<'_, T> {
    pub(super) fn on_subscribed(&mut self, subscribed: &Subscribed) -> Received {
        let offered = self.sub.offered.take();
        let known = lock(&self.sub.shared.state).sub.log().map(ReceiveLog::epoch);
        match self.sub.machine.on_subscribed(known, subscribed.epoch, subscribed.start)? {
            Answer::Begin => self.begin_log(subscribed, offered),
            Answer::Resume if self.sub.machine.is_closed() => self.resume_closed(subscribed.start),
            Answer::Resume => self.resume_log(subscribed, offered),
            Answer::Restarted => {
                self.sub.shared.settle();
                self.end_and_leave(Ending::Restarted(subscribed.epoch));
                self.let_land(subscribed);
            }
            Answer::Left => self.let_land(subscribed),
        }
        Ok(())
    }

    /// Stores the sender's ring, which arrives ahead of its SUBSCRIBED.
    pub(super) fn on_offered(&mut self, offered: Offered) {
        if !self.sub.machine.is_answered() {
            self.sub.offered = Some(offered);
        }
    }

    /// Receives data for a subscription that left before or because of SUBSCRIBED. Without flow control, data
    /// arrives until the peer has read UNSUBSCRIBE; the transport discards it, or it lands in a ring without
    /// a reader. With flow control nothing arrives before the first CREDIT.
    fn let_land(&mut self, subscribed: &Subscribed) {
        if subscribed.flow_control || self.io.transport.discard(self.line.id, self.wire) {
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
            self.io.transport.bind(self.line.id, self.wire, receiver);
        }
    }

    /// Handles the first SUBSCRIBED: creates the ring of the log.
    fn begin_log(&mut self, subscribed: &Subscribed, offered: Option<Offered>) {
        let Subscribed { epoch, start, .. } = *subscribed;
        let subscription = self.sub.shared.clone();
        let Some((ring, share)) = self.ring_for(subscribed, offered) else { return };
        let Some(receiver) = ring.receiver() else { return };
        let (allocation, member) = share.unzip();
        let window = window(&ring, allocation.as_ref(), subscribed).min(self.most_in_flight());
        self.sub.metered.begin(start);
        let log = Log { ring, epoch };
        let memory = ReceiveMemory::new(log.clone(), start, subscription.min_receivers.is_any(), member);
        let config = receive_config(&subscription, subscribed, memory.receivers_hold.is_some());
        let in_log = ReceiveLog::new(config, epoch, start, window, allocation);
        lock(&subscription.state).begin(in_log, memory);
        self.io.transport.bind(self.line.id, self.wire, receiver);
        self.follow();
        let left = lock(&subscription.state).sub.is_left();
        if let (false, Some(rin)) = (left, subscription.rin.upgrade()) {
            let asked = matches!(subscription.options.start, Start::Position(..));
            if asked && subscribed.restarted {
                rin.report_news(&subscription, SubscriptionNews::Restarted(epoch));
            }
            rin.report_news(&subscription, SubscriptionNews::Subscribed { epoch, start });
            if subscribed.without_slot {
                rin.report_news(&subscription, SubscriptionNews::NotDurable);
            }
            self.let_look();
        }
        // A concurrent splice reads the state before the log is stored there, so the splice is looked up
        // again.
        if let Some(buffer) = subscription.spliced_to() {
            log.ring.set_relayed();
            let _ = buffer.log.set(log);
            buffer.unpark();
        }
        self.send_credit();
    }

    /// Returns how many bytes may be in flight at most, by the connection's limits.
    fn most_in_flight(&self) -> u64 {
        self.line.limiting.as_ref().map_or(u64::MAX, |limiting| limiting.window())
    }

    /// Creates the ring of a log, or its share of a budget, which has no ring until there is data. Refuses
    /// the subscription if neither is possible.
    fn ring_for(
        &mut self,
        subscribed: &Subscribed,
        offered: Option<Offered>,
    ) -> Option<(Ring, Option<(CreditAllocation, Membership)>)> {
        // A ring in the sender's memory takes nothing from the budget.
        let allocation = if subscribed.start == Position::MAX {
            Err(RefusedError::NoPositions { start: subscribed.start })
        } else if offered.is_none() {
            on_demand::allocation(&self.sub.shared, subscribed)
        } else {
            Ok(None)
        };
        let made = match allocation {
            Ok(Some(allocation)) => Ok((Ring::unbacked(subscribed.start), Some(allocation))),
            Ok(None) => {
                make_ring(&self.io.inner, &self.sub.shared, subscribed, offered).map(|ring| (ring, None))
            }
            Err(error) => Err(error),
        };
        match made {
            Ok(made) => Some(made),
            Err(error) => {
                self.end_and_leave(Ending::Refused(error));
                if !subscribed.flow_control {
                    // Without flow control, data arrives until the peer has read UNSUBSCRIBE.
                    self.io.transport.discard(self.line.id, self.wire);
                }
                None
            }
        }
    }

    fn resume_log(&mut self, subscribed: &Subscribed, offered: Option<Offered>) {
        let subscription = self.sub.shared.clone();
        // The state is not locked while the application is notified.
        let left = lock(&subscription.state).sub.is_left();
        if let (false, true, Some(rin)) = (left, subscribed.without_slot, subscription.rin.upgrade()) {
            rin.report_news(&subscription, SubscriptionNews::NotDurable);
        }
        let moves = self.sub.machine.moves();
        if moves && !subscription.is_spliced() {
            return self.move_log(subscribed, offered);
        }
        let mut state = lock(&subscription.state);
        let Some(memory) = &mut state.memory else { return };
        let boundary = memory.ring().boundary();
        let goes_on = !moves && is_whole(memory.ring(), subscribed.start, offered.as_ref());
        let receiver = memory.receiver.take_if(|_| goes_on);
        drop(state);
        if !goes_on {
            // Subscribers in this process read the old ring, unchanged.
            return self.end_and_leave(Ending::End(End::Gone(boundary)));
        }
        let Some(receiver) = receiver else {
            // Another connection still has the ring receiver: the application resumed over two connections at
            // once.
            return self.leave();
        };
        let receiver = match self.grow_at_resume(receiver, subscribed.max_delivery) {
            Ok(Some(receiver)) => receiver,
            Ok(None) => return self.leave(),
            Err(error) => return self.refuse_growth(error),
        };
        self.io.transport.bind(self.line.id, self.wire, receiver);
        self.sub.metered.begin(subscribed.start);
        self.follow();
        self.let_look();
        self.send_credit();
        // Handles confirmations that were asked for, and data that arrived, before the resume or the splice.
        self.news();
    }

    /// Resumes a closed log, which only reports what is released. The ring receiver stays here: nothing but an empty
    /// transfer may arrive, which a ring without memory takes.
    fn resume_closed(&mut self, end: Position) {
        if let Some(receiver) = Ring::unbacked(end).receiver() {
            self.io.transport.bind(self.line.id, self.wire, receiver);
        }
        self.sub.metered.begin(end);
        self.send_credit();
        self.give_credit();
    }

    /// Moves the log to another ring. Nothing in the old ring is needed any more.
    fn move_log(&mut self, subscribed: &Subscribed, offered: Option<Offered>) {
        let Some((ring, share)) = self.ring_for(subscribed, offered) else { return };
        let Some(receiver) = ring.receiver() else { return };
        let (allocation, member) = share.unzip();
        let window = window(&ring, allocation.as_ref(), subscribed).min(self.most_in_flight());
        self.sub.metered.begin(subscribed.start);
        let mut state = lock(&self.sub.shared.state);
        let left = state.parts().and_then(|(log, memory)| {
            log.move_to(subscribed.start, window, allocation);
            memory.move_to(ring, subscribed.start, member)
        });
        drop(state);
        drop(left);
        self.io.transport.bind(self.line.id, self.wire, receiver);
        self.follow();
        self.let_look();
        self.send_credit();
    }
}

/// Creates the ring of a log in memory of this process, or over the offered memory of the sender.
fn make_ring(
    inner: &ContextInner,
    subscription: &SubscriptionShared,
    subscribed: &Subscribed,
    offered: Option<Offered>,
) -> Result<Ring, RefusedError> {
    let options = &subscription.options;
    let offered = offered.map(|offered| offered.ring).transpose();
    let offered = offered.map_err(|error| RefusedError::Memory(error.to_string()))?;
    let capacity = match &offered {
        Some(ring) => ring.capacity(),
        // The sender has seen the largest one.
        None => {
            let needed = subscribed.max_delivery.saturating_mul(2).checked_next_power_of_two();
            needed
                .unwrap_or(u64::MAX)
                .clamp(options.capacity_bytes().next_power_of_two(), options.max_capacity_bytes())
        }
    };
    let max_delivery = subscribed.max_delivery.min(capacity / 2);
    let retain = match options.retain_bytes {
        retain if !subscription.is_spliced() => Some(retain.unwrap_or(0)),
        // At least one delivery is retained, so that a new subscriber finds the start of one.
        retain => retain.or(inner.config.buffers.retain_bytes).map(|retain| retain.max(max_delivery)),
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
    // Retained history is for other subscribers, even if the application has not spliced the subscription yet.
    let is_for_others = subscription.is_spliced() || options.retain_bytes.is_some();
    let made = match offered {
        Some(ring) => ring.ring(config),
        // As if it had grown.
        None if capacity > options.capacity_bytes().next_power_of_two() => {
            options.growth_check.as_ref().map_or(Ok(()), |check| check.ask(capacity))?;
            inner.ring_beside_others(config, is_for_others)
        }
        None if is_for_others => inner.ring_for_others(config),
        None => inner.pool.ring(config),
    };
    let made = made.map_err(RefusedError::from)?;
    if options.own_memory {
        made.ensure_plain();
    }
    Ok(made)
}

/// Returns the options of an accepted subscription.
fn receive_config(
    subscription: &SubscriptionShared,
    subscribed: &Subscribed,
    keeps_for_others: bool,
) -> ReceiveConfig {
    let (options, start) = (&subscription.options, subscribed.start);
    let covered_from = match options.start {
        Start::Position(..) if !subscribed.restarted => {
            options.covered_from.map_or(start, |at| at.min(start))
        }
        _ => start,
    };
    ReceiveConfig {
        confirm_consumed: options.confirm != ConfirmMode::OnArrival,
        relays: options.confirm == ConfirmMode::Relayed,
        place_kept: options.keeps_place(),
        max_view_bytes: options.max_view_bytes.unwrap_or(0),
        keeps_for_others,
        covered_from,
    }
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

/// The same start for a request that is sent so much later: ages grow.
fn aged(start: Start, waited: Nanos) -> Start {
    match start {
        Start::Ago(ms) => Start::Ago(ms.saturating_add(waited.div_ceil(1_000_000))),
        start => start,
    }
}

fn subscribe_message(subscription: &SubscriptionShared, wire: WireId, bid: Bid, start: Start) -> Subscribe {
    let options = &subscription.options;
    Subscribe {
        wire,
        bid,
        capacity: options.max_capacity_bytes(),
        policy: options.policy,
        own_memory: false,
        start,
        max_lag: options.max_lag_bytes.map_or(0, |bytes| bytes.max(1)),
        block_timeout_ms: options.block_timeout.millis().unwrap_or(u32::MAX),
        hold_ms: millis(options.hold),
        name: options.name.clone(),
    }
}

/// The end and the suspension of subscriptions.
impl<T: Transport> Connection<'_, T> {
    /// Reports the final positions of every subscription. A peer that asked for confirmations, or that holds
    /// the position of a durable subscription, has no other way to learn them.
    pub(super) fn send_last_credits(&mut self) {
        let Link { line, ins, .. } = &mut *self.link;
        for (&wire, sub) in ins.iter_mut().filter(|(_, sub)| sub.machine.is_live()) {
            IncomingSubscription { io: self.io, line, wire, sub }.send_last_credit();
        }
    }

    pub(super) fn on_refused(&mut self, wire: WireId, code: RefuseCode, a: u64, b: u64) {
        // REFUSED may cross UNSUBSCRIBE. UNSUBSCRIBED still arrives then and frees the wire id.
        if self.link.ins.get(&wire).is_some_and(|sub| sub.machine.is_leaving()) {
            return;
        }
        let Some(sub) = self.link.ins.remove(&wire) else { return };
        self.io.transport.unbind(self.id(), wire);
        sub.shared.detach();
        self.io.slots.remove(sub.shared.slot);
        end_subscription(&sub.shared, Ending::Refused(RefusedError::Peer { code, a, b }));
        sub.shared.settle();
    }

    pub(super) fn on_unsubscribed(&mut self, wire: WireId) -> Result<(), ReceiveError> {
        let leaving = self.link.ins.get(&wire).is_some_and(|sub| sub.machine.is_leaving());
        let sub = if leaving { self.link.ins.remove(&wire) } else { None }.ok_or(ReceiveError::InUse)?;
        let receiver = self.io.transport.unbind(self.id(), wire);
        if sub.machine.is_released() {
            sub.shared.settle();
        }
        self.io.keep_receiver(&sub.shared, receiver.filter(|_| !sub.machine.is_closed()));
        Ok(())
    }

    /// Suspends the subscriptions of a connection that is down. Their rings stay and can resume over another
    /// connection.
    pub(super) fn suspend_ins(&mut self) {
        let mut ins: Vec<_> = self.link.ins.drain().collect();
        ins.sort_unstable_by_key(|(wire, _)| *wire);
        for (wire, sub) in ins {
            let receiver = self.io.transport.unbind(self.id(), wire);
            // The ring receiver of a closed log was not bound.
            let receiver = receiver.filter(|_| !sub.machine.is_closed());
            if sub.machine.is_leaving() {
                // UNSUBSCRIBED has not arrived, and perhaps the last CREDIT has not either.
                if !lock(&sub.shared.state).sub.is_unsettled() {
                    continue;
                }
                self.io.keep_receiver(&sub.shared, receiver);
            } else {
                self.io.slots.remove(sub.shared.slot);
                let calls = lock(&sub.shared.state).suspend(receiver);
                self.io.idle.mark_busy(&sub.shared, self.io.now);
                calls.run();
            }
            sub.shared.drop_released_ring();
            self.resume_suspended(sub.shared);
        }
    }

    /// Resumes a suspended subscription over the connection that the application has chosen meanwhile, or waits for one.
    fn resume_suspended(&mut self, subscription: Arc<SubscriptionShared>) {
        let resumed = lock(&subscription.state).sub.take_resume();
        match resumed {
            Some(next) => self.io.context.send(next, Command::Subscribe { conn: next, subscription }),
            None => self.io.begin_linger(&subscription),
        }
    }
}
