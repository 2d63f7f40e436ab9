//! Returning the memory of an idle ring to the system.
//!
//! A ring costs all of its capacity once its log was that long, although most of it may be history that no reader needs, or
//! room that the writer does not use. With thousands of rings that is most of a machine's memory.
//!
//! ```text
//!   before     tail              hold      boundary  head                 horizon = tail + capacity
//!   ────────────┬──────────────────┬──────────┬───────┬──────────────────────┬──▶
//!               │■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■■│▒▒ room, backed by ▒▒▒│     the bytes of a capacity ago
//!   after                 tail     hold      boundary head                          horizon
//!   ───────────────────────┬───────┬──────────┬───────┬────────────────────────────────┬──▶
//!                  released│■■■■■■■■■■■■■■■■■■■■■■■■■■│   released                     │
//!                          └── keep, or the slowest hold if that is lower ──┘
//! ```
//!
//! Nothing that was promised is released: the tail goes up, but not above a hold, a boundary less `keep`, or a part of an
//! incomplete delivery. The horizon goes up with it, as it would if the log continued. A new hold is registered before and
//! counts, or after and is refused below the new tail, because both take the control lock.
//!
//! Pages in the writer's room can be released only by the thread that may write there. For a [`RingReceiver`] that is the one
//! with `&mut` of it, as long as bytes land through it alone: not where a peer writes into the memory by itself.
//!
//! A thread of the application has a local [`Writer`](crate::Writer), and writes at any time without a lock. So the writer takes
//! its room a little at a time, up to its *reach*, under a lock that serves this alone. The room beyond the reach belongs to no
//! thread, and any thread that has the lock can release it ([`Ring::trim`]). Writing below the reach costs nothing; going on
//! beyond it costs the lock, and waits for pages that are just being released.
//!
//! ```text
//!        tail    boundary  head   reach                 horizon
//!   ──────┬─────────┬───────┬───────┬──────────────────────┬──▶
//!         │■■■■■■■■■■■■■■■■■│ the   │ released, with the   │
//!         │                 │writer's│ reach's lock held   │
//! ```

use crate::Position;
use crate::planted;
use crate::receiver::RingReceiver;
use crate::ring::Ring;
use crate::shared::Shared;
use crate::sync::{Ordering, fence, lock};

/// The result of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimmed {
    /// Upper limit on the bytes that the ring still needs, in whole pages.
    pub left: u64,
    /// Bytes that were returned to the system, if they were backed.
    pub given_back: u64,
    /// Whether a hold, not `keep`, limited the trim: once it has moved, more can be released.
    pub held: bool,
}

impl RingReceiver {
    /// Returns memory to the system. The newest `keep` bytes of complete deliveries stay, as do held bytes and the part of an
    /// incomplete delivery. The tail, and the horizon with it, go up as far. Costs a system call or two.
    ///
    /// To be called only where all bytes land through this receiver. A peer that writes into the ring's memory by itself
    /// may be writing the pages that are released.
    pub fn trim(&mut self, keep: u64) -> Trimmed {
        let ring = self.ring();
        let trimmed = ring.shared().trim(keep, ring.head());
        self.change(|landing, shared| landing.horizon = shared.horizon.load(Ordering::Acquire));
        trimmed
    }
}

impl Ring {
    /// As [`RingReceiver::trim`], for a ring with flow control that a local [`Writer`](crate::Writer) fills: from any thread, while
    /// the writer writes. Claimed bytes stay, and so do a few pages that the writer may use without the lock. None for any
    /// other ring.
    pub fn trim(&self, keep: u64) -> Option<Trimmed> {
        // The writer does not go beyond its reach until the pages are released.
        let reach = lock(&self.shared().reach);
        Some(self.shared().trim(keep, (*reach)?))
    }
}

impl Shared {
    /// Releases the pages that no reader needs. No thread may write at or above `free` during the call.
    fn trim(&self, keep: u64, free: Position) -> Trimmed {
        let capacity = self.shape().capacity;
        // Pages that other processes or an adapter map stay: giving up history would gain nothing. Pinning is locked out.
        let Some(pins) = self.access.lock_unpinned().filter(|_| self.origin().can_release_pages()) else {
            return Trimmed { left: capacity, given_back: 0, held: false };
        };
        let boundary = self.published.boundary.load(Ordering::Acquire);
        let (low, held) = self.raise_tail(boundary.saturating_sub(keep));
        // After a hole a hold can lie further back than a ring is long.
        let used = (free - low.min(free)).min(capacity);
        let given_back = self.memory().release_pages(free, free.saturating_add(capacity - used));
        drop(pins);
        Trimmed { left: capacity - given_back, given_back, held }
    }

    /// Raises the tail to `to`, but not above a hold. Returns the lowest position that must stay, and whether a hold limited
    /// it.
    fn raise_tail(&self, to: Position) -> (Position, bool) {
        let mut control = self.control();
        let slowest = if planted::is(28) { None } else { control.slowest_hold() };
        let before = self.horizon.load(Ordering::Relaxed);
        let held = slowest.is_some_and(|slowest| slowest < to);
        let tail = to.min(slowest.unwrap_or(Position::MAX)).max(self.tail_of(before));
        let horizon = before.max(tail.saturating_add(self.shape().capacity));
        // Release pairs with the Acquire in `Ring::horizon`, and the fence with the one in `lapped_by`: a reader of a byte
        // that was released sees that the byte is below the tail.
        self.horizon.store(horizon, Ordering::Release);
        fence(Ordering::Release);
        drop(control);
        (tail.min(slowest.unwrap_or(Position::MAX)), held)
    }
}
