//! What a subscription holds in the log, and why the hold never stops a writer for good.
//!
//! ```text
//!        needed          whole   delivered             head         a log, positions growing to the right
//!  ────────┼───────────────┼─────────┼───────────────────┼──────▶
//!          │ history of a  │ part of │ not yet with every│
//!          │ peer that maps│ one     │ last receiver     │
//! ```
//!
//! Undelivered data is held from the start of a delivery, since part of one is of no use to a receiver that
//! gets it again. A peer that maps the ring also holds its own history further back, at most half of the
//! ring. The history is never rounded down to the start of a delivery: the rounding would last while nothing
//! is written, and with the largest delivery before that position the writer would never have room for
//! another one. The other two positions move without the writer: when everything has been delivered, `whole`
//! is the head.

use rocketring::Ring;

use super::cursor::SendCursor;
use crate::types::{Policy, Position, ProgressLevel};

impl SendCursor {
    /// Returns the position that this subscription holds in the log, if it holds one.
    pub fn holds_at(&self) -> Option<Position> {
        match self.config.policy {
            Policy::Overwrite => None,
            _ if self.config.keep_until_delivered => Some(self.delivered.min(self.needed())),
            // Data that was given to the transport is copied when the hold is given up, so `landed` counts
            // for all.
            Policy::Block | Policy::Drop | Policy::Disconnect => Some(self.needed()),
        }
    }

    /// Like [`SendCursor::holds_at`], but data that may be sent again is held from the start of a delivery.
    /// `None` also if that start is not known.
    pub fn holds_whole(&self, log: &Ring) -> Option<Position> {
        let at = self.holds_at()?;
        if self.config.keep_until_delivered { Some(self.resume_boundary(log)?.min(at)) } else { Some(at) }
    }

    /// Returns the last known end of a delivery that the receiver will not be sent again if it resumes
    /// without its data.
    pub fn resume_boundary(&self, log: &Ring) -> Option<Position> {
        log.boundary_at_or_before(if self.config.keep_until_delivered { self.delivered } else { self.landed })
    }

    /// Returns the level to ask a receiver that maps the ring for besides `landed`, when the writer waits
    /// although all sent data has landed. The receiver's need depends on readers that map the ring
    /// downstream. Each hop may defer up to a quarter of its window of credit, so ask for `consumed` too:
    /// once every reader has released everything and reported so, each reported need is exact.
    pub(super) fn level_of_room(&self) -> Option<ProgressLevel> {
        (self.config.maps.is_some() && self.map_floor < self.landed && !self.ended)
            .then_some(ProgressLevel::Consumed)
    }
}
