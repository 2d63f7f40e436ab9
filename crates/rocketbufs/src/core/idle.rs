//! Rings at rest give their memory back.
//!
//! A ring that received data, or that the application wrote, is *moving*; it is looked at every half of
//! `buffers.idle_trim_ms`, and when its head stood still for that time it *rests*: what nobody holds goes back to the
//! system, but for the history that joins and resumes may want. All rings at rest share `buffers.idle_retain_bytes` for
//! that history. When it is used up, those that have rested longest keep only their last delivery; but not a buffer of the
//! application's that nobody subscribes to, since what it keeps may be nowhere else.
//!
//! ```text
//!   news ──▶ moving (a queue by the time of the next look) ──▶ resting (by when they came to rest) ──▶ reduced
//!              ▲                                                    │                                     │
//!              └───────────────────────── news ─────────────────────┴─────────────────────────────────────┘
//! ```
//!
//! A ring that comes to rest also tells its sender what landed, due or not: the sender's end holds its own ring there.
//!
//! The cost is of rings that move, not of those that exist: nothing wakes up for a ring that rests. What a slow reader
//! still holds is looked at again when the reader moved on (`Rest::owed`).
//!
//! A ring that is received into is its connection's worker's. A buffer that the application writes has a worker for this by
//! its number, which is told when it begins to move: whoever writes sees by a load that this is known (`Rest::still`).
//!
//! ```text
//!   application            worker
//!   head moves             still = armed
//!   ── light ──            ── heavy ──
//!   still? → tell it       head as it was? → it rests
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rocketnet::Transport;
use rocketring::{Armed, Ring, RingReceiver, Trimmed};

use super::Core;
use crate::config::Config;
use crate::lock::lock;
use crate::state::{Buffer, InboundShared, MOVING, NOWHERE, Rest, Roused};
use crate::types::{Nanos, Position};

/// Rings trimmed and rings looked at in one turn of the worker: a system call or two each, and some nanoseconds.
const TRIMS_PER_TURN: usize = 8;
const LOOKS_PER_TURN: usize = 256;

/// A last delivery up to this size stays, whatever the budget.
const LAST_DELIVERY_BYTES: u64 = 64 << 10;

/// The most workers. Each has places of its own: a subscription may go on over a connection of another worker.
const PLACES_APART: u64 = 64;

/// Whose ring it is: a subscription's, or a buffer's that the application writes.
#[derive(Clone)]
enum Owner {
    In(Arc<InboundShared>),
    Out(Arc<Buffer>),
}

#[derive(Clone)]
enum WeakOwner {
    In(Weak<InboundShared>),
    Out(Weak<Buffer>),
}

impl Owner {
    fn downgrade(&self) -> WeakOwner {
        match self {
            Self::In(inbound) => WeakOwner::In(Arc::downgrade(inbound)),
            Self::Out(buffer) => WeakOwner::Out(Arc::downgrade(buffer)),
        }
    }

    fn rest(&self) -> &Rest {
        match self {
            Self::In(inbound) => &inbound.rest,
            Self::Out(buffer) => &buffer.rest,
        }
    }

    /// The ring, if it can be trimmed: readers of one without flow control hold nothing, and would lose what they have not
    /// read.
    fn ring(&self) -> Option<Ring> {
        let ring = match self {
            Self::In(inbound) => lock(&inbound.state).log.as_ref()?.ring().clone(),
            Self::Out(buffer) => buffer.log()?.ring.clone(),
        };
        ring.flow_control().then_some(ring)
    }

    /// What it keeps may be nowhere else.
    fn has_the_only_copy(&self) -> bool {
        matches!(self, Self::Out(buffer) if buffer.is_abandoned())
    }
}

impl WeakOwner {
    fn upgrade(&self) -> Option<Owner> {
        match self {
            Self::In(inbound) => inbound.upgrade().map(Owner::In),
            Self::Out(buffer) => buffer.upgrade().map(Owner::Out),
        }
    }
}

struct Moving {
    owner: WeakOwner,
    head: Position,
    /// When the head was seen to have moved last.
    since: Nanos,
    look_at: Nanos,
}

struct Resting {
    owner: WeakOwner,
    /// What of its memory counts in the budget.
    bytes: u64,
}

/// A worker's rings, as far as they moved or rest.
pub(super) struct Idle {
    /// 0: nothing is given back.
    after: Nanos,
    budget: u64,
    moving: VecDeque<Moving>,
    /// Those at rest in which a hold moved, to be looked at sooner.
    let_go: VecDeque<Moving>,
    resting: BTreeMap<u64, Resting>,
    /// The sum of `bytes` of those at rest.
    history: u64,
    next_place: u64,
    /// Those at lower places have only their last delivery left.
    reduced: u64,
}

impl Idle {
    pub(super) fn new(config: &Config, worker: usize, workers: usize) -> Self {
        let buffers = &config.buffers;
        Self {
            after: Nanos::from(buffers.idle_trim_ms) * 1_000_000,
            // Connections are spread over the workers, and with them what there is to give back.
            budget: buffers.idle_retain_bytes / workers.max(1) as u64,
            moving: VecDeque::new(),
            let_go: VecDeque::new(),
            resting: BTreeMap::new(),
            history: 0,
            next_place: MOVING + 1 + worker as u64,
            reduced: 0,
        }
    }

    /// When there is something to look at.
    pub(super) fn due(&self) -> Nanos {
        if self.history > self.budget && self.resting.range(self.reduced..).next().is_some() {
            return 0;
        }
        let next = |queue: &VecDeque<Moving>| queue.front().map_or(Nanos::MAX, |moving| moving.look_at);
        next(&self.moving).min(next(&self.let_go))
    }

    /// Data came, a hold moved, or the landing end changed its place.
    #[inline]
    pub(super) fn stirred(&mut self, inbound: &Arc<InboundShared>, now: Nanos) {
        if !inbound.rest.is_moving() && self.after > 0 {
            self.move_from(&Owner::In(inbound.clone()), now);
        }
    }

    pub(super) fn roused(&mut self, roused: Roused, now: Nanos) {
        match roused {
            Roused::Written(buffer) => self.buffer_stirred(buffer, now),
            Roused::LetGo(buffer) => self.on_let_go(buffer, now),
            Roused::Gone(place) => self.gone(place),
        }
    }

    /// The application wrote.
    fn buffer_stirred(&mut self, buffer: Arc<Buffer>, now: Nanos) {
        if buffer.rest.place.load(Ordering::Relaxed) != MOVING && self.after > 0 {
            self.move_from(&Owner::Out(buffer), now);
        }
    }

    fn move_from(&mut self, owner: &Owner, now: Nanos) {
        self.begin_to_move(owner);
        owner.rest().owed.disarm();
        let look_at = now + self.after / 2;
        self.moving.push_back(Moving { owner: owner.downgrade(), head: Position::MAX, since: now, look_at });
    }

    fn begin_to_move(&mut self, owner: &Owner) {
        self.forget(owner.rest());
        owner.rest().place.store(MOVING, Ordering::Relaxed);
    }

    /// A hold moved in a ring at rest that waits for that: it is looked at soon, but not for every step of many.
    fn look_soon(&mut self, owner: &Owner, now: Nanos) {
        self.begin_to_move(owner);
        let look_at = now + self.after / 16;
        let since = now.saturating_sub(self.after);
        self.let_go.push_back(Moving { owner: owner.downgrade(), head: Position::MAX, since, look_at });
    }

    /// Something about the subscription is to be done: perhaps a hold moved.
    pub(super) fn on_pending(&mut self, inbound: &Arc<InboundShared>, now: Nanos) {
        if inbound.rest.owed.disarm() == Armed::Yes && self.after > 0 {
            self.look_soon(&Owner::In(inbound.clone()), now);
        }
        // What came may have come past the worker.
        if !inbound.rest.is_moving() && lock(&inbound.state).looked_at {
            self.stirred(inbound, now);
        }
    }

    /// A hold moved in a buffer that waited for that, unless it moves itself by now.
    fn on_let_go(&mut self, buffer: Arc<Buffer>, now: Nanos) {
        if buffer.rest.place.load(Ordering::Relaxed) != MOVING && self.after > 0 {
            self.look_soon(&Owner::Out(buffer), now);
        }
    }

    /// The ring is none of those at rest any more.
    pub(super) fn forget(&mut self, rest: &Rest) {
        self.gone(rest.place.swap(NOWHERE, Ordering::Relaxed));
    }

    /// What rested at this place is gone.
    fn gone(&mut self, place: u64) {
        if let Some(resting) = self.resting.remove(&place) {
            self.history -= resting.bytes;
        }
    }

    fn take_due(&mut self, now: Nanos) -> Option<Moving> {
        let is_due = |moving: &mut Moving| moving.look_at <= now;
        self.let_go.pop_front_if(is_due).or_else(|| self.moving.pop_front_if(is_due))
    }

    /// Keeps the ring among those that move if it does. False: it rests.
    fn still_moves(&mut self, mut moving: Moving, head: Position, now: Nanos) -> bool {
        if moving.head != head {
            // The first look only learns the head; the ring moved when it was stirred.
            if moving.head != Position::MAX {
                moving.since = now;
            }
            moving.head = head;
        }
        if now.saturating_sub(moving.since) >= self.after {
            return false;
        }
        moving.look_at = now + self.after / 2;
        self.moving.push_back(moving);
        true
    }

    fn rests(&mut self, owner: &Owner, bytes: u64) {
        let place = self.next_place;
        self.next_place += PLACES_APART;
        self.history += bytes;
        // Pairs with the Acquire of a buffer that goes, if that is not ordered by its last handle.
        owner.rest().place.store(place, Ordering::Release);
        self.resting.insert(place, Resting { owner: owner.downgrade(), bytes });
    }

    /// The ring that has rested longest and has more than its last delivery, if there is too much history.
    fn next_to_reduce(&mut self) -> Option<(u64, WeakOwner)> {
        if self.history <= self.budget {
            return None;
        }
        let (&place, resting) = self.resting.range(self.reduced..).next()?;
        self.reduced = place + 1;
        Some((place, resting.owner.clone()))
    }

    fn was_reduced(&mut self, place: u64, bytes: u64) {
        if let Some(resting) = self.resting.get_mut(&place) {
            self.history = self.history - resting.bytes + bytes;
            resting.bytes = bytes;
        }
    }
}

impl<T: Transport> Core<T> {
    /// Looks at the rings whose time it is. What is left is for the next turn.
    pub(super) fn sweep(&mut self) {
        let mut trims = 0;
        for _ in 0..LOOKS_PER_TURN {
            if trims >= TRIMS_PER_TURN {
                break;
            }
            let Some(moving) = self.idle.take_due(self.now) else { break };
            let Some(owner) = moving.owner.upgrade() else { continue };
            let Some(ring) = owner.ring() else {
                self.idle.forget(owner.rest());
                continue;
            };
            let head = ring.head();
            if self.idle.still_moves(moving, head, self.now) {
                continue;
            }
            trims += 1;
            self.come_to_rest(&owner, &ring, head);
        }
        while trims < 2 * TRIMS_PER_TURN
            && let Some((place, owner)) = self.idle.next_to_reduce()
        {
            trims += 1;
            match owner.upgrade() {
                None => self.idle.gone(place),
                Some(owner) if owner.has_the_only_copy() => {}
                Some(owner) => {
                    let ring = owner.ring();
                    let left = ring.and_then(|ring| self.trim(&owner, &ring, last_delivery(&ring)));
                    self.idle.was_reduced(place, left.unwrap_or(0));
                }
            }
        }
    }

    fn come_to_rest(&mut self, owner: &Owner, ring: &Ring, head: Position) {
        self.idle.forget(owner.rest());
        // What is received for the application alone has no history: nobody joins it.
        let has_history = match owner {
            Owner::In(inbound) => {
                self.tell_rest(inbound);
                self.rest_loan(inbound);
                inbound.is_spliced()
            }
            Owner::Out(buffer) if !buffer.rest.begin(ring, head) => {
                return self.idle.buffer_stirred(buffer.clone(), self.now);
            }
            Owner::Out(_) => true,
        };
        if ring.descriptor().is_some() {
            // Other processes see its memory, which does not go back in parts.
            return;
        }
        let left = self.trim(owner, ring, if has_history { ring.retain() } else { 0 });
        if let Some(left) = left.filter(|left| *left > 0 && has_history) {
            self.idle.rests(owner, left);
        }
    }

    /// The ring came to rest: CREDIT, if anything moved since the last.
    fn tell_rest(&mut self, inbound: &Arc<InboundShared>) {
        let downstream = inbound.spliced_to();
        let mut state = lock(&inbound.state);
        let Some((number, wire)) = state.wire else { return };
        let Some(in_log) = &mut state.log else { return };
        in_log.catch_up();
        let (now, told) = (in_log.credit_now(downstream.as_deref()), in_log.credit.told());
        let moved = now.landed > told.landed || now.consumed > told.consumed;
        drop(state);
        let Some(&conn) = self.by_number.get(&number) else { return };
        if moved && self.in_sub(conn, wire).is_some_and(|in_sub| in_sub.answered && !in_sub.leaving) {
            self.tell_credit(conn, wire, inbound);
        }
    }

    /// A log has ended that subscribers downstream still read: its ring can give memory back.
    pub(super) fn keep_receiver(
        &mut self,
        inbound: Option<Arc<InboundShared>>,
        receiver: Option<RingReceiver>,
    ) {
        let Some(inbound) = inbound.filter(|inbound| inbound.is_spliced()) else { return };
        let mut state = lock(&inbound.state);
        if state.done {
            return;
        }
        if let Some(in_log) = &mut state.log {
            in_log.receiver = receiver;
            drop(state);
            self.idle.stirred(&inbound, self.now);
        }
    }

    /// Returns how many bytes of memory the ring still has; none if it is not this end's to give back.
    fn trim(&mut self, owner: &Owner, ring: &Ring, keep: u64) -> Option<u64> {
        let Trimmed { left, held, .. } = match owner {
            Owner::In(inbound) => self.trim_receiver(inbound, keep)?,
            Owner::Out(_) => ring.trim(keep)?,
        };
        if held {
            let slowest = ring.slowest_hold();
            // Meets the one of a hold that advances: either it is seen here, or it sees what is owed.
            owner.rest().owed.arm();
            if ring.slowest_hold() != slowest && owner.rest().owed.disarm() == Armed::Yes {
                self.idle.look_soon(owner, self.now);
            }
        }
        Some(left)
    }

    fn trim_receiver(&mut self, inbound: &InboundShared, keep: u64) -> Option<Trimmed> {
        let mut state = lock(&inbound.state);
        if let Some(receiver) = state.log.as_mut().and_then(|in_log| in_log.receiver.as_mut()) {
            return Some(receiver.trim(keep));
        }
        let (number, wire) = state.wire?;
        drop(state);
        let conn = *self.by_number.get(&number)?;
        self.transport.trim(conn, wire, keep)
    }
}

/// What lies between the begin of the last complete delivery and the end of the log's last one; 0 if that is too much to
/// keep in every ring.
fn last_delivery(ring: &Ring) -> u64 {
    let bytes = ring.last_delivery().map_or(0, |start| ring.boundary() - start);
    if bytes <= LAST_DELIVERY_BYTES { bytes } else { 0 }
}
