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

use rocketring::Ring;

use super::Outbound;
use crate::types::Position;

/// What a sender remembers of a receiver that grants on demand.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The first CREDIT granted nothing, or a grant was called back.
    on: bool,
    /// The largest position asked for since.
    asked: Position,
}

impl Lent {
    /// The first CREDIT came.
    pub(super) fn begin(&mut self, grants_nothing: bool) {
        self.on = grants_nothing;
    }
}

impl Outbound {
    /// Up to where to ask for credit (ASK, as `landed`): the receiver gives it on demand, and there are whole deliveries
    /// beyond what it granted that it was not asked for.
    pub fn ask_for_more(&mut self, log: &Ring) -> Option<Position> {
        let known = self.sent.max(self.grant);
        let boundary = log.boundary();
        if !self.lent.on
            || self.ended
            || self.sent < self.grant
            || boundary <= known
            || self.lent.asked > known
        {
            return None;
        }
        self.lent.asked = boundary;
        Some(boundary)
    }

    /// The end of a delivery at which a transfer that could reach `reach` is to end, if one is known.
    pub(super) fn end_to_tell(&self, log: &Ring, reach: Position) -> Option<Position> {
        let (from, asked) = (self.sent, self.lent.asked);
        // An end that was asked for, which the log may know no more: the receiver may have room for no later one.
        let asked = (from < asked && asked <= reach).then_some(asked);
        if self.inside {
            // The first known end is told: passing over it for a later one would make the distance between told ends
            // grow with every hop of a chain, until a ring of twice the largest delivery holds none.
            let first = log.boundary_at_or_after(from.saturating_add(1)).filter(|end| *end <= reach);
            return first.into_iter().chain(asked).min();
        }
        log.boundary_at_or_before(reach).filter(|end| *end > from).max(asked)
    }

    /// RECALL: what is left of the grant goes back, but for what was asked for: that is here and comes. Returns where the
    /// grant ends now.
    pub fn on_recall(&mut self) -> Position {
        self.grant = self.grant.min(self.sent.max(self.lent.asked));
        // Whatever was asked for beyond that is asked for again.
        let asked = if self.lent.asked > self.grant { 0 } else { self.lent.asked };
        self.lent = Lent { on: true, asked };
        self.grant
    }

    /// Whether only the receiver says what landed: of one that grants on demand, whole deliveries.
    pub(super) fn is_lent(&self) -> bool {
        self.lent.on
    }
}
