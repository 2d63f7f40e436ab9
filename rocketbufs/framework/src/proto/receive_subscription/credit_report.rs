//! When a receiver reports its positions with CREDIT.
//!
//! A CREDIT has absolute positions: what landed, how far it is confirmed, and how far the sender may write. A
//! CREDIT is due when one of them has moved by a quarter of the window since the last CREDIT, when a position
//! that the sender asked for is reached, or when receivers joined or left. The window is the smaller of the
//! two rings, so that a sender with the smaller ring does not run out of credit.

use crate::ground::planted;
use crate::ground::types::Position;
use crate::proto::coverage::Coverage;
use crate::proto::credit::{Asked, AskedLevels, Credit};

/// The last CREDIT of a subscription, and the positions that its sender waits for.
#[derive(Debug, Clone)]
pub struct CreditReport {
    quarter: u64,
    told: Credit,
    asked: AskedLevels,
}

impl CreditReport {
    /// Creates the report of a subscription that begins at `start`. `window`: the smaller of the two rings' capacities for
    /// bytes in flight.
    pub fn new(start: Position, window: u64) -> Self {
        let coverage = Coverage::default();
        let told = Credit { landed: start, delivered: start, consumed: start, grant: start, coverage };
        Self { quarter: (window / 4).max(1), told, asked: AskedLevels::default() }
    }

    /// Returns the last CREDIT.
    pub fn told(&self) -> Credit {
        self.told
    }

    /// Returns the step, in bytes, after which a position is reported again.
    pub fn quarter(&self) -> u64 {
        self.quarter
    }

    /// Withdraws the unused grant, after RECALLED or a lost connection.
    pub fn take_back(&mut self, grant: Position) {
        self.told.grant = grant;
    }

    /// Handles ASK: CREDIT is due as soon as one of these positions is reached.
    pub fn on_ask(&mut self, wanted: [Position; 3]) {
        for ((asked, wanted), told) in self.asked.iter_mut().zip(wanted).zip(self.told.levels()) {
            asked.add(wanted, told);
        }
    }

    /// Returns whether the sender waits for a position that was not reported yet.
    pub fn is_asked(&self) -> bool {
        self.asked.iter().zip(self.told.levels()).any(|(asked, told)| asked.next(told).is_some())
    }

    /// Returns the CREDIT for the present positions if it is due, and records it as sent.
    pub fn credit(&mut self, now: Credit) -> Option<Credit> {
        if !self.is_due(&now) {
            return None;
        }
        self.tell(now)
    }

    /// Returns whether a CREDIT is due for the present positions.
    pub fn is_due(&self, now: &Credit) -> bool {
        let (levels, told) = (now.levels(), self.told.levels());
        let reached = |n: usize| self.asked[n].next(told[n]).is_some_and(|asked| levels[n] >= asked);
        let far = |now: Position, told: Position| now.saturating_sub(told) >= self.quarter;
        if planted::is(planted::CREDIT_LATE) {
            return now.grant.saturating_sub(self.told.grant) >= 5 * self.quarter;
        }
        (0..levels.len()).any(|n| reached(n) || far(levels[n], told[n]))
            || far(now.grant, self.told.grant)
            || now.coverage != self.told.coverage
    }

    /// Returns whether more has landed or was consumed than was reported.
    pub fn is_further(&self, now: &Credit) -> bool {
        now.landed > self.told.landed || now.consumed > self.told.consumed
    }

    /// Returns whether more was delivered or consumed than was reported, asked for or not.
    pub fn confirms_more(&self, now: &Credit) -> bool {
        now.delivered > self.told.delivered || now.consumed > self.told.consumed
    }

    /// Returns whether a CREDIT could be due if no position is above `head`, the grant is not above `grant`,
    /// and the coverage is this. Cheaper than computing the positions.
    pub fn may_be_due(&self, head: Position, grant: Position, coverage: Coverage) -> bool {
        let told = self.told;
        let reached = |(asked, told): (&Asked, Position)| asked.next(told).is_some();
        let least = told.landed.min(told.delivered).min(told.consumed);
        self.asked.iter().zip(told.levels()).any(reached)
            || head.saturating_sub(least) >= self.quarter
            || grant.saturating_sub(told.grant) >= self.quarter
            || coverage != told.coverage
    }

    /// Returns a CREDIT for any change, due or not (after SUBSCRIBED and at a resume, so that the sender
    /// learns its first grant).
    pub fn tell(&mut self, now: Credit) -> Option<Credit> {
        let joined = now.coverage.joined(self.told.coverage);
        let level = |now: Position, told: Position| if joined { now } else { now.max(told) };
        let credit = Credit {
            landed: now.landed.max(self.told.landed),
            delivered: level(now.delivered, self.told.delivered),
            consumed: level(now.consumed, self.told.consumed),
            grant: now.grant.max(self.told.grant),
            coverage: now.coverage,
        };
        self.told = credit;
        Some(credit)
    }
}
