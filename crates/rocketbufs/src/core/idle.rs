//! Rings at rest give their memory back.
//!
//! A ring that received data is *moving*; it is looked at every half of `buffers.idle_trim_ms`, and when its head stood
//! still for that time it *rests*: what nobody holds goes back to the system, but for the history that joins and resumes
//! may want. All rings at rest share `buffers.idle_retain_bytes` for that history. When it is used up, those that have
//! rested longest keep only their last delivery.
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

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};

use rocketnet::Transport;
use rocketring::{Inlet, Ring, Trimmed};

use super::Core;
use crate::config::Config;
use crate::context::lock;
use crate::inbound::InboundShared;
use crate::types::{Nanos, Position};

/// Rings trimmed and rings looked at in one turn of the worker: a system call or two each, and some nanoseconds.
const TRIMS_PER_TURN: usize = 8;
const LOOKS_PER_TURN: usize = 256;

/// A last delivery up to this size stays, whatever the budget.
const LAST_DELIVERY_BYTES: u64 = 64 << 10;

/// Places of [`Rest::place`] besides those of rings at rest, which are greater.
const NOWHERE: u64 = 0;
const MOVING: u64 = 1;
/// The most workers. Each has places of its own: a subscription may go on over a connection of another worker.
const PLACES_APART: u64 = 64;

/// What a subscription remembers for its worker.
#[derive(Default)]
pub(crate) struct Rest {
    place: AtomicU64,
    /// There is more to give back when what is held has moved.
    owed: AtomicBool,
}

impl Rest {
    /// Whether the worker wants to hear that a hold moved, if it does not for other reasons.
    pub(crate) fn is_owed(&self) -> bool {
        // The hold's move and this load meet the worker's store and its second look at the hold.
        self.owed.load(Ordering::SeqCst)
    }
}

struct Moving {
    inbound: Weak<InboundShared>,
    head: Position,
    /// When the head was seen to have moved last.
    since: Nanos,
    look_at: Nanos,
}

struct Resting {
    inbound: Weak<InboundShared>,
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
        if inbound.rest.place.load(Ordering::Relaxed) != MOVING && self.after > 0 {
            self.forget(inbound);
            inbound.rest.place.store(MOVING, Ordering::Relaxed);
            inbound.rest.owed.store(false, Ordering::Relaxed);
            let look_at = now + self.after / 2;
            let inbound = Arc::downgrade(inbound);
            self.moving.push_back(Moving { inbound, head: Position::MAX, since: now, look_at });
        }
    }

    /// A hold moved in a ring at rest that waits for that: it is looked at soon, but not for every step of many.
    fn look_soon(&mut self, inbound: &Arc<InboundShared>, now: Nanos) {
        self.forget(inbound);
        inbound.rest.place.store(MOVING, Ordering::Relaxed);
        let look_at = now + self.after / 16;
        let inbound = Arc::downgrade(inbound);
        let since = now.saturating_sub(self.after);
        self.let_go.push_back(Moving { inbound, head: Position::MAX, since, look_at });
    }

    /// Something about the subscription is to be done: perhaps a hold moved.
    pub(super) fn on_pending(&mut self, inbound: &Arc<InboundShared>, now: Nanos) {
        if inbound.rest.owed.swap(false, Ordering::SeqCst) && self.after > 0 {
            self.look_soon(inbound, now);
        }
    }

    /// The ring is none of those at rest any more.
    pub(super) fn forget(&mut self, inbound: &InboundShared) {
        let place = inbound.rest.place.swap(NOWHERE, Ordering::Relaxed);
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

    fn rests(&mut self, inbound: &Arc<InboundShared>, bytes: u64) {
        let place = self.next_place;
        self.next_place += PLACES_APART;
        self.history += bytes;
        inbound.rest.place.store(place, Ordering::Relaxed);
        self.resting.insert(place, Resting { inbound: Arc::downgrade(inbound), bytes });
    }

    /// The ring that has rested longest and has more than its last delivery, if there is too much history.
    fn next_to_reduce(&mut self) -> Option<(u64, Weak<InboundShared>)> {
        if self.history <= self.budget {
            return None;
        }
        let (&place, resting) = self.resting.range(self.reduced..).next()?;
        self.reduced = place + 1;
        Some((place, resting.inbound.clone()))
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
            let Some(inbound) = moving.inbound.upgrade() else { continue };
            let Some(ring) = ring_of(&inbound) else {
                self.idle.forget(&inbound);
                continue;
            };
            if self.idle.still_moves(moving, ring.head(), self.now) {
                continue;
            }
            trims += 1;
            self.come_to_rest(&inbound, &ring);
        }
        while trims < 2 * TRIMS_PER_TURN
            && let Some((place, inbound)) = self.idle.next_to_reduce()
        {
            trims += 1;
            let left = inbound.upgrade().and_then(|inbound| {
                let ring = ring_of(&inbound)?;
                self.trim(&inbound, &ring, last_delivery(&ring))
            });
            self.idle.was_reduced(place, left.unwrap_or(0));
        }
    }

    fn come_to_rest(&mut self, inbound: &Arc<InboundShared>, ring: &Ring) {
        self.idle.forget(inbound);
        self.tell_rest(inbound);
        self.rest_loan(inbound);
        if ring.descriptor().is_some() {
            // Other processes see its memory, which does not go back in parts.
            return;
        }
        // What is received for the application alone has no history: nobody joins it.
        let keep = if inbound.is_spliced() { ring.retain() } else { 0 };
        let left = self.trim(inbound, ring, keep);
        if let Some(left) = left.filter(|left| *left > 0 && inbound.is_spliced()) {
            self.idle.rests(inbound, left);
        }
    }

    /// The ring came to rest: CREDIT, if anything moved since the last.
    fn tell_rest(&mut self, inbound: &Arc<InboundShared>) {
        let downstream = inbound.spliced_to();
        let mut state = lock(&inbound.state);
        let Some((number, wire)) = state.wire else { return };
        let Some(in_log) = &mut state.log else { return };
        let (now, told) = (in_log.credit_now(downstream.as_deref()), in_log.credit.told());
        let moved = now.landed > told.landed || now.consumed > told.consumed;
        drop(state);
        let Some(&conn) = self.by_number.get(&number) else { return };
        if moved && self.in_sub(conn, wire).is_some_and(|in_sub| in_sub.answered && !in_sub.leaving) {
            self.tell_credit(conn, wire, inbound);
        }
    }

    /// A log has ended that subscribers downstream still read: its ring can give memory back.
    pub(super) fn keep_inlet(&mut self, inbound: Option<Arc<InboundShared>>, inlet: Option<Inlet>) {
        let Some(inbound) = inbound.filter(|inbound| inbound.is_spliced()) else { return };
        let mut state = lock(&inbound.state);
        if state.done {
            return;
        }
        if let Some(in_log) = &mut state.log {
            in_log.inlet = inlet;
            drop(state);
            self.idle.stirred(&inbound, self.now);
        }
    }

    /// Returns how many bytes of memory the ring still has; none if it is not this end's to give back.
    fn trim(&mut self, inbound: &Arc<InboundShared>, ring: &Ring, keep: u64) -> Option<u64> {
        let Trimmed { left, held, .. } = self.trim_inlet(inbound, keep)?;
        if held {
            let slowest = ring.slowest_hold();
            inbound.rest.owed.store(true, Ordering::SeqCst);
            // Pairs with the fence of a hold that advances: either it is seen here, or it sees what is owed.
            fence(Ordering::SeqCst);
            if ring.slowest_hold() != slowest {
                self.idle.on_pending(inbound, self.now);
            }
        }
        Some(left)
    }

    fn trim_inlet(&mut self, inbound: &InboundShared, keep: u64) -> Option<Trimmed> {
        let mut state = lock(&inbound.state);
        if let Some(inlet) = state.log.as_mut().and_then(|in_log| in_log.inlet.as_mut()) {
            return Some(inlet.trim(keep));
        }
        let (number, wire) = state.wire?;
        drop(state);
        let conn = *self.by_number.get(&number)?;
        self.transport.trim(conn, wire, keep)
    }
}

/// The ring, if it can be trimmed: readers of one without flow control hold nothing, and would lose what they have not
/// read.
fn ring_of(inbound: &InboundShared) -> Option<Ring> {
    let state = lock(&inbound.state);
    let ring = state.log.as_ref()?.ring();
    ring.flow_control().then(|| ring.clone())
}

/// What lies between the begin of the last complete delivery and the end of the log's last one; 0 if that is too much to
/// keep in every ring.
fn last_delivery(ring: &Ring) -> u64 {
    let bytes = ring.last_delivery().map_or(0, |start| ring.boundary() - start);
    if bytes <= LAST_DELIVERY_BYTES { bytes } else { 0 }
}
