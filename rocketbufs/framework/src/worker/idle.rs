//! Rings at rest release their memory.
//!
//! A ring that receives data, or that the application writes, is *moving*. A moving ring is checked every
//! half of `buffers.idle_trim_ms`. When its head stood still for the whole time, the ring *rests*: bytes
//! without a hold go back to the system, except for the history that joins and resumes may want. All rings at
//! rest share `buffers.idle_retain_bytes` for that history. When the budget is used up, the rings that rested
//! longest keep only their last delivery. An application's buffer without subscriptions is exempt, since its
//! bytes may exist nowhere else.
//!
//! ```text
//!   news ──▶ moving (a queue by the time of the next look) ──▶ resting (by when they came to rest) ──▶ reduced
//!              ▲                                                    │                                     │
//!              └───────────────────────── news ─────────────────────┴─────────────────────────────────────┘
//! ```
//!
//! A ring that comes to rest also sends CREDIT, due or not, since the sender's ring holds data until then.
//!
//! The cost is proportional to the moving rings, not to all rings: a ring at rest causes no wake-ups. Bytes
//! that a slow reader still holds are checked again when that reader progresses (`IdleState::hold_moved`).
//!
//! The worker of a connection owns the rings that the connection fills. A buffer that the application writes
//! is assigned to a worker by its number, and that worker learns when it begins to move. The writer sees by
//! one load that the worker already knows (`IdleState::written`).
//!
//! ```text
//!   application            worker
//!   head moves             written = armed
//!   ── light ──            ── heavy ──
//!   written? → notify      head unchanged? → rest
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use rocketring::{Armed, Ring};
use rustc_hash::FxHashMap;

use crate::config::Config;
use crate::ground::lock::lock;
use crate::ground::types::{Nanos, Position};
use crate::state::{Activated, Buffer, IdleState, MOVING, NOWHERE, PLACES_APART, SubscriptionShared};

/// Rings that are trimmed and rings that are checked in one turn. A trim costs one or two system calls, a
/// check some nanoseconds.
pub(super) const TRIMS_PER_TURN: usize = 8;
pub(super) const LOOKS_PER_TURN: usize = 256;

/// The owner of a ring: a subscription, or a buffer that the application writes.
#[derive(Clone)]
pub(super) enum Owner {
    In(Arc<SubscriptionShared>),
    Out(Arc<Buffer>),
}

#[derive(Clone)]
pub(super) enum WeakOwner {
    In(Weak<SubscriptionShared>),
    Out(Weak<Buffer>),
}

impl Owner {
    pub(super) fn downgrade(&self) -> WeakOwner {
        match self {
            Self::In(subscription) => WeakOwner::In(Arc::downgrade(subscription)),
            Self::Out(buffer) => WeakOwner::Out(Arc::downgrade(buffer)),
        }
    }

    pub(super) fn idle_state(&self) -> &IdleState {
        match self {
            Self::In(subscription) => &subscription.idle_state,
            Self::Out(buffer) => &buffer.idle_state,
        }
    }

    /// Returns the ring if it can be trimmed. Readers of a ring without flow control hold nothing, and would
    /// lose unread data.
    pub(super) fn ring(&self) -> Option<Ring> {
        let ring = match self {
            Self::In(subscription) => lock(&subscription.state).ring()?.clone(),
            Self::Out(buffer) => buffer.log()?.ring.clone(),
        };
        ring.flow_control().then_some(ring)
    }

    /// Returns whether the ring's bytes may exist nowhere else.
    pub(super) fn has_the_only_copy(&self) -> bool {
        matches!(self, Self::Out(buffer) if buffer.is_abandoned())
    }
}

impl WeakOwner {
    pub(super) fn upgrade(&self) -> Option<Owner> {
        match self {
            Self::In(subscription) => subscription.upgrade().map(Owner::In),
            Self::Out(buffer) => buffer.upgrade().map(Owner::Out),
        }
    }
}

pub(super) struct Moving {
    pub(super) owner: WeakOwner,
    head: Position,
    /// When the head was last seen to have moved.
    since: Nanos,
    look_at: Nanos,
}

struct Resting {
    owner: WeakOwner,
    /// The bytes that count in the budget.
    bytes: u64,
}

/// The moving and resting rings of a worker.
pub(super) struct Idle {
    /// The time after which a ring rests; 0: rings are never trimmed.
    after: Nanos,
    budget: u64,
    moving: VecDeque<Moving>,
    /// Rings at rest in which a hold moved, to be checked sooner.
    let_go: VecDeque<Moving>,
    resting: BTreeMap<u64, Resting>,
    /// The sum of `bytes` of all rings at rest.
    history: u64,
    next_place: u64,
    /// The buffers of the application whose memory this worker releases.
    buffers: FxHashMap<u32, Weak<Buffer>>,
    /// Rings at lower places have only their last delivery left.
    reduced: u64,
}

impl Idle {
    pub(super) fn new(config: &Config, worker: usize, workers: usize) -> Self {
        let buffers = &config.buffers;
        Self {
            after: Nanos::from(buffers.idle_trim_ms) * 1_000_000,
            // Connections are spread over the workers, and so is the memory to release.
            budget: buffers.idle_retain_bytes / workers.max(1) as u64,
            moving: VecDeque::new(),
            let_go: VecDeque::new(),
            resting: BTreeMap::new(),
            history: 0,
            next_place: MOVING + 1 + worker as u64,
            buffers: FxHashMap::default(),
            reduced: 0,
        }
    }

    /// Returns when there is something to check.
    pub(super) fn due(&self) -> Nanos {
        if self.history > self.budget && self.resting.range(self.reduced..).next().is_some() {
            return 0;
        }
        let next = |queue: &VecDeque<Moving>| queue.front().map_or(Nanos::MAX, |moving| moving.look_at);
        next(&self.moving).min(next(&self.let_go))
    }

    /// Handles arrived data, a moved hold, or a moved ring receiver.
    #[inline]
    pub(super) fn mark_busy(&mut self, subscription: &Arc<SubscriptionShared>, now: Nanos) {
        if !subscription.idle_state.is_moving() && self.after > 0 {
            self.move_from(&Owner::In(subscription.clone()), now);
        }
    }

    /// Releases memory of this buffer from now on, whenever it rests.
    pub(super) fn trim(&mut self, buffer: Weak<Buffer>) {
        if let Some(slot) = buffer.upgrade().map(|buffer| buffer.slot) {
            self.buffers.insert(slot, buffer);
        }
    }

    fn buffer(&self, slot: u32) -> Option<Arc<Buffer>> {
        self.buffers.get(&slot).and_then(Weak::upgrade)
    }

    pub(super) fn activated(&mut self, activated: Activated, now: Nanos) {
        match activated {
            Activated::Written(slot) => {
                if let Some(buffer) = self.buffer(slot) {
                    self.buffer_stirred(buffer, now);
                }
            }
            Activated::HoldMoved(slot) => {
                if let Some(buffer) = self.buffer(slot) {
                    self.on_hold_moved(buffer, now);
                }
            }
            Activated::Gone { slot, place } => {
                self.buffers.remove(&slot);
                self.gone(place);
            }
        }
    }

    /// Handles a write by the application.
    pub(super) fn buffer_stirred(&mut self, buffer: Arc<Buffer>, now: Nanos) {
        if buffer.idle_state.place.load(Ordering::Relaxed) != MOVING && self.after > 0 {
            self.move_from(&Owner::Out(buffer), now);
        }
    }

    fn move_from(&mut self, owner: &Owner, now: Nanos) {
        // A look at a ring that cannot be trimmed would wake the worker, for each delivery of a slow stream, and find nothing to do.
        if owner.ring().is_none() {
            return;
        }
        self.begin_to_move(owner);
        owner.idle_state().hold_moved.disarm();
        let look_at = now + self.after / 2;
        self.moving.push_back(Moving { owner: owner.downgrade(), head: Position::MAX, since: now, look_at });
    }

    fn begin_to_move(&mut self, owner: &Owner) {
        self.forget(owner.idle_state());
        owner.idle_state().place.store(MOVING, Ordering::Relaxed);
    }

    /// Checks a resting ring soon in which a hold moved, but not for each of many steps.
    pub(super) fn look_soon(&mut self, owner: &Owner, now: Nanos) {
        self.begin_to_move(owner);
        let look_at = now + self.after / 16;
        let since = now.saturating_sub(self.after);
        self.let_go.push_back(Moving { owner: owner.downgrade(), head: Position::MAX, since, look_at });
    }

    /// Handles a pending subscription, in whose ring a hold may have moved.
    pub(super) fn on_pending(&mut self, subscription: &Arc<SubscriptionShared>, now: Nanos) {
        if subscription.idle_state.hold_moved.disarm() == Armed::Yes && self.after > 0 {
            self.look_soon(&Owner::In(subscription.clone()), now);
        }
        // Data may have arrived past the worker.
        if !subscription.idle_state.is_moving() && lock(&subscription.state).sub.is_looked_at() {
            self.mark_busy(subscription, now);
        }
    }

    /// Handles a moved hold in a buffer that waited for that, unless the buffer is moving by now.
    fn on_hold_moved(&mut self, buffer: Arc<Buffer>, now: Nanos) {
        if buffer.idle_state.place.load(Ordering::Relaxed) != MOVING && self.after > 0 {
            self.look_soon(&Owner::Out(buffer), now);
        }
    }

    /// Removes the ring from those at rest.
    pub(super) fn forget(&mut self, rest: &IdleState) {
        self.gone(rest.place.swap(NOWHERE, Ordering::Relaxed));
    }

    /// Removes the ring at this place.
    pub(super) fn gone(&mut self, place: u64) {
        if let Some(resting) = self.resting.remove(&place) {
            self.history -= resting.bytes;
        }
    }

    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Moving> {
        let is_due = |moving: &mut Moving| moving.look_at <= now;
        self.let_go.pop_front_if(is_due).or_else(|| self.moving.pop_front_if(is_due))
    }

    /// Keeps a ring that moved among the moving ones. Returns false if it rests.
    pub(super) fn still_moves(&mut self, mut moving: Moving, head: Position, now: Nanos) -> bool {
        if moving.head != head {
            // The first check only learns the head; the ring moved when it was marked active.
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
        // Pairs with the Acquire when the buffer goes, if the drop of its last handle does not order that.
        owner.idle_state().place.store(place, Ordering::Release);
        self.resting.insert(place, Resting { owner: owner.downgrade(), bytes });
    }

    /// Returns the ring that has rested longest and has more than its last delivery, if there is too much
    /// history.
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
