//! Holes in a ring, which batches from a level below leave.
//!
//! ```text
//!   first          hole             hole            head
//!     ├──────────────┤     ├──────────┤    ├──────────┤
//!     │ read by user space only        │   │ read by programs too
//!                                          └ floor
//! ```
//!
//! The programs have one floor, below which they answer no pull, and a hole raises it. User space remembers the holes and the floor
//! without them, so it can read the bytes between the holes. The next process that takes over the ring has only the raised floor.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use locks::{Mutex, MutexGuard};
use multimqc::{Hole, Offset};

/// The most holes of a ring. Beyond it, bytes before the oldest hole can no longer be read.
const MAX_HOLES: usize = 1024;

/// The holes of a topic. One thread at a time adds holes.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    list: Mutex<VecDeque<Hole>>,
    /// The end of the newest hole. The hole has raised the topic's floor to it; a higher floor has another reason.
    end: AtomicU64,
    /// The floor without the holes.
    floor: AtomicU64,
}

impl Holes {
    fn list(&self) -> MutexGuard<'_, VecDeque<Hole>> {
        self.list.lock()
    }

    /// The floor of user space, if the floor of the programs is `raised`.
    pub(crate) fn floor_below(&self, raised: Offset) -> Offset {
        // Pairs with the release store in `add`: the floor without the newest hole is seen.
        if raised > self.end.load(Acquire) { raised } else { self.floor.load(Acquire) }
    }

    /// Adds a hole behind all others, in a ring that begins at `first`. The caller raises the topic's floor afterwards. `floor` is the
    /// beginning of the bytes before the hole that can be read.
    pub(crate) fn add(&self, hole: Hole, floor: Offset, first: Offset) {
        let mut list = self.list();
        while list.front().is_some_and(|oldest| oldest.to <= first.max(floor)) {
            list.pop_front();
        }
        let cut = if list.len() == MAX_HOLES { list.pop_front() } else { None };
        list.push_back(hole);
        self.floor.store(floor.max(cut.map_or(0, |hole| hole.to)), Release);
        // Pairs with the acquire load in `floor_below`.
        self.end.store(hole.to, Release);
    }

    /// Removes all holes, because the topic's floor has risen above them.
    pub(crate) fn clear(&self) {
        self.list().clear();
        self.end.store(0, Release);
    }

    /// The part from `from` on of the first hole that ends behind it.
    pub(crate) fn after(&self, from: Offset) -> Option<Hole> {
        if from >= self.end.load(Acquire) {
            return None;
        }
        let list = self.list();
        let hole = list.get(list.partition_point(|hole| hole.to <= from))?;
        Some(Hole { from: hole.from.max(from), to: hole.to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_holes_are_forgotten_and_the_floor_follows() {
        let holes = Holes::default();
        assert_eq!((holes.floor_below(7), holes.after(0)), (7, None));
        for n in 0..MAX_HOLES as u64 + 1 {
            holes.add(Hole { from: 100 * n + 50, to: 100 * n + 100 }, 20, 0);
        }
        let end = 100 * MAX_HOLES as u64 + 100;
        assert_eq!(holes.after(0), Some(Hole { from: 150, to: 200 }), "the first one made room");
        assert_eq!(holes.floor_below(end), 100, "and what lies before it");
        assert_eq!(holes.floor_below(end + 1), end + 1, "damage behind the last hole");
        assert_eq!(holes.after(170), Some(Hole { from: 170, to: 200 }));
        assert_eq!(holes.after(end), None);
        holes.add(Hole { from: end + 1, to: end + 2 }, 20, end);
        assert_eq!(
            holes.after(0),
            Some(Hole { from: end + 1, to: end + 2 }),
            "the ring has none of the others"
        );
        holes.clear();
        assert_eq!((holes.floor_below(5), holes.after(0)), (5, None));
    }
}
