//! Rings without flow control: how far the sender is ahead of the bytes that the peer has handled.
//!
//! ```text
//!   handled, as reported      written, not handled             next piece
//!   ──────────────────────────┤ 7 ────┤ 8 ────┤ 9 ────────┤ ─ ─ ─ ─ ─ ┤
//!                             └─────── at most the capacity ──────────┘
//! ```
//!
//! The peer grants nothing, and bytes that are overwritten before they are handled are lost. The peer reports how many
//! receives it has posted again, and posts a receive after handling the bytes that used it: so the totals of
//! [`Receives`](crate::receives::Receives) show how far the peer is. The sender asks when half the capacity is used up.

use std::collections::{HashMap, VecDeque};

use rocketnet::WireId;
use rocketring::Position;

/// The pieces that the peer has not handled, by id. Ids without such pieces have no entry.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    pieces: HashMap<WireId, Pieces>,
    handled: u32,
}

#[derive(Debug, Default)]
struct Pieces {
    /// For each piece the number of receives used so far, and where the piece begins.
    posted: VecDeque<(u32, Position)>,
    asked: bool,
}

impl Ahead {
    /// Where the unhandled bytes begin.
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

    /// The peer has handled the bytes that used this many receives.
    pub fn handled(&mut self, total: u32) {
        if std::mem::replace(&mut self.handled, total) == total {
            return;
        }
        // Totals wrap; the pieces in flight are far fewer than half of the values.
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
    fn unhandled_entries_stay_within_the_capacity() {
        let mut ahead = Ahead::default();
        let start = u32::MAX - 1;
        ahead.handled(start);
        for piece in 0..4_u64 {
            assert!(ahead.fits(1, (piece + 1) * 25, 100));
            ahead.posted(1, start.wrapping_add(piece as u32 + 1), piece * 25);
            assert_eq!(ahead.should_ask(1, (piece + 1) * 25, 100), piece >= 2);
        }
        assert!(!ahead.fits(1, 101, 100) && ahead.fits(2, 101, 100));
        ahead.asked(1);
        assert!(ahead.is_asked(1) && !ahead.should_ask(1, 100, 100));
        ahead.handled(start.wrapping_add(2));
        assert!(ahead.fits(1, 150, 100) && !ahead.fits(1, 151, 100) && !ahead.is_asked(1));
        // After a hole all earlier bytes must have been handled.
        assert!(!ahead.fits(1, 1_000, 100));
        ahead.handled(start.wrapping_add(4));
        assert!(ahead.fits(1, 1_000, 100) && ahead.pieces.is_empty());
    }
}
