//! For whom the positions of a CREDIT speak.
//!
//! ```text
//!   receivers                       ┌───── all five, from `since` on: the last of them lost what lies below
//!       4                  ┌────────┘      a part: these four have everything from here on
//!       3        ┌─────────┘               a part: these three have, and what the fourth came too late for
//!            ────┴─────────────────────▶   positions
//! ```
//!
//! Who loses something again and again is one receiver all the same: the parts tell how many others there are. A part
//! that is left out makes those below `since` fewer than they are, and never more. So a few are enough.

use super::codec::Writer;
use crate::fields::{FieldError, Reader};
use crate::types::Position;

/// Most parts of a [`Count`].
pub const MOST_PARTS: usize = 4;

/// The parts of two counts, and where all of the receivers of each begin.
const MOST_OF_TWO: usize = 2 * (MOST_PARTS + 1);

/// Receivers that have everything that is confirmed from a position on, at least so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// The position.
    pub since: Position,
    /// How many.
    pub receivers: u32,
}

/// Some of a count's parts, by position: each is more receivers than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parts([Part; MOST_PARTS]);

impl Parts {
    /// The one that begins first comes first.
    pub fn iter(&self) -> impl Iterator<Item = Part> + use<> {
        self.0.into_iter().take_while(|part| part.receivers > 0)
    }

    /// What is less than `all` of facts that are each true by itself. Of too many those go that say nothing of what lies
    /// above `floor`, and then the last.
    fn of(facts: &mut [Part], all: Part, floor: Position) -> Self {
        facts.sort_unstable_by_key(|part| (part.since, part.receivers));
        let mut len = 0;
        for n in 0..facts.len() {
            let part = facts[n];
            let before = facts[..len].last().copied().unwrap_or_default();
            if part.since >= all.since
                || part.receivers >= all.receivers
                || part.receivers <= before.receivers
            {
                continue;
            }
            if part.since > before.since || len == 0 {
                len += 1;
            }
            facts[len - 1] = part;
        }
        while len > MOST_PARTS {
            // Those who come first in what is to be confirmed are needed first.
            if facts[1].since <= floor {
                facts.copy_within(1..len, 0);
            }
            len -= 1;
        }
        let mut parts = Self::default();
        parts.0[..len].copy_from_slice(&facts[..len]);
        parts
    }
}

/// For whom the positions of a CREDIT speak. `left` and `lost` only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Receivers at the ends of chains that the minima are taken over. 1 at an application's own end.
    pub receivers: u32,
    /// Such receivers that have gone and count no more.
    pub left: u32,
    /// How often such a receiver was told that it lost a range, which then counts no more.
    pub lost: u32,
    /// All of these receivers have what is confirmed from here on. Some of them came later than what lies below, or lost
    /// it: for that the positions speak for fewer.
    pub since: Position,
    /// How many of them are known to have what is confirmed from an earlier position on.
    pub parts: Parts,
}

impl Count {
    /// One receiver, an application's own end, that has everything.
    pub const ONE: Self = Self {
        receivers: 1,
        left: 0,
        lost: 0,
        since: 0,
        parts: Parts([Part { since: 0, receivers: 0 }; MOST_PARTS]),
    };

    /// How many receivers at least have everything that is confirmed from a position on.
    pub fn having(&self, position: Position) -> u32 {
        let begun = self.each().filter(|part| part.since <= position);
        begun.map(|part| part.receivers).max().unwrap_or(0)
    }

    /// From where on more of them have.
    pub fn next_after(&self, position: Position) -> Option<Position> {
        self.each().map(|part| part.since).find(|since| *since > position)
    }

    /// The same with those of these parts that say something of these receivers: each has to be true by itself.
    #[must_use]
    pub fn with_parts<const N: usize>(self, mut parts: [Part; N]) -> Self {
        Self { parts: Parts::of(&mut parts, self.all(), 0), ..self }
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        self.and_above(other, 0)
    }

    /// Both together, where nobody asks for what lies below `floor`.
    pub(crate) fn and_above(self, other: Self, floor: Position) -> Self {
        let mut both = Self {
            receivers: self.receivers.saturating_add(other.receivers),
            left: self.left.saturating_add(other.left),
            lost: self.lost.saturating_add(other.lost),
            since: self.since.max(other.since),
            parts: Parts::default(),
        };
        if self.since == other.since && self.parts == other.parts && self.parts == both.parts {
            return both;
        }
        let (mut facts, mut len) = ([Part::default(); MOST_OF_TWO], 0);
        for Part { since, .. } in self.each().chain(other.each()) {
            facts[len] = Part { since, receivers: self.having(since).saturating_add(other.having(since)) };
            len += 1;
        }
        both.parts = Parts::of(&mut facts[..len], both.all(), floor);
        both
    }

    /// The same when none of these receivers gets what lies below `to`.
    #[must_use]
    pub fn behind(self, to: Position) -> Self {
        if self.receivers == 0 {
            // Whoever comes says what it has.
            return self;
        }
        let (mut facts, mut len) = ([Part::default(); MOST_PARTS], 0);
        for part in self.parts.iter() {
            facts[len] = Part { since: part.since.max(to), ..part };
            len += 1;
        }
        let behind = Self { since: self.since.max(to), ..self };
        Self { parts: Parts::of(&mut facts[..len], behind.all(), 0), ..behind }
    }

    /// Whether somebody has joined since `before` was told: then there may be less that all of them have than was told
    /// of those who were there, or of nobody.
    pub fn joined(self, before: Self) -> bool {
        let all = |count: Self| count.receivers.saturating_add(count.left);
        all(self) > all(before)
    }

    /// The same when all of these receivers have gone.
    pub fn gone(self) -> Self {
        let left = self.left.saturating_add(self.receivers);
        Self { left, lost: self.lost, ..Self::default() }
    }

    fn all(&self) -> Part {
        Part { since: self.since, receivers: self.receivers }
    }

    fn each(&self) -> impl Iterator<Item = Part> + use<> {
        self.parts.iter().chain([self.all()])
    }
}

pub(super) fn encode_count(w: &mut Writer, count: &Count) {
    w.u32(count.receivers).u32(count.left).u32(count.lost).u64(count.since);
    w.u8(count.parts.iter().count() as u8);
    for part in count.parts.iter() {
        w.u64(part.since).u32(part.receivers);
    }
}

pub(super) fn decode_count(r: &mut Reader<'_>) -> Result<Count, FieldError> {
    let (receivers, left, lost, since) = (r.u32()?, r.u32()?, r.u32()?, r.u64()?);
    let count = Count { receivers, left, lost, since, ..Count::default() };
    let number = usize::from(r.u8()?);
    let mut parts = [Part::default(); MOST_PARTS];
    for part in parts.get_mut(..number).ok_or(FieldError::value("parts", number as u64))? {
        *part = Part { since: r.u64()?, receivers: r.u32()? };
    }
    let count = count.with_parts(parts);
    // Each says more than the one before, and less than all: nothing of it goes.
    match count.parts.iter().eq(parts.into_iter().take(number)) {
        true => Ok(count),
        false => Err(FieldError::value("parts", number as u64)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A receiver of which everything from a position on is there, or several that hand on to others; some of it was
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
        fn count(&self, floor: Position) -> Count {
            match self {
                Self::End(since) => Count { since: *since, ..Count::ONE },
                Self::Several(trees, skipped_to) => {
                    let all = trees.iter().map(|tree| tree.count(floor));
                    let count = all.fold(Count::default(), |all, count| all.and_above(count, floor));
                    count.behind(*skipped_to)
                }
            }
        }

        fn ends(&self, skipped_to: Position) -> Vec<Position> {
            match self {
                Self::End(since) => vec![(*since).max(skipped_to)],
                Self::Several(trees, to) => {
                    trees.iter().flat_map(|tree| tree.ends(skipped_to.max(*to))).collect()
                }
            }
        }
    }

    proptest! {
        /// Against each receiver's own position: never more than have it.
        #[test]
        fn no_more_are_counted_than_have_it(tree in tree(60), floor in 0_u64..60) {
            let (count, ends) = (tree.count(floor), tree.ends(0));
            prop_assert_eq!(count.receivers as usize, ends.len());
            for position in 0..61 {
                let have = ends.iter().filter(|since| **since <= position).count();
                prop_assert!(count.having(position) as usize <= have, "{}: {:?} of {:?}", position, count, ends);
            }
            prop_assert_eq!(count.having(count.since), count.receivers);
        }

        /// Of few positions all are told.
        #[test]
        fn few_positions_are_told_exactly(tree in tree(MOST_PARTS as Position + 1)) {
            let (count, ends) = (tree.count(0), tree.ends(0));
            for position in 0..MOST_PARTS as Position + 2 {
                let have = ends.iter().filter(|since| **since <= position).count();
                prop_assert_eq!(count.having(position) as usize, have, "{}: {:?} of {:?}", position, count, ends);
                let next = count.next_after(position);
                prop_assert!(next.is_none_or(|next| next > position && count.having(next) > count.having(position)));
            }
        }
    }

    #[test]
    fn of_too_many_parts_those_stay_that_begin_first() {
        let parts = |floor| {
            let of = |since| Count { since, ..Count::ONE };
            let all = [0, 10, 500, 900, 950, 990, 999].map(of);
            let count = all.into_iter().fold(Count::default(), |all, count| all.and_above(count, floor));
            count.parts.iter().map(|part| (part.since, part.receivers)).collect::<Vec<_>>()
        };
        assert_eq!(parts(0), [(0, 1), (10, 2), (500, 3), (900, 4)]);
        // Of what is confirmed already nobody asks.
        assert_eq!(parts(500), [(500, 3), (900, 4), (950, 5), (990, 6)]);
    }
}
