//! Rings without flow control: how far the sender is ahead of what the peer has looked at.
//!
//! ```text
//!   looked at, as told        written, not looked at           next piece
//!   ──────────────────────────┤ 7 ────┤ 8 ────┤ 9 ────────┤ ─ ─ ─ ─ ─ ┤
//!                             └─────── at most the capacity ──────────┘
//! ```
//!
//! Nobody grants anything there, and what is written a second time before it was looked at is worth nothing. The peer
//! tells how many receives it has posted again, and does so after looking at what used them: so the totals of
//! [`Receives`](crate::receives::Receives) say how far it is. It is asked when half the capacity is used up.

use std::collections::{HashMap, VecDeque};

use rocketnet::WireId;
use rocketring::Position;

/// What the peer has not looked at, of each id. Ids of which it has looked at everything take no place.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pieces: HashMap<WireId, Pieces>,
    looked_at: u32,
}

#[derive(Debug, Default)]
struct Pieces {
    /// How many receives were used up to each piece, and where it begins.
    posted: VecDeque<(u32, Position)>,
    asked: bool,
}

impl Ahead {
    /// Where what is not looked at begins.
    fn begin(&self, wire: WireId) -> Option<Position> {
        Some(self.pieces.get(&wire)?.posted.front()?.1)
    }

    /// Whether a piece that ends there can be written into a ring of this capacity.
    pub fn fits(&self, wire: WireId, to: Position, capacity: u64) -> bool {
        self.begin(wire).is_none_or(|begin| to.saturating_sub(begin) <= capacity)
    }

    /// A piece was posted, which used the receive of this number.
    pub fn posted(&mut self, wire: WireId, used: u32, at: Position) {
        self.pieces.entry(wire).or_default().posted.push_back((used, at));
    }

    /// Whether it is time to ask the peer how far it is.
    pub fn should_ask(&self, wire: WireId, to: Position, capacity: u64) -> bool {
        !self.is_asked(wire) && !self.fits(wire, to, capacity / 2)
    }

    pub fn asked(&mut self, wire: WireId) {
        self.pieces.entry(wire).or_default().asked = true;
    }

    pub fn is_asked(&self, wire: WireId) -> bool {
        self.pieces.get(&wire).is_some_and(|pieces| pieces.asked)
    }

    /// The peer has looked at what used so many receives.
    pub fn looked_at(&mut self, total: u32) {
        if std::mem::replace(&mut self.looked_at, total) == total {
            return;
        }
        // Totals wrap; what is under way is far less than half of them.
        let is_seen = |used: u32| total.wrapping_sub(used) < 1 << 31;
        self.pieces.retain(|_, pieces| {
            while pieces.posted.pop_front_if(|(used, _)| is_seen(*used)).is_some() {
                pieces.asked = false;
            }
            !pieces.posted.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_looked_at_stays_within_the_capacity() {
        let mut ahead = Ahead::default();
        let start = u32::MAX - 1;
        ahead.looked_at(start);
        for piece in 0..4_u64 {
            assert!(ahead.fits(1, (piece + 1) * 25, 100));
            ahead.posted(1, start.wrapping_add(piece as u32 + 1), piece * 25);
            assert_eq!(ahead.should_ask(1, (piece + 1) * 25, 100), piece >= 2);
        }
        assert!(!ahead.fits(1, 101, 100) && ahead.fits(2, 101, 100));
        ahead.asked(1);
        assert!(ahead.is_asked(1) && !ahead.should_ask(1, 100, 100));
        ahead.looked_at(start.wrapping_add(2));
        assert!(ahead.fits(1, 150, 100) && !ahead.fits(1, 151, 100) && !ahead.is_asked(1));
        // After a hole all of what was before it must have been looked at.
        assert!(!ahead.fits(1, 1_000, 100));
        ahead.looked_at(start.wrapping_add(4));
        assert!(ahead.fits(1, 1_000, 100) && ahead.pieces.is_empty());
    }
}
