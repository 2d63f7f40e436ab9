//! The state under a ring's lock: holds, the room that writers wait for, and holes.

use std::collections::VecDeque;

use crate::Position;
use crate::planted;
use crate::sync::{Arc, AtomicU64, CachePadded, Ordering};

/// A hole in the log: the positions `[from, to)` never arrived in this ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The first missing position; a boundary.
    pub from: Position,
    /// The first position after the hole; a boundary.
    pub to: Position,
}

/// A ring has grown: deliveries of up to `max_delivery` bytes begin at `from` at the earliest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growth {
    /// A boundary, at which the log ended when the ring grew.
    pub from: Position,
    /// The largest delivery from there on, until the next growth.
    pub max_delivery: u64,
}

/// Growths that a ring remembers one by one; beyond that the newest one is told of too early.
const MAX_GROWTHS: usize = 64;

/// Holes that a ring remembers one by one; beyond that the newest is widened.
pub(crate) const MAX_GAPS: usize = 64;

/// A hold's cursor: moved by its owner without the lock, read under it.
pub(crate) type Cursor = Arc<CachePadded<AtomicU64>>;

#[derive(Debug)]
pub(crate) struct Control {
    /// By slot. A dropped hold leaves its slot to the next hold.
    holds: Vec<Option<Cursor>>,
    free: Vec<usize>,
    /// The slowest hold's slot and position, as last computed: no hold is below that position. Cursors only go up, so while
    /// that hold exists at that position, no other is slower. With thousands of holds that come, move and go while a writer
    /// waits, most are not the slowest, and cost no scan of the others.
    slowest: (usize, Position),
    /// The slot taken last, for a planted bug.
    newest: planted::Memo<usize>,
    /// The nearest position that a writer was refused and has not been granted since.
    wanted: Option<Position>,
    /// The number of threads in `wait_grant`.
    pub(crate) sleepers: usize,
    /// Counts calls of `wake_waiters`, so that a waiter sees that there was one.
    pub(crate) wakes: u64,
    /// A `wake_waiters` found no waiter: the next one does not sleep.
    pub(crate) woken_early: bool,
    gaps: VecDeque<Gap>,
    growths: VecDeque<Growth>,
}

impl Control {
    pub(crate) fn new() -> Control {
        Control {
            holds: Vec::new(),
            free: Vec::new(),
            slowest: (0, Position::MAX),
            newest: planted::Memo::empty(),
            wanted: None,
            sleepers: 0,
            wakes: 0,
            woken_early: false,
            gaps: VecDeque::new(),
            growths: VecDeque::new(),
        }
    }

    pub(crate) fn add_hold(&mut self, at: Position) -> (usize, Cursor) {
        let cursor = Arc::new(CachePadded(AtomicU64::new(at)));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.holds.push(None);
            self.holds.len() - 1
        });
        self.holds[slot] = Some(Arc::clone(&cursor));
        if at <= self.slowest.1 {
            self.slowest = (slot, at);
        }
        self.newest.set(slot);
        (slot, cursor)
    }

    /// Returns whether the removed hold may have been the slowest.
    pub(crate) fn remove_hold(&mut self, slot: usize) -> bool {
        self.holds[slot] = None;
        self.free.push(slot);
        slot == self.slowest.0
    }

    /// The lowest cursor. Acquire pairs with the Release in `Hold::advance`: the reader's use of the bytes below happened
    /// before the writes that replace them.
    pub(crate) fn slowest_hold(&mut self) -> Option<Position> {
        let (first, floor) = self.slowest;
        let (before, from) = self.holds.split_at(first.min(self.holds.len()));
        let slots = (first..).zip(from).chain((0..).zip(before));
        let mut slowest: Option<(usize, Position)> = None;
        for (slot, hold) in slots {
            let Some(hold) = hold else { continue };
            let position = hold.load(Ordering::Acquire);
            if self.is_ignored(slot) || slowest.is_some_and(|(_, at)| at <= position) {
                continue;
            }
            slowest = Some((slot, position));
            if position <= floor {
                break;
            }
        }
        self.slowest = slowest.unwrap_or((0, Position::MAX));
        slowest.map(|(_, position)| position)
    }

    fn is_ignored(&self, slot: usize) -> bool {
        planted::is(2) && self.newest.get() == Some(slot)
    }

    /// Remembers that a writer was refused room up to `until`.
    pub(crate) fn want(&mut self, until: Position) {
        self.wanted = Some(self.wanted.map_or(until, |wanted| wanted.min(until)));
    }

    /// Whether no refused writer waits for more than `horizon`. Several may wait: the nearest decides, and a writer that is
    /// woken too early asks again.
    pub(crate) fn satisfied(&mut self, horizon: Position) -> bool {
        self.wanted = self.wanted.filter(|&wanted| wanted > horizon);
        self.wanted.is_none()
    }

    /// Remembers that `[gap.from, gap.to)` never arrived, and returns the hole as remembered: with too many holes the newest
    /// is widened, which gives up the bytes between. Holes that end at or below `gone` are forgotten.
    pub(crate) fn add_gap(&mut self, gap: Gap, gone: Position) -> Gap {
        while self.gaps.front().is_some_and(|first| first.to <= gone) {
            self.gaps.pop_front();
        }
        let full = self.gaps.len() == MAX_GAPS;
        match self.gaps.back_mut() {
            Some(last) if full || last.to == gap.from => {
                last.to = gap.to;
                *last
            }
            _ => {
                self.gaps.push_back(gap);
                gap
            }
        }
    }

    pub(crate) fn gap_after(&self, p: Position) -> Option<Gap> {
        // The holes are ordered by position.
        self.gaps.get(self.gaps.partition_point(|gap| gap.to <= p)).copied()
    }

    /// Remembers a growth. Of those at and below `gone` the last one remains: what it says is true there.
    pub(crate) fn add_growth(&mut self, growth: Growth, gone: Position) {
        while self.growths.get(1).is_some_and(|second| second.from <= gone) {
            self.growths.pop_front();
        }
        let full = self.growths.len() == MAX_GROWTHS;
        match self.growths.back_mut() {
            Some(last) if full || last.from == growth.from => last.max_delivery = growth.max_delivery,
            _ => self.growths.push_back(growth),
        }
    }

    /// The last growth up to `at`, if it allows more than so many bytes; otherwise the first that does.
    pub(crate) fn growth_beyond(&self, max_delivery: u64, at: Position) -> Option<Growth> {
        let first = self.growths.partition_point(|growth| growth.max_delivery <= max_delivery);
        let reached = self.growths.partition_point(|growth| growth.from <= at);
        self.growths.get(first.max(reached.saturating_sub(1))).copied()
    }
}
