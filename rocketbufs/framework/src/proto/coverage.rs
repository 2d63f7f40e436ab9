//! The receivers that the positions of a CREDIT speak for.
//!
//! ```text
//!   receivers                       ┌───── all five, from `covered_from` on: the last lost data below
//!       4                  ┌────────┘      a part: these four have all data from here on
//!       3        ┌─────────┘               a part: these three have data below it, which the fourth missed
//!            ────┴─────────────────────▶   positions
//! ```
//!
//! A receiver that repeatedly loses data remains one receiver; the parts tell how many others there are.
//! Leaving a part out makes the count below `covered_from` too small, never too large. So a few parts are
//! enough.

use super::codec::Writer;
use crate::ground::fields::{FieldError, Reader};
use crate::ground::types::Position;

/// The most parts of a [`Coverage`].
pub const MAX_COVERAGE_PARTS: usize = 4;

/// The parts of two coverages, and the position from which all receivers of each are covered.
const MAX_PARTS_OF_TWO: usize = 2 * (MAX_COVERAGE_PARTS + 1);

/// A lower bound: so many receivers have everything that is confirmed from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoveragePart {
    /// The position.
    pub covered_from: Position,
    /// The number of receivers.
    pub receivers: u32,
}

/// Some parts of a coverage, ordered by position. Each has more receivers than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoverageParts([CoveragePart; MAX_COVERAGE_PARTS]);

impl CoverageParts {
    /// Iterates over the parts, the lowest position first.
    pub fn iter(&self) -> impl Iterator<Item = CoveragePart> + use<> {
        self.0.into_iter().take_while(|part| part.receivers > 0)
    }

    /// Selects the parts that say more than `all` and than each other, from facts that are each true by itself.
    /// Of too many parts, those that concern nothing above `floor` go first, and then the last.
    fn of(facts: &mut [CoveragePart], all: CoveragePart, floor: Position) -> Self {
        facts.sort_unstable_by_key(|part| (part.covered_from, part.receivers));
        let mut len = 0;
        for n in 0..facts.len() {
            let part = facts[n];
            let before = facts[..len].last().copied().unwrap_or_default();
            if part.covered_from >= all.covered_from
                || part.receivers >= all.receivers
                || part.receivers <= before.receivers
            {
                continue;
            }
            if part.covered_from > before.covered_from || len == 0 {
                len += 1;
            }
            facts[len - 1] = part;
        }
        while len > MAX_COVERAGE_PARTS {
            // The first positions to be confirmed are needed first.
            if facts[1].covered_from <= floor {
                facts.copy_within(1..len, 0);
            }
            len -= 1;
        }
        let mut parts = Self::default();
        parts.0[..len].copy_from_slice(&facts[..len]);
        parts
    }
}

/// The receivers that the positions of a CREDIT speak for. `left` and `lost` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// The last receivers of chains that the minima are taken over. 1 at an application's own end.
    pub receivers: u32,
    /// Such receivers that have gone and count no more.
    pub left: u32,
    /// How often such a receiver was told that it lost a range, which then counts no more.
    pub lost: u32,
    /// All of these receivers have what is confirmed from here on. Some of them joined later or lost data
    /// below, where the positions speak for fewer receivers.
    pub covered_from: Position,
    /// How many of them are known to have what is confirmed from earlier positions on.
    #[doc(hidden)]
    pub parts: CoverageParts,
}

#[doc(hidden)]
impl Coverage {
    /// One receiver, an application's own end, that has everything.
    pub const ONE: Self = Self {
        receivers: 1,
        left: 0,
        lost: 0,
        covered_from: 0,
        parts: CoverageParts([CoveragePart { covered_from: 0, receivers: 0 }; MAX_COVERAGE_PARTS]),
    };

    /// Returns a lower bound of the receivers that have everything that is confirmed from a position on.
    pub fn receivers_at(&self, position: Position) -> u32 {
        let begun = self.each().filter(|part| part.covered_from <= position);
        begun.map(|part| part.receivers).max().unwrap_or(0)
    }

    /// Returns the next position beyond `position` from which more receivers are covered.
    pub fn next_after(&self, position: Position) -> Option<Position> {
        self.each().map(|part| part.covered_from).find(|covered_from| *covered_from > position)
    }

    /// Returns the coverage with the useful ones of these parts. Each part must be true by itself.
    #[must_use]
    pub fn with_parts<const N: usize>(self, mut parts: [CoveragePart; N]) -> Self {
        Self { parts: CoverageParts::of(&mut parts, self.all(), 0), ..self }
    }

    /// Returns the sum of two coverages.
    pub fn and(self, other: Self) -> Self {
        self.and_above(other, 0)
    }

    /// Returns the sum of two coverages, if positions below `floor` concern no reader.
    pub(crate) fn and_above(self, other: Self, floor: Position) -> Self {
        let mut both = Self {
            receivers: self.receivers.saturating_add(other.receivers),
            left: self.left.saturating_add(other.left),
            lost: self.lost.saturating_add(other.lost),
            covered_from: self.covered_from.max(other.covered_from),
            parts: CoverageParts::default(),
        };
        if self.covered_from == other.covered_from && self.parts == other.parts && self.parts == both.parts {
            return both;
        }
        let (mut facts, mut len) = ([CoveragePart::default(); MAX_PARTS_OF_TWO], 0);
        for CoveragePart { covered_from, .. } in self.each().chain(other.each()) {
            facts[len] = CoveragePart {
                covered_from,
                receivers: self.receivers_at(covered_from).saturating_add(other.receivers_at(covered_from)),
            };
            len += 1;
        }
        both.parts = CoverageParts::of(&mut facts[..len], both.all(), floor);
        both
    }

    /// Returns the coverage if none of these receivers gets data below `to`.
    #[must_use]
    pub fn behind(self, to: Position) -> Self {
        if self.receivers == 0 {
            // A receiver that joins later reports its own coverage.
            return self;
        }
        let (mut facts, mut len) = ([CoveragePart::default(); MAX_COVERAGE_PARTS], 0);
        for part in self.parts.iter() {
            facts[len] = CoveragePart { covered_from: part.covered_from.max(to), ..part };
            len += 1;
        }
        let behind = Self { covered_from: self.covered_from.max(to), ..self };
        Self { parts: CoverageParts::of(&mut facts[..len], behind.all(), 0), ..behind }
    }

    /// Returns whether a receiver has joined since `before` was told. All receivers together may then have
    /// less than was told of the earlier ones.
    pub fn joined(self, before: Self) -> bool {
        let all = |coverage: Self| coverage.receivers.saturating_add(coverage.left);
        all(self) > all(before)
    }

    /// Returns the coverage after all of these receivers have gone.
    pub fn gone(self) -> Self {
        let left = self.left.saturating_add(self.receivers);
        Self { left, lost: self.lost, ..Self::default() }
    }

    fn all(&self) -> CoveragePart {
        CoveragePart { covered_from: self.covered_from, receivers: self.receivers }
    }

    fn each(&self) -> impl Iterator<Item = CoveragePart> + use<> {
        self.parts.iter().chain([self.all()])
    }
}

pub(super) fn encode_coverage(w: &mut Writer, coverage: &Coverage) {
    w.u32(coverage.receivers).u32(coverage.left).u32(coverage.lost).u64(coverage.covered_from);
    w.u8(coverage.parts.iter().count() as u8);
    for part in coverage.parts.iter() {
        w.u64(part.covered_from).u32(part.receivers);
    }
}

pub(super) fn decode_coverage(r: &mut Reader<'_>) -> Result<Coverage, FieldError> {
    let (receivers, left, lost, covered_from) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?);
    let coverage = Coverage { receivers, left, lost, covered_from, ..Coverage::default() };
    let number = usize::from(r.u8()?);
    let mut parts = [CoveragePart::default(); MAX_COVERAGE_PARTS];
    for part in parts.get_mut(..number).ok_or(FieldError::value("parts", number as u64))? {
        *part = CoveragePart { covered_from: r.u64()?, receivers: r.u32()? };
    }
    let coverage = coverage.with_parts(parts);
    // Each part says more than the one before and less than the whole, so all of them stay.
    match coverage.parts.iter().eq(parts.into_iter().take(number)) {
        true => Ok(coverage),
        false => Err(FieldError::value("parts", number as u64)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A receiver that has everything from a position on, or several behind a relay, with a range that was
    /// skipped on the way to them.
    #[derive(Debug, Clone)]
    enum Tree {
        End(Position),
        Several(Vec<Tree>, Position),
    }

    fn tree(largest: Position) -> impl Strategy<Value = Tree> {
        let end = (0..largest).prop_map(Tree::End);
        end.prop_recursive(3, 40, 8, move |inner| {
            (vec(inner, 0..8), prop_oneof![3 => Just(0), 1 => 0..largest])
                .prop_map(|(trees, skipped_to)| Tree::Several(trees, skipped_to))
        })
    }

    impl Tree {
        fn count(&self, floor: Position) -> Coverage {
            match self {
                Self::End(covered_from) => Coverage { covered_from: *covered_from, ..Coverage::ONE },
                Self::Several(trees, skipped_to) => {
                    let all = trees.iter().map(|tree| tree.count(floor));
                    let coverage =
                        all.fold(Coverage::default(), |all, coverage| all.and_above(coverage, floor));
                    coverage.behind(*skipped_to)
                }
            }
        }

        fn ends(&self, skipped_to: Position) -> Vec<Position> {
            match self {
                Self::End(covered_from) => vec![(*covered_from).max(skipped_to)],
                Self::Several(trees, to) => {
                    trees.iter().flat_map(|tree| tree.ends(skipped_to.max(*to))).collect()
                }
            }
        }
    }

    proptest! {
        /// Compared with each receiver's own position: never more than have the data.
        #[test]
        fn no_more_are_counted_than_have_it(tree in tree(60), floor in 0_u64..60) {
            let (coverage, ends) = (tree.count(floor), tree.ends(0));
            prop_assert_eq!(coverage.receivers as usize, ends.len());
            for position in 0..61 {
                let have = ends.iter().filter(|covered_from| **covered_from <= position).count();
                prop_assert!(coverage.receivers_at(position) as usize <= have, "{}: {:?} of {:?}", position, coverage, ends);
            }
            prop_assert_eq!(coverage.receivers_at(coverage.covered_from), coverage.receivers);
        }

        /// Few positions are all told.
        #[test]
        fn few_positions_are_told_exactly(tree in tree(MAX_COVERAGE_PARTS as Position + 1)) {
            let (coverage, ends) = (tree.count(0), tree.ends(0));
            for position in 0..MAX_COVERAGE_PARTS as Position + 2 {
                let have = ends.iter().filter(|covered_from| **covered_from <= position).count();
                prop_assert_eq!(coverage.receivers_at(position) as usize, have, "{}: {:?} of {:?}", position, coverage, ends);
                let next = coverage.next_after(position);
                prop_assert!(next.is_none_or(|next| next > position && coverage.receivers_at(next) > coverage.receivers_at(position)));
            }
        }
    }

    #[test]
    fn the_first_of_too_many_parts_stay() {
        let parts = |floor| {
            let of = |covered_from| Coverage { covered_from, ..Coverage::ONE };
            let all = [0, 10, 500, 900, 950, 990, 999].map(of);
            let coverage =
                all.into_iter().fold(Coverage::default(), |all, coverage| all.and_above(coverage, floor));
            coverage.parts.iter().map(|part| (part.covered_from, part.receivers)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0), [(0, 1), (10, 2), (500, 3), (900, 4)]);
        // Positions that are confirmed already concern no reader.
        assert_eq!(parts(500), [(500, 3), (900, 4), (950, 5), (990, 6)]);
    }
}
