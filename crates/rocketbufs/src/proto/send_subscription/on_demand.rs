//! Credit on demand: a receiver that has one budget for many subscriptions gives none before there is data for it.
//!
//! ```text
//!   sender                                        receiver
//!     ◀── CREDIT, grant = start ────────────────────  the first grants nothing: credit comes on demand
//!     ─── ASK, landed = boundary ───────────────────▶  there are whole deliveries up to here
//!     ◀── CREDIT, grant ────────────────────────────  a part of the budget became a ring
//!     ─── data … ───────────────────────────────────▶
//!     ◀── RECALL ───────────────────────────────────  others need it, or nothing came for long
//!     ─── RECALLED, at = sent ──────────────────────▶  of the grant nothing is left
//! ```
//!
//! Asked for are whole deliveries, never parts: what was granted then comes without anybody else's doing, so a receiver
//! that gives each subscription what it asked for cannot be left with beginnings whose rest has no room. When the
//! connection is lost such a receiver drops the begin of a delivery that it has, and so tells as landed whole ones only.

use crate::types::Position;

/// What a sender remembers of a receiver that gives credit on demand.
#[derive(Debug, Default)]
pub(super) struct OnDemandCredit {
    /// The first CREDIT granted nothing, or a grant was recalled.
    active: bool,
    /// The largest position asked for since.
    asked: Position,
}

impl OnDemandCredit {
    /// The first CREDIT came.
    pub(super) fn begin(&mut self, grants_nothing: bool) {
        self.active = grants_nothing;
    }

    /// Whether only the receiver says what landed: a receiver that grants on demand counts whole deliveries.
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Up to where to ask for credit, with whole deliveries up to `boundary`; none if nothing was to be asked, or the
    /// receiver was asked already.
    pub(super) fn next_request(
        &mut self,
        boundary: Position,
        sent: Position,
        grant: Position,
    ) -> Option<Position> {
        let known = sent.max(grant);
        if !self.active || sent < grant || boundary <= known || self.asked > known {
            return None;
        }
        self.asked = boundary;
        Some(boundary)
    }

    /// The end of a delivery that was asked for, if it lies in `(from, reach]`. The log may have forgotten that end, and the
    /// receiver may have room for no later one.
    pub(super) fn end_within(&self, from: Position, reach: Position) -> Option<Position> {
        (from < self.asked && self.asked <= reach).then_some(self.asked)
    }

    /// RECALL: takes back what is left of `grant`, except what was asked for. Returns the grant that remains.
    pub(super) fn recall(&mut self, grant: Position, sent: Position) -> Position {
        let grant = grant.min(sent.max(self.asked));
        // Positions asked for beyond the grant are asked for again.
        let asked = if self.asked > grant { 0 } else { self.asked };
        *self = Self { active: true, asked };
        grant
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_boundary_is_asked_for_once() {
        let mut credit = OnDemandCredit::default();
        assert_eq!(credit.next_request(10, 0, 0), None, "the receiver grants by itself");
        credit.begin(true);
        assert_eq!(credit.next_request(10, 0, 0), Some(10));
        assert_eq!(credit.next_request(20, 0, 0), None, "the answer to the first question is under way");
        assert_eq!(credit.next_request(20, 4, 10), None, "the grant is not used up");
        assert_eq!(credit.next_request(20, 10, 10), Some(20));
    }

    #[test]
    fn a_recall_leaves_what_was_asked_for() {
        let mut credit = OnDemandCredit::default();
        credit.begin(true);
        assert_eq!(credit.next_request(10, 0, 0), Some(10));
        assert_eq!(credit.recall(30, 4), 10);
        assert_eq!((credit.end_within(4, 12), credit.end_within(10, 12)), (Some(10), None));
        assert_eq!(credit.recall(8, 4), 8);
        assert_eq!(credit.next_request(20, 8, 8), Some(20), "what lay beyond the grant is asked for again");
    }
}
