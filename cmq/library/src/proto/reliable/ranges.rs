//! The numbers of segments that have arrived, as a few ranges.

use crate::wire::reliable::MAX_RANGES;

/// Ranges of numbers, first and last, downwards.
#[derive(Default)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds a number. Returns true if it continues the highest range. If there are too many ranges, the lowest is dropped.
    pub fn insert(&mut self, number: u64) -> bool {
        let ranges = &mut self.0;
        let at = ranges.partition_point(|&(first, _)| first > number);
        // `at` is the range that begins at the number or below it; `at - 1` begins above it.
        if ranges.get(at).is_some_and(|&(_, last)| number <= last) {
            return false;
        }
        let joins_lower = ranges.get(at).is_some_and(|&(_, last)| last + 1 == number);
        let joins_upper = at > 0 && ranges[at - 1].0 == number + 1;
        match (joins_lower, joins_upper) {
            (true, true) => {
                ranges[at - 1].0 = ranges[at].0;
                ranges.remove(at);
            }
            (true, false) => ranges[at].1 = number,
            (false, true) => ranges[at - 1].0 = number,
            (false, false) => {
                ranges.insert(at, (number, number));
                ranges.truncate(MAX_RANGES);
            }
        }
        joins_lower && at == 0
    }

    /// Forgets all numbers.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The ranges, downwards.
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A set is the oracle: all ranges are right, and disjoint, and complete unless there are too many.
        #[test]
        fn ranges_behave_as_a_set(numbers in prop::collection::vec(0_u64..90, 0..120)) {
            let (mut ranges, mut model) = (Ranges::default(), BTreeSet::new());
            for number in numbers {
                ranges.insert(number);
                model.insert(number);
            }
            let mut listed = BTreeSet::new();
            for pair in ranges.as_slice().windows(2) {
                prop_assert!(pair[1].1 + 1 < pair[0].0);
            }
            for &(first, last) in ranges.as_slice() {
                listed.extend(first..=last);
            }
            prop_assert!(listed.is_subset(&model));
            prop_assert!(listed == model || ranges.as_slice().len() == MAX_RANGES);
        }
    }
}
