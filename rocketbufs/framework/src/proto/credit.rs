//! The positions of a CREDIT, and those that the sender asks for.
//!
//! ```text
//!    consumed     delivered      landed        sent          a log, positions growing to the right
//!  ─────┼────────────┼─────────────┼────────────┼──────▶
//!  given│  with every│  only in the│  in flight │
//!  back │  last one  │  receiver's │            │
//!       │  of a chain│  memory     │            │
//! ```
//!
//! The three are minima over all receivers downstream: a relay (a splice) reports what all of its own
//! receivers have reported. So they are true through any chain, and one CREDIT costs the same at any length.

use super::coverage::Coverage;
use crate::ground::types::{Position, ProgressLevel};

/// The receivers that a subscription speaks for, as its sender knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerCoverage {
    /// The coverage that the receiver reported last.
    pub told: Coverage,
    /// How often the sender skipped a range.
    pub skips: u32,
    /// The end of the last skipped range.
    pub skipped_to: Position,
}

impl PeerCoverage {
    /// Returns the reported coverage, reduced by the skipped ranges.
    pub fn count(&self) -> Coverage {
        let coverage = self.told.behind(self.skipped_to);
        Coverage { lost: coverage.lost.saturating_add(self.skips), ..coverage }
    }

    /// Records that the receiver does not get data below `to`.
    pub fn skip(&mut self, to: Position) {
        self.skips = self.skips.saturating_add(1);
        self.skipped_to = self.skipped_to.max(to);
    }
}

/// The positions of a CREDIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Credit {
    /// Bytes below this position are in this end's memory.
    pub landed: Position,
    /// Bytes below this position are in the memory of every last receiver of a chain.
    pub delivered: Position,
    /// Bytes below this position were released by all counted receivers.
    pub consumed: Position,
    /// The sender may write up to here.
    pub grant: Position,
    /// The receivers that `delivered` and `consumed` speak for.
    pub coverage: Coverage,
}

impl Credit {
    /// Returns the confirmed positions, by [`ProgressLevel`].
    pub fn levels(&self) -> [Position; 3] {
        [self.landed, self.delivered, self.consumed]
    }

    /// Returns the credit with its positions limited to `to`.
    #[must_use]
    pub fn up_to(self, to: Position) -> Self {
        let [landed, delivered, consumed] = self.levels().map(|position| position.min(to));
        Self { landed, delivered, consumed, ..self }
    }
}

/// The smallest and the largest waited-for position that was not reached. Positions between them are asked for again once
/// the smallest is reached. Two positions bound the state, and no call waits longer than one round trip more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    first: Position,
    last: Position,
}

impl Asked {
    /// Adds a position to wait for. Everything up to `reached` needs no waiting.
    pub fn add(&mut self, position: Position, reached: Position) {
        if position <= reached {
            return;
        }
        (self.first, self.last) = match self.next(reached) {
            None => (position, position),
            Some(first) => (first.min(position), self.last.max(position)),
        };
    }

    /// Returns the smallest waited-for position beyond `reached`.
    pub fn next(&self, reached: Position) -> Option<Position> {
        [self.first, self.last].into_iter().find(|position| *position > reached)
    }

    /// Returns the largest position that was ever waited for.
    pub fn last(&self) -> Position {
        self.last
    }
}

/// The positions asked for, by [`ProgressLevel`].
pub type AskedLevels = [Asked; ProgressLevel::ALL.len()];

/// Why a CREDIT is invalid, which is the fault of its receiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CreditError {
    /// The receiver claims data that was never sent.
    #[error("credit says that {landed} landed, but only {sent} was sent")]
    LandedAheadOfSent {
        /// Claimed.
        landed: Position,
        /// Sent.
        sent: Position,
    },
    /// The receiver claims delivery of data that did not land.
    #[error("credit says that {delivered} was delivered, but only {landed} landed")]
    DeliveredAheadOfLanded {
        /// Claimed.
        delivered: Position,
        /// Landed.
        landed: Position,
    },
    /// The receiver claims consumption of data that was not delivered.
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
        /// Compared with the plain set of all requests.
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
                // Positions between may be forgotten, the largest never.
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
