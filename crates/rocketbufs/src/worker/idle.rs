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

use rocketring::{Armed, Ring};

use crate::config::Config;
use crate::lock::lock;
use crate::state::{Activated, Buffer, InboundShared, MOVING, NOWHERE, Rest};
use crate::types::{Nanos, Position};

/// Rings trimmed and rings looked at in one turn of the worker: a system call or two each, and some nanoseconds.
pub(super) const TRIMS_PER_TURN: usize = 8;
pub(super) const LOOKS_PER_TURN: usize = 256;

/// The most workers. Each has places of its own: a subscription may go on over a connection of another worker.
const PLACES_APART: u64 = 64;

/// Whose ring it is: a subscription's, or a buffer's that the application writes.
#[derive(Clone)]
pub(super) enum Owner {
    In(Arc<InboundShared>),
    Out(Arc<Buffer>),
}

#[derive(Clone)]
pub(super) enum WeakOwner {
    In(Weak<InboundShared>),
    Out(Weak<Buffer>),
}

impl Owner {
    pub(super) fn downgrade(&self) -> WeakOwner {
        match self {
            Self::In(inbound) => WeakOwner::In(Arc::downgrade(inbound)),
            Self::Out(buffer) => WeakOwner::Out(Arc::downgrade(buffer)),
        }
    }

    pub(super) fn rest(&self) -> &Rest {
        match self {
            Self::In(inbound) => &inbound.rest,
            Self::Out(buffer) => &buffer.rest,
        }
    }

    /// The ring, if it can be trimmed: readers of one without flow control hold nothing, and would lose what they have not
    /// read.
    pub(super) fn ring(&self) -> Option<Ring> {
        let ring = match self {
            Self::In(inbound) => lock(&inbound.state).log.as_ref()?.ring().clone(),
            Self::Out(buffer) => buffer.log()?.ring.clone(),
        };
        ring.flow_control().then_some(ring)
    }

    /// What it keeps may be nowhere else.
    pub(super) fn has_the_only_copy(&self) -> bool {
        matches!(self, Self::Out(buffer) if buffer.is_abandoned())
    }
}

impl WeakOwner {
    pub(super) fn upgrade(&self) -> Option<Owner> {
        match self {
            Self::In(inbound) => inbound.upgrade().map(Owner::In),
            Self::Out(buffer) => buffer.upgrade().map(Owner::Out),
        }
    }
}

pub(super) struct Moving {
    pub(super) owner: WeakOwner,
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

    pub(super) fn activated(&mut self, activated: Activated, now: Nanos) {
        match activated {
            Activated::Written(buffer) => self.buffer_stirred(buffer, now),
            Activated::LetGo(buffer) => self.on_let_go(buffer, now),
            Activated::Gone(place) => self.gone(place),
        }
    }

    /// The application wrote.
    pub(super) fn buffer_stirred(&mut self, buffer: Arc<Buffer>, now: Nanos) {
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
    pub(super) fn look_soon(&mut self, owner: &Owner, now: Nanos) {
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
    pub(super) fn gone(&mut self, place: u64) {
        if let Some(resting) = self.resting.remove(&place) {
            self.history -= resting.bytes;
        }
    }

    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Moving> {
        let is_due = |moving: &mut Moving| moving.look_at <= now;
        self.let_go.pop_front_if(is_due).or_else(|| self.moving.pop_front_if(is_due))
    }

    /// Keeps the ring among those that move if it does. False: it rests.
    pub(super) fn still_moves(&mut self, mut moving: Moving, head: Position, now: Nanos) -> bool {
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

    pub(super) fn rests(&mut self, owner: &Owner, bytes: u64) {
        let place = self.next_place;
        self.next_place += PLACES_APART;
        self.history += bytes;
        // Pairs with the Acquire of a buffer that goes, if that is not ordered by its last handle.
        owner.rest().place.store(place, Ordering::Release);
        self.resting.insert(place, Resting { owner: owner.downgrade(), bytes });
    }

    /// The ring that has rested longest and has more than its last delivery, if there is too much history.
    pub(super) fn next_to_reduce(&mut self) -> Option<(u64, WeakOwner)> {
        if self.history <= self.budget {
            return None;
        }
        let (&place, resting) = self.resting.range(self.reduced..).next()?;
        self.reduced = place + 1;
        Some((place, resting.owner.clone()))
    }

    pub(super) fn was_reduced(&mut self, place: u64, bytes: u64) {
        if let Some(resting) = self.resting.get_mut(&place) {
            self.history = self.history - resting.bytes + bytes;
            resting.bytes = bytes;
        }
    }
}
