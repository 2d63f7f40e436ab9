//! The free parts of a reservation: first fit over a sorted map. A returned extent is joined with its free neighbours.
//!
//! Rings are few and large, so a search through the free extents is cheaper than anything clever.

use std::collections::BTreeMap;

/// The free extents of one reservation, by offset. No two of them touch.
#[derive(Debug)]
pub(crate) struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    /// A free extent of `size` bytes.
    pub(crate) fn new(size: u64) -> Extents {
        Extents { free: BTreeMap::from([(0, size)]) }
    }

    /// Takes the first `size` bytes that are free in one piece.
    pub(crate) fn take(&mut self, size: u64) -> Option<u64> {
        let (&at, &len) = self.free.iter().find(|&(_, &len)| len >= size)?;
        self.free.remove(&at);
        if len > size {
            self.free.insert(at + size, len - size);
        }
        Some(at)
    }

    /// Returns `[at, at + size)`, joined with the free neighbours that it touches.
    pub(crate) fn give(&mut self, at: u64, size: u64) {
        let (mut from, mut len) = (at, size);
        if let Some((&before, &before_len)) = self.free.range(..at).next_back() {
            debug_assert!(before + before_len <= at, "an extent was given back twice");
            if before + before_len == at {
                self.free.remove(&before);
                (from, len) = (before, len + before_len);
            }
        }
        if let Some(after_len) = self.free.remove(&(at + size)) {
            len += after_len;
        }
        self.free.insert(from, len);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::Extents;

    proptest! {
        /// The oracle: one flag per byte, searched from the beginning.
        #[test]
        fn takes_the_first_fit_and_joins(steps in prop::collection::vec((any::<bool>(), 1..20usize), 1..200)) {
            let (mut extents, mut used) = (Extents::new(64), [false; 64]);
            let mut taken = Vec::new();
            for (take, choice) in steps {
                if take || taken.is_empty() {
                    let fit = (0..=64 - choice).find(|&at| !used[at..at + choice].contains(&true));
                    prop_assert_eq!(extents.take(choice as u64), fit.map(|at| at as u64));
                    if let Some(at) = fit {
                        used[at..at + choice].fill(true);
                        taken.push((at, choice));
                    }
                } else {
                    let (at, size) = taken.swap_remove(choice % taken.len());
                    used[at..at + size].fill(false);
                    extents.give(at as u64, size as u64);
                }
            }
        }
    }
}
