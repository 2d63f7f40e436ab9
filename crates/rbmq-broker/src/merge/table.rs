//! Which bytes of the merged log are whose: for confirmations, and bounded.
//!
//! ```text
//!  merged log   ──┬─────────┬──────┬──────────────┬──▶
//!                 │ A: 40   │ B: 8 │ A: 95        │        an entry: the run's end here, whose it is, its end there
//!            consumed             delivered        head
//! ```
//!
//! An entry goes when every subscriber has given its run back. What publishers may be told is a minimum over the
//! subscribers, so it is enough to know how far the merged log is delivered and consumed.

use std::collections::VecDeque;

use rocketbufs::Position;

/// A run: where it ends in the merged log, and in its publisher's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    merged: Position,
    number: u32,
    position: Position,
}

/// How far the bytes of a publisher have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// In the memory of every receiver at the end of a chain.
    Delivered,
    /// Given back by every such receiver.
    Consumed,
}

/// How full a merged topic's table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TableLoad {
    /// Runs that not every subscriber has given back.
    pub(crate) entries: usize,
    /// At so many of them publishers wait.
    pub(crate) limit: usize,
}

/// The runs that not every subscriber has given back, oldest first.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    /// How many of them were delivered everywhere.
    delivered: usize,
    limit: usize,
}

impl Table {
    /// A table of at most `limit` entries, 24 bytes each while they are there.
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), delivered: 0, limit: limit.max(1) }
    }

    /// How many entries it has, and how many it may have.
    pub(super) fn load(&self) -> TableLoad {
        TableLoad { entries: self.entries.len(), limit: self.limit }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// Whether it should be looked through before it is full.
    pub(super) fn is_half_full(&self) -> bool {
        self.entries.len() >= self.limit / 2
    }

    /// A run was moved. The caller has seen to it that the table is not full.
    pub(super) fn push(&mut self, merged: Position, number: u32, position: Position) {
        self.entries.push_back(Entry { merged, number, position });
    }

    /// The merged log is delivered and consumed so far: tells what that means for each publisher, in order.
    pub(super) fn settle(
        &mut self,
        delivered: Position,
        consumed: Position,
        mut tell: impl FnMut(Level, u32, Position),
    ) {
        while let Some(entry) = self.entries.get(self.delivered).filter(|entry| entry.merged <= delivered) {
            tell(Level::Delivered, entry.number, entry.position);
            self.delivered += 1;
        }
        while let Some(entry) = self.entries.front().filter(|entry| entry.merged <= consumed) {
            tell(Level::Consumed, entry.number, entry.position);
            self.entries.pop_front();
            self.delivered = self.delivered.saturating_sub(1);
        }
        // A burst is over: its memory too.
        if self.entries.is_empty() && self.entries.capacity() > 1024 {
            self.entries.shrink_to(0);
        }
    }

    /// For each run of those here that ends at or below `merged`, whose it is and where it ends there; in order.
    pub(super) fn up_to(&self, merged: Position) -> impl Iterator<Item = (u32, Position)> {
        let runs = self.entries.iter().take_while(move |entry| entry.merged <= merged);
        runs.map(|entry| (entry.number, entry.position))
    }

    /// How far the merged log must be consumed for a quarter of the entries to go: who waits for room is not woken for
    /// every single one.
    pub(super) fn quarter(&self) -> Option<Position> {
        self.entries.get(self.entries.len() / 4).map(|entry| entry.merged)
    }
}
