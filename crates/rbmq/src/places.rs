//! How far a subscriber has come in logs that it is not subscribed to now, and from where on it has them.

use std::collections::{HashMap, VecDeque};

use rocketbufs::{Epoch, Position};

/// Logs that are remembered, besides those that the application named. Their publishers are gone or their broker is; one
/// that comes back after so many others is received from its oldest byte.
const MAX_LEFT: usize = 65_536;

/// Where a log was left, and from where on everything of it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) position: Position,
    pub(super) since: Position,
}

/// Places by log. Those where logs were left are bounded: the ones left first are forgotten first.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: HashMap<Epoch, Place>,
    left: VecDeque<Epoch>,
}

impl Places {
    /// The application knows where it is in these, and has what lies before.
    pub(super) fn give(&mut self, positions: &[(Epoch, Position)]) {
        let place = |&(epoch, position): &(Epoch, Position)| (epoch, Place { position, since: 0 });
        self.all.extend(positions.iter().map(place));
    }

    /// A log was left.
    pub(super) fn leave(&mut self, epoch: Epoch, place: Place) {
        if self.all.insert(epoch, place).is_some() {
            return;
        }
        self.left.push_back(epoch);
        if self.left.len() > MAX_LEFT
            && let Some(first) = self.left.pop_front()
        {
            self.all.remove(&first);
        }
    }

    pub(super) fn get(&self, epoch: Epoch) -> Option<Place> {
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
            places.leave(Epoch(n), Place { position: 1, since: 0 });
            places.leave(Epoch(n), Place { position: 2, since: 1 });
        }
        let at = |n: u128| places.get(Epoch(n)).map(|place| place.position);
        assert_eq!([at(u128::MAX), at(0), at(1), at(2)], [Some(7), None, None, Some(2)]);
        assert_eq!(places.all.len(), MAX_LEFT + 1);
    }
}
