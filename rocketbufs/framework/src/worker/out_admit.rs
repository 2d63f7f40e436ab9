//! Admitting subscriptions of peers, and choosing their first position.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rocketnet::Transport;
use rocketring::{Hold, Ring};

use super::connection::Connection;
use super::out_effects::OutgoingEntry;
use super::reactor_action::Outcome;
use super::worker_context::SubscriptionKey;
use crate::ground::fields::printable;
use crate::ground::limits::{Admitted, Asking, PolicySet, SubscriptionLimits};
use crate::ground::lock::lock;
use crate::ground::types::{Nanos, Position, WireId};
use crate::proto::{
    Begin, CloseCode, GROWS, Message, Origin, PeerCoverage, PeerSubscription, RefuseCode, SendConfig,
    SendCursor, Start, Subscribe, Subscribed,
};
use crate::state::events::OutEvent;
use crate::state::{
    Buffer, BufferOwner, Log, OwnedName, Parked, ROutShared, Request, Role, SubscriptionStatus,
};

/// A refusal: its code and numbers.
type Refusal = (RefuseCode, u64, u64);

impl<T: Transport> Connection<'_, T> {
    pub(super) fn on_subscribe(&mut self, subscribe: Subscribe) -> Outcome {
        let wire = subscribe.wire;
        match self.try_subscribe(subscribe) {
            Ok(()) => self.wake_out(wire),
            Err((code, a, b)) => {
                self.send(&Message::Refused { wire, code, a, b });
                Ok(())
            }
        }
    }

    fn try_subscribe(&mut self, subscribe: Subscribe) -> Result<(), Refusal> {
        let link = &*self.link;
        let Some(Role::Out(out)) = link.role.clone() else { return Err((RefuseCode::NotAnOut, 0, 0)) };
        let limit = self.io.inner.config.limits.max_subscriptions_per_connection;
        let open = link.outs.len() + link.parked.len();
        if open >= limit {
            return Err((RefuseCode::TooMany, open as u64, limit as u64));
        }
        if link.outs.contains_key(&subscribe.wire) || link.parked.contains_key(&subscribe.wire) {
            return Err((RefuseCode::BadWireId, 0, 0));
        }
        let buffer = out.buffer(subscribe.bid).ok_or((RefuseCode::NoSuchBuffer, 0, 0))?;
        let number = link.line.shared.id;
        let asking = Asking { conn: number, bid: subscribe.bid, name: &subscribe.name };
        // A buffer that the peer may not read looks as if it did not exist.
        let admitted = out.admitted(&asking).ok_or((RefuseCode::NoSuchBuffer, 0, 0))?;
        let Some(log) = buffer.log().cloned() else {
            return self.park(&buffer, Parked { conn: number, subscribe });
        };
        self.accept(&out, &buffer, &log, &subscribe, admitted)
    }

    pub(super) fn unpark(&mut self, parked: Parked) -> Outcome {
        // Otherwise the subscription was dropped while it was parked.
        match self.link.parked.remove(&parked.subscribe.wire) {
            Some(_) => self.on_subscribe(parked.subscribe),
            None => Ok(()),
        }
    }

    /// Parks a subscription until its buffer's log is known, or until it is clear that it never will be.
    fn park(&mut self, buffer: &Arc<Buffer>, parked: Parked) -> Result<(), Refusal> {
        if buffer.ended() {
            return Err((RefuseCode::NoSuchBuffer, 0, 0));
        }
        self.link.parked.insert(parked.subscribe.wire, Arc::downgrade(buffer));
        lock(&buffer.parked).push(parked);
        // The log may have become known, or have ended, since the check above.
        if buffer.log().is_some() || buffer.ended() {
            buffer.unpark();
        }
        Ok(())
    }

    /// Drops parked subscriptions of a connection.
    pub(super) fn drop_parked(&mut self, wire: Option<WireId>) {
        let link = &mut *self.link;
        let number = link.line.shared.id;
        let gone: Vec<_> = match wire {
            Some(wire) => link.parked.remove(&wire).into_iter().collect(),
            None => std::mem::take(&mut link.parked).into_values().collect(),
        };
        for buffer in gone.iter().filter_map(Weak::upgrade) {
            let leaves = |parked: &Parked| {
                parked.conn == number && wire.is_none_or(|wire| parked.subscribe.wire == wire)
            };
            lock(&buffer.parked).retain(|parked| !leaves(parked));
        }
    }

    fn accept(
        &mut self,
        out: &Arc<ROutShared>,
        buffer: &Arc<Buffer>,
        log: &Log,
        subscribe: &Subscribe,
        admitted: Admitted,
    ) -> Result<(), Refusal> {
        let ring = &log.ring;
        let limits = *lock(&buffer.limits);
        check_request(ring, subscribe, limits.policies.and(admitted.policies))?;
        let name = OwnedName { owner: admitted.owner, name: subscribe.name.clone() };
        let known = (!subscribe.name.is_empty()).then(|| buffer.known(&name)).flatten();
        let past = match subscribe.start {
            Start::Ago(ms) => buffer.times.ago(self.io.now, ms),
            _ => None,
        };
        let maps = !subscribe.own_memory && self.may_map(ring);
        let positions = known.as_ref().map(|known| known.positions);
        let origin = Origin { known: positions, past, keeps: buffer.keep_until_delivered, maps };
        let first = begin(log, subscribe, &origin)?;
        let Begin { start, restarted, .. } = first.begin;
        let coverage = known.as_ref().filter(|_| !restarted).map(|known| known.coverage).unwrap_or_default();
        let maps = maps && self.offer(subscribe.wire, ring, &first);
        let config = SendConfig {
            maps: maps.then(|| ring.capacity()),
            ..self.send_config(buffer, ring, subscribe, &limits)
        };
        let cursor = first.cursor(ring, config, coverage, self.io.now);
        let hold_ms = limits.hold_ms(subscribe.hold_ms);
        let without_slot = self.add_out(out, buffer, Accepted { subscribe, name, first, cursor, hold_ms });
        if let Some((conn, worker)) = known.and_then(|known| known.live) {
            let why = format!("subscription '{}' was taken over", shown(&subscribe.name));
            self.io.inner.workers[worker].request(Request::Close { conn, code: CloseCode::TakenOver, why });
        }
        let subscribed = Subscribed {
            wire: subscribe.wire,
            epoch: log.epoch,
            start,
            flow_control: ring.flow_control(),
            restarted,
            without_slot,
            capacity: ring.capacity(),
            max_delivery: config.max_delivery,
        };
        self.send(&Message::Subscribed(subscribed));
        Ok(())
    }

    /// Returns whether a peer may map the ring. The peer may hold half of it for any time, and the writer
    /// continues in the other half. Bytes that a limit delays must pass this worker.
    fn may_map(&self, ring: &Ring) -> bool {
        let limited = self.link.line.limiting.as_ref().is_some_and(|limiting| limiting.limits_sending());
        let fits = 2 * ring.max_delivery() <= ring.capacity();
        fits && !limited && self.io.transport.carrier(self.id()).name == "shm"
    }

    /// Offers the ring ahead of SUBSCRIBED, so that the receiver can create its ring over the same memory. Returns whether the
    /// receiver may map it.
    fn offer(&mut self, wire: WireId, ring: &Ring, first: &HeldStart) -> bool {
        let behind = first.begin.start.saturating_sub(first.held());
        self.io.transport.offer(self.id(), wire, ring, behind)
    }

    fn send_config(
        &self,
        buffer: &Buffer,
        ring: &Ring,
        subscribe: &Subscribe,
        limits: &SubscriptionLimits,
    ) -> SendConfig {
        let session = &self.io.inner.config.session;
        let default = (session.max_lag_bytes > 0).then_some(session.max_lag_bytes);
        let asked = (subscribe.block_timeout_ms != u32::MAX).then_some(subscribe.block_timeout_ms);
        let timeout_ms = limits.timeout_ms(asked, session.block_timeout_ms);
        let max_transfer = u64::from(self.io.inner.config.tcp.max_transfer_bytes)
            .min(self.io.transport.promises_to(self.id()).max_write_bytes)
            .min(ring.max_delivery());
        SendConfig {
            policy: subscribe.policy,
            max_lag: limits.lag(subscribe.max_lag, default),
            block_timeout: Nanos::from(timeout_ms) * 1_000_000,
            flow_control: ring.flow_control(),
            max_transfer: max_transfer.max(1),
            keep_until_delivered: buffer.keep_until_delivered,
            // The ring may have grown since the receiver's was found to be large enough.
            max_delivery: ring.max_delivery().min(subscribe.capacity / 2),
            // The ring of a peer of before is so large from the beginning.
            largest: subscribe.capacity / 2,
            grows: self.link.line.shared.peer_capabilities() & GROWS != 0,
            maps: None,
        }
    }

    /// Adds a subscription. Returns whether it asked for a durable slot and got none.
    fn add_out(&mut self, out: &ROutShared, buffer: &Arc<Buffer>, accepted: Accepted<'_>) -> bool {
        let (subscribe, begin) = (accepted.subscribe, accepted.first.begin);
        let hold_ms = accepted.hold_ms.min(self.io.inner.config.limits.max_hold_ms);
        let wants = hold_ms > 0 && !subscribe.name.is_empty();
        let link = &mut *self.link;
        let (status, cursor) = accepted.divide(link.line.shared.id, self.io.shared.index, self.io.now);
        let sub = Arc::new(status);
        drop(buffer.add_sub(sub.clone(), begin.restarted, &out.durable_slots, wants));
        let has_slot = sub.has_slot.load(Ordering::Relaxed);
        buffer.notify_upstream();
        if wants && !has_slot {
            out.durable_slots.log_full(&shown(&subscribe.name));
        }
        let (number, start) = (link.line.shared.id, cursor.start());
        let machine = PeerSubscription::new(cursor);
        let out_sub = OutgoingEntry { buffer: buffer.clone(), machine, status: sub, hold_ms };
        link.outs.insert(subscribe.wire, out_sub);
        let key = SubscriptionKey { conn: link.line.id, wire: subscribe.wire };
        self.io.slots.add_out(buffer.slot, key);
        let name = subscribe.name.clone();
        let resumed = !begin.restarted && matches!(subscribe.start, Start::Position(..));
        out.report(OutEvent::Subscribed { conn: number, bid: buffer.bid, name, start, resumed });
        subscribe.hold_ms > 0 && !subscribe.name.is_empty() && !has_slot
    }
}

/// Returns a subscription's name as printable text.
fn shown(name: &[u8]) -> String {
    printable(&String::from_utf8_lossy(name))
}

/// Checks the policy and the ring that a receiver asks for.
fn check_request(ring: &Ring, subscribe: &Subscribe, policies: PolicySet) -> Result<(), Refusal> {
    let allowed = PolicySet::possible(ring.flow_control()).and(policies);
    if !allowed.contains(subscribe.policy) {
        return Err((RefuseCode::PolicyNotAllowed, allowed.bits(), 0));
    }
    let needed = 2 * ring.max_delivery();
    if subscribe.capacity < needed {
        return Err((RefuseCode::RingTooSmall, subscribe.capacity, needed));
    }
    Ok(())
}

/// Where a subscription begins, and its hold there.
struct HeldStart {
    begin: Begin,
    hold: Option<Hold>,
}

impl HeldStart {
    /// Returns the position that is held; the first one without a hold.
    fn held(&self) -> Position {
        self.hold.as_ref().map_or(self.begin.start, Hold::position)
    }

    /// Creates the positions of the subscription.
    fn cursor(&self, ring: &Ring, config: SendConfig, coverage: PeerCoverage, now: Nanos) -> SendCursor {
        let mut cursor = SendCursor::new(config, self.begin.start, now);
        cursor.resume_at(self.begin.levels, coverage);
        cursor.keep_from(self.held());
        cursor.begin_behind(ring);
        cursor
    }
}

/// A subscription that is accepted, before it has its place in the tables.
struct Accepted<'a> {
    subscribe: &'a Subscribe,
    name: OwnedName,
    first: HeldStart,
    cursor: SendCursor,
    /// The time for which its position is held when it goes, before the limit of the configuration.
    hold_ms: u32,
}

impl Accepted<'_> {
    /// Returns the status that other threads see, and the positions that stay with the worker.
    fn divide(self, conn: u64, worker: usize, now: Nanos) -> (SubscriptionStatus, SendCursor) {
        let Self { subscribe, name, first: HeldStart { begin, hold }, cursor, .. } = self;
        let status = SubscriptionStatus {
            conn,
            worker,
            wire: subscribe.wire,
            name,
            policy: subscribe.policy,
            hold: Mutex::new(hold),
            sent: AtomicU64::new(cursor.sent()),
            landed: AtomicU64::new(cursor.landed()),
            delivered: AtomicU64::new(cursor.delivered()),
            consumed: AtomicU64::new(cursor.consumed()),
            resume_boundary: AtomicU64::new(begin.resume_boundary),
            coverage: Mutex::new(cursor.coverage()),
            dropped: AtomicU64::new(0),
            has_slot: AtomicBool::new(false),
            start: cursor.start(),
            progress: AtomicU64::new(now),
            heard_end: AtomicBool::new(false),
        };
        (status, cursor)
    }
}

/// Decides where a subscription begins, and holds its position. The tail may move between the two. The tail moves only when
/// the writer does.
fn begin(log: &Log, subscribe: &Subscribe, origin: &Origin) -> Result<HeldStart, Refusal> {
    for _ in 0..64 {
        let begin = Begin::new(&log.ring, log.epoch, subscribe.start, subscribe.policy, origin);
        match begin.holds_at.map(|at| log.ring.hold(at)) {
            None => return Ok(HeldStart { begin, hold: None }),
            Some(Ok(hold)) => return Ok(HeldStart { begin, hold: Some(hold) }),
            Some(Err(_)) => {}
        }
    }
    Err((RefuseCode::TooSlow, 0, 0))
}
