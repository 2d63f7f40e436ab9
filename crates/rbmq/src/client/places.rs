//! How far a subscriber has come in logs that it is not subscribed to now.

use std::collections::{HashMap, VecDeque};

use rocketbufs::{Epoch, Position};

/// Logs that are remembered, besides those that the application named. Their publishers are gone or their broker is; one
/// that comes back after so many others is received from its oldest byte.
const MAX_LEFT: usize = 65_536;

/// Positions by log. Those where logs were left are bounded: the ones left first are forgotten first.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: HashMap<Epoch, Position>,
    left: VecDeque<Epoch>,
}

impl Places {
    /// The application knows where it is in these.
    pub(super) fn give(&mut self, positions: &[(Epoch, Position)]) {
        self.all.extend(positions.iter().copied());
    }

    /// A log was left at a position.
    pub(super) fn leave(&mut self, epoch: Epoch, position: Position) {
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

    pub(super) fn get(&self, epoch: Epoch) -> Option<Position> {
        self.all.get(&epoch).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_first_is_forgotten_first_and_what_was_given_never() {
        let mut places = Places::default();
        places.give(&[(Epoch(u128::MAX), 7)]);
        for n in 0..MAX_LEFT as u128 + 2 {
            places.leave(Epoch(n), 1);
            places.leave(Epoch(n), 2);
        }
        let at = |n: u128| places.get(Epoch(n));
        assert_eq!([at(u128::MAX), at(0), at(1), at(2)], [Some(7), None, None, Some(2)]);
        assert_eq!(places.all.len(), MAX_LEFT + 1);
    }
}
