//! The table of runs: which publisher the bytes of the merged log came from. The table is bounded, and serves
//! confirmations.
//!
//! ```text
//!  merged log   ──┬─────────┬──────┬──────────────┬──▶
//!                 │ A: 40   │ B: 8 │ A: 95        │        an entry: end in the merged log, publisher, end in its log
//!            consumed             delivered        head
//! ```
//!
//! An entry is removed when all subscribers have consumed its run. Confirmations are minima over the subscribers, so the
//! positions up to which the merged log is delivered and consumed are sufficient.

use std::collections::VecDeque;

use rocketbufs::Position;

/// The end of a run in the merged log and in the publisher's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    merged: Position,
    number: u32,
    position: Position,
}

/// A milestone of a publisher's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Milestone {
    /// All receivers at the ends of all chains have the data in their memory.
    Delivered,
    /// All these receivers have consumed the data.
    Consumed,
}

/// The load of a merged topic's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TableLoad {
    /// The number of runs that some subscriber has not consumed.
    pub(crate) entries: usize,
    /// The number at which publishers wait.
    pub(crate) limit: usize,
}

/// The runs that some subscriber has not consumed, oldest first.
#[derive(Debug)]
pub(super) struct Table {
    entries: VecDeque<Entry>,
    /// The number of entries that are delivered to all subscribers.
    delivered: usize,
    limit: usize,
}

impl Table {
    /// A table of at most `limit` entries of 24 bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), delivered: 0, limit: limit.max(1) }
    }

    /// The number of entries and their limit.
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

    /// Whether half of the limit is used, so that confirmations should be read.
    pub(super) fn is_half_full(&self) -> bool {
        self.entries.len() >= self.limit / 2
    }

    /// Adds a run. The table must not be full.
    pub(super) fn push(&mut self, merged: Position, number: u32, position: Position) {
        self.entries.push_back(Entry { merged, number, position });
    }

    /// Applies the positions up to which the merged log is delivered and consumed. Calls `report` for each milestone of a
    /// publisher, in order.
    pub(super) fn settle(
        &mut self,
        delivered: Position,
        consumed: Position,
        mut report: impl FnMut(Milestone, u32, Position),
    ) {
        while let Some(entry) = self.entries.get(self.delivered).filter(|entry| entry.merged <= delivered) {
            report(Milestone::Delivered, entry.number, entry.position);
            self.delivered += 1;
        }
        while let Some(entry) = self.entries.front().filter(|entry| entry.merged <= consumed) {
            report(Milestone::Consumed, entry.number, entry.position);
            self.entries.pop_front();
            self.delivered = self.delivered.saturating_sub(1);
        }
        // Free the memory after a burst.
        if self.entries.is_empty() && self.entries.capacity() > 1024 {
            self.entries.shrink_to(0);
        }
    }

    /// The publisher and its end for each run that ends at or below `merged`, in order.
    pub(super) fn up_to(&self, merged: Position) -> impl Iterator<Item = (u32, Position)> {
        let runs = self.entries.iter().take_while(move |entry| entry.merged <= merged);
        runs.map(|entry| (entry.number, entry.position))
    }

    /// The position up to which the merged log must be consumed to free a quarter of the entries. Publishers don't wake up for
    /// every single entry.
    pub(super) fn quarter(&self) -> Option<Position> {
        self.entries.get(self.entries.len() / 4).map(|entry| entry.merged)
    }
}
