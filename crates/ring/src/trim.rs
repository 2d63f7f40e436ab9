//! Giving back the memory of a ring at rest.
//!
//! A ring costs all of its capacity once its log was that long, although most of it may be history that nobody asks
//! for, or room that the writer does not use. With thousands of rings that is most of a machine's memory.
//!
//! ```text
//!   before     tail              hold      boundary  head                 horizon = tail + capacity
//!   ────────────┬──────────────────┬──────────┬───────┬──────────────────────┬──▶
//!               │■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■│▒▒ room, backed by ▒▒▒│     what was here a capacity ago
//!   after                 tail     hold      boundary head                          horizon
//!   ───────────────────────┬───────┬──────────┬───────┬────────────────────────────────┬──▶
//!                given back│■■■■■■■■■■■■■■■■■■■■■■■■■■│   given back                   │
//!                          └── keep, or the slowest hold if that is lower ──┘
//! ```
//!
//! Nothing is taken back that was promised: the tail goes up, but not above a hold, a boundary less `keep`, or a part
//! of a delivery that has come; and the horizon goes up with it, as it would if the log went on. A hold that joins is
//! there before and counts, or comes after and is told where the ring begins now, because both take the control lock.
//!
//! Pages in the writer's room can be given back only by the one who may write there. For an [`Inlet`] that is whoever
//! has `&mut` of it, as long as bytes land through it alone: not where a peer writes into the memory by itself.

use crate::Position;
use crate::inlet::Inlet;
use crate::planted;
use crate::ring::Shared;
use crate::sync::{Ordering, fence};

/// What trimming a ring left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes of whole pages that the ring still needs, at most.
    pub left: u64,
    /// Bytes that went back to the system, if they were backed.
    pub given_back: u64,
    /// Whether a hold, not `keep`, decided how much stayed: when it has moved there is more to give back.
    pub held: bool,
}

impl Inlet {
    /// Gives memory back: of the ring's complete deliveries the newest `keep` bytes stay, what is held, and what came
    /// of a delivery that is not complete. The tail and with it the horizon go up as far. Costs a system call or two.
    ///
    /// To be called only where bytes come through this inlet alone. A peer that writes into the ring's memory by itself
    /// may be writing what is given back.
    pub fn trim(&mut self, keep: u64) -> Trimmed {
        let ring = self.ring();
        let (shared, head) = (ring.shared(), ring.head());
        // Pages that other processes see, or an adapter, stay: giving history up would bring nothing. Nobody pins meanwhile.
        let Some(pins) = shared.pins.none().filter(|_| shared.memory.can_give_back()) else {
            return Trimmed { left: shared.shape.capacity, given_back: 0, held: false };
        };
        let (low, held) = shared.raise_tail(ring.boundary().saturating_sub(keep));
        let capacity = shared.shape.capacity;
        // After a hole what is held can lie further back than a ring is long.
        let used = (head - low.min(head)).min(capacity);
        let given_back = shared.memory.give_back(head, head.saturating_add(capacity - used));
        drop(pins);
        self.horizon = ring.horizon();
        Trimmed { left: capacity - given_back, given_back, held }
    }
}

impl Shared {
    /// Raises the tail to `to`, but not above a hold or the boundary. Returns the lowest position that must stay, and
    /// whether that is a hold's.
    fn raise_tail(&self, to: Position) -> (Position, bool) {
        let mut control = self.control();
        let slowest = if planted::is(28) { None } else { control.slowest_hold() };
        let before = self.horizon.load(Ordering::Relaxed);
        let held = slowest.is_some_and(|slowest| slowest < to);
        let tail = to.min(slowest.unwrap_or(Position::MAX)).max(self.tail_of(before));
        let horizon = before.max(tail.saturating_add(self.shape.capacity));
        // Release pairs with the Acquire in `Ring::horizon`, and the fence with the one in `lapped_by`: who has read a
        // byte that was given back sees that it is below the tail.
        self.horizon.store(horizon, Ordering::Release);
        fence(Ordering::Release);
        drop(control);
        (tail.min(slowest.unwrap_or(Position::MAX)), held)
    }
}
