//! One subscription at the receiver: when credit is due.
//!
//! A CREDIT tells absolute positions: what landed, how far it is confirmed, how far the sender may write. It goes out
//! when one of them moved by a quarter of the window since it was last told, or when the sender asked because somebody
//! waits, or when receivers came or went. The window is the smaller of the two rings, so that a sender with the smaller
//! ring is not left without.

use super::coverage::Coverage;
use super::credit::{Asked, AskedLevels, Credit};
use crate::types::Position;

/// One subscription at the receiver.
#[derive(Debug, Clone)]
pub struct Inbound {
    quarter: u64,
    told: Credit,
    asked: AskedLevels,
}

impl Inbound {
    /// A subscription that begins at `start`; `window` is the smaller of what the two rings hold in flight.
    pub fn new(start: Position, window: u64) -> Self {
        let coverage = Coverage::default();
        let told = Credit { landed: start, delivered: start, consumed: start, grant: start, coverage };
        Self { quarter: (window / 4).max(1), told, asked: AskedLevels::default() }
    }

    /// What was told last.
    pub fn told(&self) -> Credit {
        self.told
    }

    /// The step, in bytes, at which a position is told again.
    pub fn quarter(&self) -> u64 {
        self.quarter
    }

    /// What was granted and not used is void: RECALLED says so, or the connection is gone.
    pub fn take_back(&mut self, grant: Position) {
        self.told.grant = grant;
    }

    /// The sender asked: tell as soon as one of these is reached.
    pub fn on_ask(&mut self, wanted: [Position; 3]) {
        for ((asked, wanted), told) in self.asked.iter_mut().zip(wanted).zip(self.told.levels()) {
            asked.add(wanted, told);
        }
    }

    /// Whether the sender waits for something that it was not told yet.
    pub fn is_asked(&self) -> bool {
        self.asked.iter().zip(self.told.levels()).any(|(asked, told)| asked.next(told).is_some())
    }

    /// Whether a CREDIT is due, with the positions as they are now. If so it counts as told.
    pub fn credit(&mut self, now: Credit) -> Option<Credit> {
        if !self.is_due(&now) {
            return None;
        }
        self.tell(now)
    }

    /// Whether a CREDIT is due, with the positions as they are now.
    pub fn is_due(&self, now: &Credit) -> bool {
        let (levels, told) = (now.levels(), self.told.levels());
        let reached = |n: usize| self.asked[n].next(told[n]).is_some_and(|asked| levels[n] >= asked);
        let far = |now: Position, told: Position| now.saturating_sub(told) >= self.quarter;
        let due = (0..levels.len()).any(|n| reached(n) || far(levels[n], told[n]))
            || far(now.grant, self.told.grant)
            || now.coverage != self.told.coverage;
        #[cfg(feature = "planted-bugs")]
        let due = match crate::planted::is(crate::planted::CREDIT_LATE) {
            true => now.grant.saturating_sub(self.told.grant) >= 5 * self.quarter,
            false => due,
        };
        due
    }

    /// Whether more was delivered or consumed than was told, wanted or not.
    pub fn confirms_more(&self, now: &Credit) -> bool {
        now.delivered > self.told.delivered || now.consumed > self.told.consumed
    }

    /// Whether a CREDIT could be due where no position is above `head`, the grant is not above `grant`, and the count is
    /// this. Costs less than to find out the positions.
    pub fn may_be_due(&self, head: Position, grant: Position, coverage: Coverage) -> bool {
        let told = self.told;
        let reached = |(asked, told): (&Asked, Position)| asked.next(told).is_some();
        let least = told.landed.min(told.delivered).min(told.consumed);
        self.asked.iter().zip(told.levels()).any(reached)
            || head.saturating_sub(least) >= self.quarter
            || grant.saturating_sub(told.grant) >= self.quarter
            || coverage != told.coverage
    }

    /// Tells whatever changed, due or not (after SUBSCRIBED and on resume, so that the sender knows its first grant).
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
