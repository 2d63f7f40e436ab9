//! What a CREDIT says, and what is asked for.
//!
//! ```text
//!    consumed     delivered      landed        sent          a log, positions growing to the right
//!  ─────┼────────────┼─────────────┼────────────┼──────▶
//!  given│  with every│  only in the│  under way │
//!  back │  last one  │  receiver's │            │
//!       │  of a chain│  memory     │            │
//! ```
//!
//! The three are minima over everybody below: a receiver that hands on what it gets (a splice) tells what all of its
//! own receivers have told. So they are true through any chain, and one CREDIT costs the same however long it is.

use super::coverage::Coverage;
use crate::types::{ConfirmLevel, Position};

/// For whom a subscription speaks, as its sender knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerCoverage {
    /// As the receiver told last.
    pub told: Coverage,
    /// How often the sender skipped a range.
    pub skips: u32,
    /// Where the last one ended.
    pub skipped_to: Position,
}

impl PeerCoverage {
    /// Both together.
    pub fn count(&self) -> Coverage {
        let coverage = self.told.behind(self.skipped_to);
        Coverage { lost: coverage.lost.saturating_add(self.skips), ..coverage }
    }

    /// The receiver does not get what lies below `to`.
    pub fn skip(&mut self, to: Position) {
        self.skips = self.skips.saturating_add(1);
        self.skipped_to = self.skipped_to.max(to);
    }
}

/// The positions of a CREDIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit {
    /// Everything below is in this end's memory.
    pub landed: Position,
    /// Everything below is in the memory of every receiver at the end of a chain.
    pub delivered: Position,
    /// Everything below was given back by every such receiver.
    pub consumed: Position,
    /// The sender may write up to here.
    pub grant: Position,
    /// For whom `delivered` and `consumed` speak.
    pub coverage: Coverage,
}

impl Credit {
    /// What is confirmed, by [`ConfirmLevel`].
    pub fn levels(&self) -> [Position; 3] {
        [self.landed, self.delivered, self.consumed]
    }

    /// The part of it that speaks of what lies below `to`.
    #[must_use]
    pub fn up_to(self, to: Position) -> Self {
        let [landed, delivered, consumed] = self.levels().map(|position| position.min(to));
        Self { landed, delivered, consumed, ..self }
    }
}

/// Positions that somebody waits for and that were not reached: the smallest and the largest. Those between are asked
/// for again when the smallest was reached: that bounds what is kept, and nobody waits longer than a way there and back.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    first: Position,
    last: Position,
}

impl Asked {
    /// Somebody waits for `position`; everything up to `reached` needs no waiting.
    pub fn add(&mut self, position: Position, reached: Position) {
        if position <= reached {
            return;
        }
        (self.first, self.last) = match self.next(reached) {
            None => (position, position),
            Some(first) => (first.min(position), self.last.max(position)),
        };
    }

    /// The smallest that is waited for beyond what was reached.
    pub fn next(&self, reached: Position) -> Option<Position> {
        [self.first, self.last].into_iter().find(|position| *position > reached)
    }

    /// The largest that was ever waited for.
    pub fn last(&self) -> Position {
        self.last
    }
}

/// Positions asked for, by [`ConfirmLevel`].
pub type AskedLevels = [Asked; ConfirmLevel::ALL.len()];

/// Why a CREDIT is nonsense: the fault of the receiver that sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreditError {
    /// It claims to have what was never sent.
    #[error("credit says that {landed} landed, but only {sent} was sent")]
    LandedAheadOfSent {
        /// Claimed.
        landed: Position,
        /// Sent.
        sent: Position,
    },
    /// It claims to have handed on what did not land.
    #[error("credit says that {delivered} was delivered, but only {landed} landed")]
    DeliveredAheadOfLanded {
        /// Claimed.
        delivered: Position,
        /// Landed.
        landed: Position,
    },
    /// It claims to have consumed what was not delivered.
    #[error("credit says that {consumed} was consumed, but only {delivered} was delivered")]
    ConsumedAheadOfDelivered {
        /// Claimed.
        consumed: Position,
        /// Delivered.
        delivered: Position,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the plain set of all that was asked for.
        #[test]
        fn the_smallest_and_the_largest_are_kept(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..50), 0..40),
        ) {
            let (mut asked, mut all, mut reached) = (Asked::default(), std::collections::BTreeSet::new(), 0);
            for (asks, value) in steps {
                if asks {
                    asked.add(value, reached);
                    all.insert(value);
                } else {
                    reached = reached.max(value);
                }
                let beyond: Vec<u64> = all.range(reached + 1..).copied().collect();
                // What lay between may be forgotten, the largest never.
                prop_assert_eq!(asked.next(reached).is_some(), !beyond.is_empty());
                if let Some(next) = asked.next(reached) {
                    prop_assert!(beyond.contains(&next));
                    prop_assert_eq!(Some(&asked.last()), beyond.last());
                }
                if asks && value > reached {
                    prop_assert!(asked.next(reached) <= Some(value));
                }
            }
        }
    }
}
