//! An index of boundaries in memory of a fixed size: one boundary per block of the ring.
//!
//! ```text
//!   log      ──|──────b──b────|─────────────|──b───────────|─ b ──▶      b: a delivery ended here
//!   slot            last b         (old)         b            b          slot = block mod slots
//! ```
//!
//! A slot keeps the *last* boundary of its block. A slot is stale if its position lies in another block than the one that
//! is looked up. So a slot needs no lock and is never cleared.
//!
//! A full ring reaches into one block more than there are slots: its oldest and its newest bytes may share a slot. So the
//! boundary that the newest block's first boundary displaces is kept beside the slots.

use crate::Position;
use crate::planted;
use crate::sync::{AtomicU64, Ordering};

/// Slots of a ring whose deliveries may be large; more where they are small (see [`BoundaryIndex::new`]).
#[cfg(not(loom))]
const MIN_SLOTS: u64 = 256;
/// A model pays for every atomic.
#[cfg(loom)]
const MIN_SLOTS: u64 = 2;

/// The state of a ring at the moment of a look-up: answers lie in `[tail, boundary]`.
pub(crate) struct Known {
    pub(crate) start: Position,
    pub(crate) tail: Position,
    pub(crate) boundary: Position,
}

#[derive(Debug)]
pub(crate) struct BoundaryIndex {
    slots: Box<[AtomicU64]>,
    /// The previous content of the newest block's slot.
    displaced: AtomicU64,
    /// A block is `1 << shift` bytes.
    shift: u32,
}

impl BoundaryIndex {
    /// At least 16 slots per largest delivery, so that rounding up to a boundary costs little more than one
    /// delivery; `capacity` and with it everything here is a power of two.
    pub(crate) fn new(capacity: u64, max_delivery: u64) -> BoundaryIndex {
        let slots = (16 * capacity / max_delivery).max(MIN_SLOTS).next_power_of_two().min(capacity);
        // u64::MAX lies in no block that is looked up.
        let empty = (0..slots).map(|_| AtomicU64::new(u64::MAX)).collect();
        let shift = (capacity / slots).trailing_zeros();
        BoundaryIndex { slots: empty, displaced: AtomicU64::new(u64::MAX), shift }
    }

    /// Records that a delivery ended at `at`. The only writer calls this before it publishes the boundary (Release).
    /// The slot is then visible to readers that load the boundary (Acquire) first.
    #[inline]
    pub(crate) fn record(&self, at: Position) {
        let slot = self.slot(at >> self.shift);
        let before = slot.load(Ordering::Relaxed);
        if before >> self.shift != at >> self.shift {
            self.displaced.store(before, Ordering::Relaxed);
        }
        slot.store(at, Ordering::Relaxed);
    }

    /// The smallest known boundary that is at least `p`.
    pub(crate) fn at_or_after(&self, p: Position, known: &Known) -> Option<Position> {
        if p > known.boundary {
            return None;
        }
        let low = p.max(known.tail);
        if known.start >= low && known.start <= known.boundary {
            return Some(known.start);
        }
        let last = known.boundary >> self.shift;
        let first = (low >> self.shift).max(self.first_block(last));
        let indexed =
            (first..=last).find_map(|block| self.read(block).filter(|&at| at >= low && at <= known.boundary));
        Some(indexed.unwrap_or(known.boundary))
    }

    /// The largest known boundary that is at most `p` and not below the tail.
    pub(crate) fn at_or_before(&self, p: Position, known: &Known) -> Option<Position> {
        if p >= known.boundary {
            return Some(known.boundary).filter(|&at| at >= known.tail);
        }
        if planted::is(7) && p >= known.tail {
            return Some((p >> self.shift << self.shift).max(known.tail));
        }
        let last = p >> self.shift;
        let first = (known.tail >> self.shift).max(self.first_block(known.boundary >> self.shift));
        let indexed =
            (first..=last).rev().find_map(|block| self.read(block).filter(|&at| at >= known.tail && at <= p));
        indexed.or(Some(known.start).filter(|&start| start >= known.tail && start <= p))
    }

    /// The oldest block that can still have its slot when `last` is the newest.
    fn first_block(&self, last: u64) -> u64 {
        last.saturating_sub(self.slots.len() as u64)
    }

    fn read(&self, block: u64) -> Option<Position> {
        let of_block = |at: &Position| at >> self.shift == block && *at != u64::MAX;
        let at = self.slot(block).load(Ordering::Relaxed);
        Some(at).filter(of_block).or_else(|| Some(self.displaced.load(Ordering::Relaxed)).filter(of_block))
    }

    #[inline]
    fn slot(&self, block: u64) -> &AtomicU64 {
        &self.slots[(block & (self.slots.len() as u64 - 1)) as usize]
    }
}
