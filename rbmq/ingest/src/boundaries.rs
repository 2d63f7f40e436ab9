//! Where messages end: a few positions that a level is known to have between two messages.
//!
//! ```text
//!   overwritten │ first                                     head
//!   ────────────┼──────────·───────·───────·───────·─────────▶
//!      position ┘          └ the first boundary from there on: what the topic continues with, after a hole
//! ```
//!
//! The beginning of a ring that is overwritten lies inside of a message. So a reader that was overtaken needs a position to go on
//! from, and the head is always one.

use std::collections::VecDeque;

use multimqc::Offset;

/// Boundaries of one log, at least a part of the ring apart.
#[derive(Debug)]
pub(crate) struct Boundaries {
    at: VecDeque<Offset>,
    step: u64,
    most: usize,
}

impl Boundaries {
    /// For a ring of this many bytes.
    pub fn new(ring_bytes: u64) -> Self {
        let most = 64;
        Self { at: VecDeque::with_capacity(most), step: ring_bytes / most as u64, most }
    }

    /// Notes a head of the log.
    pub fn note(&mut self, head: Offset) {
        if self.at.back().is_none_or(|last| head >= last + self.step) {
            if self.at.len() == self.most {
                self.at.pop_front();
            }
            self.at.push_back(head);
        }
    }

    /// The first known boundary at or after `from`.
    pub fn after(&self, from: Offset) -> Option<Offset> {
        self.at.get(self.at.partition_point(|at| *at < from)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_boundary_is_found() {
        let mut boundaries = Boundaries::new(6400);
        (0..200).for_each(|n| boundaries.note(n * 60));
        assert_eq!(boundaries.after(0), Some(4320), "the oldest were forgotten");
        assert_eq!(boundaries.after(11_881), None);
        assert_eq!(boundaries.after(11_800), Some(11_880));
        assert_eq!(boundaries.after(11_880), Some(11_880));
    }
}
