//! A worker of a group: what it has, and whether it may have more.

use std::collections::BTreeSet;

/// No worker: whoever had the message works on it no more, and it waits for its time.
pub(crate) const NOBODY: u32 = u32::MAX;

/// A message at a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt {
    /// The message.
    pub position: u64,
    /// Which attempt it is: 1 for the first.
    pub number: u16,
}

/// A worker.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    credit: usize,
    /// What it has.
    pub(crate) held: BTreeSet<u64>,
    /// What is not its own any more, since its time is over or another worker has done it. It may still work on that, and gets nothing in its
    /// place until it says a word of it.
    overdue: BTreeSet<Attempt>,
    /// Its ring is full.
    pub(crate) is_paused: bool,
    /// It gets nothing more.
    pub(crate) is_leaving: bool,
    /// It has a place in the turn.
    pub(crate) is_waiting: bool,
}

impl Worker {
    pub(crate) fn new(credit: u32) -> Self {
        Self { credit: usize::try_from(credit.max(1)).unwrap_or(usize::MAX), ..Self::default() }
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.is_paused && !self.is_leaving && self.held.len() + self.overdue.len() < self.credit
    }

    /// How many messages it may have at a time.
    pub(crate) fn credit(&self) -> usize {
        self.credit
    }

    /// How many messages are not its own any more, and it has not said a word of them.
    pub(crate) fn overdue(&self) -> usize {
        self.overdue.len()
    }

    /// It has said a word of what it had once. False: it had it not, or has it still.
    pub(crate) fn settle(&mut self, attempt: Attempt) -> bool {
        self.overdue.remove(&attempt)
    }

    /// A message is not its own any more, and it does not know.
    pub(crate) fn lose(&mut self, attempt: Attempt) {
        if self.held.remove(&attempt.position) {
            self.overdue.insert(attempt);
        }
    }
}
