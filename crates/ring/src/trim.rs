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
//! Pages in the writer's room can be given back only by the one who may write there. For a [`RingReceiver`] that is whoever
//! has `&mut` of it, as long as bytes land through it alone: not where a peer writes into the memory by itself.
//!
//! A local [`Writer`](crate::Writer) is in the hands of a thread of the application's, which writes whenever it likes and
//! asks nobody. So it takes its room a little at a time, up to its *reach*, under a lock that is for this alone. What lies
//! beyond the reach is nobody's, and can be given back from any thread that has the lock ([`Ring::trim`]). Writing below
//! the reach costs nothing; going on beyond it costs the lock, and waits for pages that are just being given back.
//!
//! ```text
//!        tail    boundary  head   reach                 horizon
//!   ──────┬─────────┬───────┬───────┬──────────────────────┬──▶
//!         │■■■■■■■■■■■■■■■■■│ the   │ given back, with the │
//!         │                 │writer's│ reach's lock held   │
//! ```

use crate::Position;
use crate::planted;
use crate::receiver::RingReceiver;
use crate::ring::Ring;
use crate::shared::Shared;
use crate::sync::{Ordering, fence, lock};

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

impl RingReceiver {
    /// Gives memory back: of the ring's complete deliveries the newest `keep` bytes stay, what is held, and what came
    /// of a delivery that is not complete. The tail and with it the horizon go up as far. Costs a system call or two.
    ///
    /// To be called only where bytes come through this receiver alone. A peer that writes into the ring's memory by itself
    /// may be writing what is given back.
    pub fn trim(&mut self, keep: u64) -> Trimmed {
        let ring = self.ring();
        let trimmed = ring.shared().trim(keep, ring.head());
        self.change(|landing, shared| landing.horizon = shared.horizon.load(Ordering::Acquire));
        trimmed
    }
}

impl Ring {
    /// As [`RingReceiver::trim`], for a ring with flow control that a local [`Writer`](crate::Writer) fills: from any thread, while
    /// that writes. What is claimed stays, and so do a few pages with which the writer may go on unasked. None for any other
    /// ring.
    pub fn trim(&self, keep: u64) -> Option<Trimmed> {
        // Until the pages are given back the writer goes no further.
        let reach = lock(&self.shared().reach);
        Some(self.shared().trim(keep, (*reach)?))
    }
}

impl Shared {
    /// Gives back what nobody needs. Nobody writes at or above `free` meanwhile.
    fn trim(&self, keep: u64, free: Position) -> Trimmed {
        let capacity = self.shape.capacity;
        // Pages that other processes see, or an adapter, stay: giving history up would bring nothing. Nobody pins meanwhile.
        let Some(pins) = self.access.lock_unpinned().filter(|_| self.memory.can_release_pages()) else {
            return Trimmed { left: capacity, given_back: 0, held: false };
        };
        let boundary = self.published.boundary.load(Ordering::Acquire);
        let (low, held) = self.raise_tail(boundary.saturating_sub(keep));
        // After a hole what is held can lie further back than a ring is long.
        let used = (free - low.min(free)).min(capacity);
        let given_back = self.memory.release_pages(free, free.saturating_add(capacity - used));
        drop(pins);
        Trimmed { left: capacity - given_back, given_back, held }
    }

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
