//! What a subscription holds in the log, and why that never stops a writer for good.
//!
//! ```text
//!        needed          whole   delivered             head         a log, positions growing to the right
//!  ────────┼───────────────┼─────────┼───────────────────┼──────▶
//!          │ history of a  │ part of │ not yet with every│
//!          │ peer that maps│ one     │ last receiver     │
//! ```
//!
//! What was not delivered is kept whole, from where a delivery begins: part of one is of no use to whoever gets it again.
//! What lies further back a peer keeps of its own accord, where it maps the ring: its history, which is at most half of the
//! ring. That is never rounded down to where a delivery begins. It would be rounded for as long as nothing is written, and
//! with the largest delivery before that place the writer had no room for another one, ever. The other two move without
//! the writer: when everything has been delivered, `whole` is the head.

use rocketring::Ring;

use super::Outbound;
use crate::types::{ConfirmLevel, Policy, Position};

impl Outbound {
    /// The place that this subscription holds in the log, or none if it does not hold.
    pub fn holds_at(&self) -> Option<Position> {
        match self.config.policy {
            Policy::Overwrite => None,
            _ if self.config.keep_until_delivered => Some(self.delivered.min(self.needed())),
            // What was given to the transport is copied when the place is given up, so `landed` counts for all.
            Policy::Block | Policy::Drop | Policy::Disconnect => Some(self.needed()),
        }
    }

    /// As [`Outbound::holds_at`], with what is kept to be sent again kept whole. None also if it is not known where.
    pub fn holds_whole(&self, log: &Ring) -> Option<Position> {
        let at = self.holds_at()?;
        if self.config.keep_until_delivered { Some(self.whole(log)?.min(at)) } else { Some(at) }
    }

    /// Where the last delivery ends, of those known, that the receiver will not be sent again if it comes back without what
    /// it has.
    pub fn whole(&self, log: &Ring) -> Option<Position> {
        log.boundary_at_or_before(if self.config.keep_until_delivered { self.delivered } else { self.landed })
    }

    /// What else to ask of one that maps the ring when the writer waits, although all that was sent has landed. What it
    /// needs of it depends on those who map it behind it, and each of them may leave a part of a quarter untold. When all of
    /// them have given everything back, and said so, what each says that it needs is what it needs.
    pub(super) fn level_of_room(&self) -> Option<ConfirmLevel> {
        (self.config.maps.is_some() && self.kept < self.landed && !self.ended)
            .then_some(ConfirmLevel::Consumed)
    }

    /// The receiver has its own copy of everything below, or needs it no more.
    pub(super) fn needed(&self) -> Position {
        if self.config.maps.is_some() { self.kept } else { self.landed }
    }
}
