//! The memory that messages and copies are sent from: a small ring of its own, freed in the order in which it was used,
//! as completions come in the order of requests.

/// The parts in use.
#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: u64,
    head: u64,
    tail: u64,
}

/// A part in use: where it begins, and how many bytes to return for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub at: usize,
    pub cost: u32,
}

impl Outbox {
    pub fn new(bytes: u32) -> Self {
        Self { bytes: bytes.into(), head: 0, tail: 0 }
    }

    /// The bytes that a part of this size takes: the rest before the end is skipped if the part does not fit there.
    fn cost(&self, len: u64) -> u64 {
        let left = self.bytes - self.head % self.bytes;
        if len <= left { len } else { left + len }
    }

    /// Takes a part of `len` bytes in one piece.
    pub fn take(&mut self, len: usize) -> Option<Part> {
        let cost = self.cost(len as u64);
        if self.head + cost - self.tail > self.bytes {
            return None;
        }
        self.head += cost;
        let at = ((self.head - len as u64) % self.bytes) as usize;
        Some(Part { at, cost: cost as u32 })
    }

    /// Returns the oldest part in use.
    pub fn give(&mut self, cost: u32) {
        self.tail += u64::from(cost);
        debug_assert!(self.tail <= self.head);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_two_parts_overlap(steps in prop::collection::vec((any::<bool>(), 0..60_usize), 1..300)) {
            let mut outbox = Outbox::new(100);
            let mut taken: VecDeque<(Part, usize)> = VecDeque::new();
            for (take, len) in steps {
                if take && let Some(part) = outbox.take(len) {
                    prop_assert!(part.at + len <= 100);
                    let apart = |(other, other_len): &(Part, usize)| {
                        len == 0 || *other_len == 0 || part.at + len <= other.at || other.at + other_len <= part.at
                    };
                    prop_assert!(taken.iter().all(apart));
                    taken.push_back((part, len));
                } else if let Some((part, _)) = taken.pop_front() {
                    outbox.give(part.cost);
                }
                if taken.is_empty() {
                    let part = outbox.take(50).expect("an empty outbox has place");
                    outbox.give(part.cost);
                }
            }
        }
    }
}
