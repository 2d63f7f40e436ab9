//! Credit on demand: a receiver with one budget for many subscriptions grants nothing before there is data.
//!
//! ```text
//!   sender                                        receiver
//!     ◀── CREDIT, grant = start ────────────────────  the first grants nothing: credit comes on demand
//!     ─── ASK, landed = boundary ───────────────────▶  there are whole deliveries up to here
//!     ◀── CREDIT, grant ────────────────────────────  a part of the budget became a ring
//!     ─── data … ───────────────────────────────────▶
//!     ◀── RECALL ───────────────────────────────────  others need it, or nothing arrived for long
//!     ─── RECALLED, at = sent ──────────────────────▶  the rest of the grant is void
//! ```
//!
//! Whole deliveries are asked for, never parts. Granted data then arrives without any further condition, so a
//! receiver that grants each subscription what it asked for is never left with starts of deliveries whose
//! rest has no room. When the connection is lost such a receiver drops an incomplete delivery, and so reports
//! only whole ones as landed.

use crate::ground::types::Position;

/// The sender's state of a receiver that grants on demand.
#[derive(Debug, Default)]
pub(super) struct OnDemandCredit {
    /// Whether the first CREDIT granted nothing, or a grant was recalled.
    active: bool,
    /// The largest position that was asked for since.
    asked: Position,
}

impl OnDemandCredit {
    /// Handles the first CREDIT.
    pub(super) fn begin(&mut self, grants_nothing: bool) {
        self.active = grants_nothing;
    }

    /// Returns whether only the receiver reports landed bytes: a receiver that grants on demand counts whole
    /// deliveries.
    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    /// Returns the position up to which to ask for credit, with whole deliveries up to `boundary`. `None` if
    /// there is nothing to ask for, or the receiver was asked already.
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

    /// Returns the end of a delivery that was asked for, if it is in `(from, reach]`. The log may have
    /// forgotten that end, and the receiver may have no room for a later one.
    pub(super) fn end_within(&self, from: Position, reach: Position) -> Option<Position> {
        (from < self.asked && self.asked <= reach).then_some(self.asked)
    }

    /// Handles RECALL: withdraws the rest of `grant`, except for data that was asked for. Returns the
    /// remaining grant.
    pub(super) fn recall(&mut self, grant: Position, sent: Position) -> Position {
        let grant = grant.min(sent.max(self.asked));
        // Positions beyond the grant are asked for again.
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
