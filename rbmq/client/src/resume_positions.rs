//! Positions at which a subscriber resumes logs that it is not subscribed to now.

use std::collections::{HashMap, VecDeque};

use rocketbufs::{Epoch, Position};

/// The most logs that are remembered, without those that the application named. Their publishers or their broker are gone. A
/// log that returns after so many others is received from its oldest byte.
const MAX_LEFT: usize = 65_536;

/// The position up to which a subscriber has received a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResumePosition {
    /// The position to resume at.
    pub(super) position: Position,
    /// Everything between this position and `position` was received.
    pub(super) covered_from: Position,
}

impl ResumePosition {
    /// The place at which a log is left. `covered_from` has where the subscription of each log began.
    pub(super) fn left_at(
        covered_from: &mut HashMap<Epoch, Position>,
        epoch: Epoch,
        position: Position,
    ) -> Self {
        Self { position, covered_from: covered_from.remove(&epoch).unwrap_or(position) }
    }
}

/// Resume positions by log. The number of logs that were left is bounded: the oldest entry is forgotten first.
#[derive(Debug, Default)]
pub(super) struct ResumePositions {
    all: HashMap<Epoch, ResumePosition>,
    left: VecDeque<Epoch>,
}

impl ResumePositions {
    /// Adds positions that the application names. The application has everything before them.
    pub(super) fn add(&mut self, positions: &[(Epoch, Position)]) {
        let entry =
            |&(epoch, position): &(Epoch, Position)| (epoch, ResumePosition { position, covered_from: 0 });
        self.all.extend(positions.iter().map(entry));
    }

    /// The subscriber leaves a log.
    pub(super) fn leave(&mut self, epoch: Epoch, position: ResumePosition) {
        if self.all.insert(epoch, position).is_some() {
            return;
        }
        self.left.push_back(epoch);
        if self.left.len() > MAX_LEFT
            && let Some(first) = self.left.pop_front()
        {
            self.all.remove(&first);
        }
    }

    /// Forgets a log.
    pub(super) fn remove(&mut self, epoch: Epoch) {
        if self.all.remove(&epoch).is_some() {
            self.left.retain(|left| *left != epoch);
        }
    }

    pub(super) fn get(&self, epoch: Epoch) -> Option<ResumePosition> {
        self.all.get(&epoch).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_log_is_forgotten_first_and_named_ones_never() {
        let mut positions = ResumePositions::default();
        positions.add(&[(Epoch(u128::MAX), 7)]);
        for n in 0..MAX_LEFT as u128 + 2 {
            positions.leave(Epoch(n), ResumePosition { position: 1, covered_from: 0 });
            positions.leave(Epoch(n), ResumePosition { position: 2, covered_from: 1 });
        }
        let at = |n: u128| positions.get(Epoch(n)).map(|entry| entry.position);
        assert_eq!([at(u128::MAX), at(0), at(1), at(2)], [Some(7), None, None, Some(2)]);
        assert_eq!(positions.all.len(), MAX_LEFT + 1);
    }
}
