//! Admitting subscriptions of peers, and choosing their first position.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rocketnet::Transport;
use rocketring::{Hold, Ring};

use super::connection::Connection;
use super::peer::OutSub;
use super::upcall::Handled;
use crate::events::OutEvent;
use crate::fields::printable;
use crate::limits::{Admitted, Asking, PolicySet, SubscriptionLimits};
use crate::lock::lock;
use crate::proto::{
    Begin, CloseCode, Message, Origin, PeerCoverage, PeerSubscription, RefuseCode, SendConfig, SendCursor,
    Start, Subscribe, Subscribed,
};
use crate::state::{
    Buffer, BufferOwner, Log, OwnedName, Parked, ROutShared, Request, Role, SubscriptionStatus,
};
use crate::types::{Nanos, Position, WireId};

/// A refusal: its code and numbers.
type Refusal = (RefuseCode, u64, u64);

impl<T: Transport> Connection<'_, T> {
    pub(super) fn on_subscribe(&mut self, subscribe: Subscribe) -> Handled {
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
        self.accept(&out, (&buffer, &log), &subscribe, admitted)
    }

    pub(super) fn unpark(&mut self, parked: Parked) -> Handled {
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
        (buffer, log): (&Arc<Buffer>, &Log),
        subscribe: &Subscribe,
        admitted: Admitted,
    ) -> Result<(), Refusal> {
        let ring = &log.ring;
        let (flow_control, needed) = (ring.flow_control(), 2 * ring.max_delivery());
        let limits = *lock(&buffer.limits);
        let allowed = PolicySet::possible(flow_control).and(limits.policies).and(admitted.policies);
        if !allowed.contains(subscribe.policy) {
            return Err((RefuseCode::PolicyNotAllowed, allowed.bits(), 0));
        }
        if subscribe.capacity < needed {
            return Err((RefuseCode::RingTooSmall, subscribe.capacity, needed));
        }
        let name = OwnedName { owner: admitted.owner, name: subscribe.name.clone() };
        let known = (!subscribe.name.is_empty()).then(|| buffer.known(&name)).flatten();
        let past = match subscribe.start {
            Start::Ago(ms) => buffer.times.ago(self.io.now, ms),
            _ => None,
        };
        let maps = !subscribe.own_memory && self.may_map(ring);
        let positions = known.as_ref().map(|known| known.positions);
        let origin = Origin { known: positions, past, keeps: buffer.keep_until_delivered, maps };
        let (begin, hold) = begin(log, subscribe, &origin)?;
        let Begin { start, restarted, .. } = begin;
        let coverage = known.as_ref().filter(|_| !restarted).map(|known| known.coverage).unwrap_or_default();
        let config = self.send_config((buffer, ring), subscribe, &limits);
        let cursor = self.cursor((subscribe.wire, ring), config, (&begin, hold.as_ref()), (coverage, maps));
        let hold_ms = limits.hold_ms(subscribe.hold_ms);
        let without_slot = self.add_out((out, buffer), (subscribe, name), (cursor, begin, hold, hold_ms));
        if let Some((conn, worker)) = known.and_then(|known| known.live) {
            let why = format!("subscription '{}' was taken over", shown(&subscribe.name));
            self.io.inner.workers[worker].request(Request::Close { conn, code: CloseCode::TakenOver, why });
        }
        let subscribed = Subscribed {
            wire: subscribe.wire,
            epoch: log.epoch,
            start,
            flow_control,
            restarted,
            without_slot,
            capacity: ring.capacity(),
            max_delivery: ring.max_delivery(),
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

    /// Creates the state machine of a subscription. Offers the ring ahead of SUBSCRIBED, so that the receiver
    /// can create its ring over the same memory.
    fn cursor(
        &mut self,
        (wire, ring): (WireId, &Ring),
        mut config: SendConfig,
        (begin, hold): (&Begin, Option<&Hold>),
        (coverage, maps): (PeerCoverage, bool),
    ) -> SendCursor {
        let held = hold.map_or(begin.start, Hold::position);
        let behind = begin.start.saturating_sub(held);
        let offered = maps && self.io.transport.offer(self.id(), wire, ring, behind);
        config.maps = offered.then(|| ring.capacity());
        let mut cursor = SendCursor::new(config, begin.start, self.io.now);
        cursor.resume_at(begin.levels, coverage);
        cursor.keep_from(held);
        cursor.begin_behind(ring);
        cursor
    }

    fn send_config(
        &self,
        (buffer, ring): (&Buffer, &Ring),
        subscribe: &Subscribe,
        limits: &SubscriptionLimits,
    ) -> SendConfig {
        let session = &self.io.inner.config.session;
        let lag_limit = ring.capacity() - ring.retain();
        let default = if session.max_lag_bytes == 0 { lag_limit / 2 } else { session.max_lag_bytes };
        let max_lag = limits.lag(subscribe.max_lag, default);
        let asked = (subscribe.block_timeout_ms != u32::MAX).then_some(subscribe.block_timeout_ms);
        let timeout_ms = limits.timeout_ms(asked, session.block_timeout_ms);
        let max_transfer = u64::from(self.io.inner.config.tcp.max_transfer_bytes)
            .min(self.io.transport.promises_to(self.id()).max_write_bytes)
            .min(ring.max_delivery());
        SendConfig {
            policy: subscribe.policy,
            max_lag: max_lag.min(lag_limit),
            block_timeout: Nanos::from(timeout_ms) * 1_000_000,
            flow_control: ring.flow_control(),
            max_transfer: max_transfer.max(1),
            keep_until_delivered: buffer.keep_until_delivered,
            maps: None,
        }
    }

    /// Adds a subscription. Returns whether it asked for a durable slot and got none.
    fn add_out(
        &mut self,
        (out, buffer): (&ROutShared, &Arc<Buffer>),
        (subscribe, name): (&Subscribe, OwnedName),
        (cursor, begin, hold, hold_ms): (SendCursor, Begin, Option<Hold>, u32),
    ) -> bool {
        let hold_ms = hold_ms.min(self.io.inner.config.limits.max_hold_ms);
        let wants = hold_ms > 0 && !subscribe.name.is_empty();
        let link = &mut *self.link;
        let sub = Arc::new(shared_of(
            (link.line.shared.id, self.io.shared.index),
            (subscribe, name),
            (hold, begin.resume_boundary, &cursor),
            self.io.now,
        ));
        drop(buffer.add_sub(sub.clone(), begin.restarted, (&out.durable_slots, wants)));
        let has_slot = sub.has_slot.load(Ordering::Relaxed);
        buffer.notify_upstream();
        if wants && !has_slot {
            out.durable_slots.log_full(&shown(&subscribe.name));
        }
        let (number, start) = (link.line.shared.id, cursor.start());
        let machine = PeerSubscription::new(cursor);
        let out_sub = OutSub { buffer: buffer.clone(), machine, status: sub, hold_ms };
        link.outs.insert(subscribe.wire, out_sub);
        self.io.slots.add_out(buffer.slot, (link.line.id, subscribe.wire));
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

/// Creates the shared status of a new subscription.
fn shared_of(
    (conn, worker): (u64, usize),
    (subscribe, name): (&Subscribe, OwnedName),
    (hold, resume_boundary, cursor): (Option<Hold>, Position, &SendCursor),
    now: Nanos,
) -> SubscriptionStatus {
    SubscriptionStatus {
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
        resume_boundary: AtomicU64::new(resume_boundary),
        coverage: Mutex::new(cursor.coverage()),
        dropped: AtomicU64::new(0),
        has_slot: AtomicBool::new(false),
        start: cursor.start(),
        progress: AtomicU64::new(now),
        heard_end: AtomicBool::new(false),
    }
}

/// Decides where a subscription begins, and holds its position. The tail may move between the two. The tail moves only when
/// the writer does.
fn begin(log: &Log, subscribe: &Subscribe, origin: &Origin) -> Result<(Begin, Option<Hold>), Refusal> {
    for _ in 0..64 {
        let begin = Begin::new((&log.ring, log.epoch), (subscribe.start, subscribe.policy), origin);
        match begin.holds_at.map(|at| log.ring.hold(at)) {
            None => return Ok((begin, None)),
            Some(Ok(hold)) => return Ok((begin, Some(hold))),
            Some(Err(_)) => {}
        }
    }
    Err((RefuseCode::TooSlow, 0, 0))
}
