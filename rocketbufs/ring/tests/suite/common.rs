//! The plain oracle that rings are compared with: all bytes ever written, and the ends of deliveries.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use rocketring::{Pool, PoolConfig, Position, Ring, RingConfig};

/// Start positions of logs: 0, and positions around the limits of integer types.
pub fn starts() -> impl Strategy<Value = Position> {
    prop_oneof![Just(0), (1u64 << 32) - 6000..(1 << 32) + 10, (1u64 << 63) - 6000..(1 << 63) + 10]
}

pub fn ring(config: RingConfig) -> Ring {
    let pool = Pool::new(PoolConfig { reservation_bytes: 1 << 20, max_bytes: 1 << 24 }).unwrap();
    pool.ring(config).unwrap()
}

/// Bytes that say which piece of the log they belong to.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i * 151) >> 3) as u8)
        .collect()
}

/// The expected content of a ring.
pub struct Log {
    pub start: Position,
    pub bytes: Vec<u8>,
    pub boundaries: BTreeSet<Position>,
    /// Where the last complete delivery begins; the boundary if there is none.
    pub last: Position,
    /// Ranges `[from, to)` that never arrived.
    pub gaps: Vec<(Position, Position)>,
}

impl Log {
    pub fn new(start: Position) -> Log {
        Log { start, bytes: Vec::new(), boundaries: BTreeSet::from([start]), last: start, gaps: Vec::new() }
    }

    pub fn head(&self) -> Position {
        self.start + self.bytes.len() as u64
    }

    pub fn boundary(&self) -> Position {
        *self.boundaries.last().unwrap()
    }

    /// Ends a delivery at the head.
    pub fn end(&mut self) {
        let from = self.boundary();
        if self.boundaries.insert(self.head()) {
            self.last = from;
        }
    }

    pub fn check_last(&self, ring: &Ring) {
        let there = self.last < self.boundary() && self.last >= ring.tail();
        assert_eq!(ring.last_delivery(), there.then_some(self.last));
    }

    pub fn range(&self, from: Position, to: Position) -> &[u8] {
        &self.bytes[(from - self.start) as usize..(to - self.start) as usize]
    }

    fn is_missing(&self, p: Position) -> bool {
        self.gaps.iter().any(|&(from, to)| from <= p && p < to)
    }

    /// Compares the ring's bytes in `[from, to)`, without gaps.
    pub fn check_range(&self, ring: &Ring, from: Position, to: Position) {
        let found = ring.view(from, to).to_vec().expect("the range is held or above the tail");
        for (i, (found, expected)) in found.iter().zip(self.range(from, to)).enumerate() {
            let at = from + i as u64;
            assert!(found == expected || self.is_missing(at), "byte {at}: {found} instead of {expected}");
        }
    }

    /// The boundaries that an index with the documented number of slots must know, computed from all boundaries.
    fn known(&self, ring: &Ring) -> Vec<Position> {
        let slots =
            (16 * ring.capacity() / ring.max_delivery()).max(256).next_power_of_two().min(ring.capacity());
        let block = ring.capacity() / slots;
        let last_block = self.boundary() / block;
        let known = self.boundaries.iter().copied().filter(|&b| {
            let next_in_block =
                self.boundaries.range(b + 1..).next().is_some_and(|next| next / block == b / block);
            let indexed = b != self.start && !next_in_block && b / block + slots >= last_block;
            b >= ring.tail() && (indexed || b == self.start || b == self.boundary())
        });
        known.collect()
    }

    /// Asks for the boundaries around `p`.
    pub fn check_boundaries(&self, ring: &Ring, p: Position) {
        let known = self.known(ring);
        let after = known.iter().copied().find(|&b| b >= p);
        let after = after.or((p <= self.boundary()).then_some(self.boundary()));
        assert_eq!(ring.boundary_at_or_after(p), after, "at or after {p}, of {known:?}");
        let before = known.iter().copied().rfind(|&b| b <= p);
        assert_eq!(ring.boundary_at_or_before(p), before, "at or before {p}, of {known:?}");
    }

    /// A position in the range of the ring's bytes, or near it.
    pub fn somewhere(&self, ring: &Ring, choice: u64) -> Position {
        let from = ring.tail().saturating_sub(10).max(self.start);
        from + choice % (self.head() + 20 - from)
    }
}
