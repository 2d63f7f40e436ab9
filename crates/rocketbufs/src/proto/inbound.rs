//! One subscription at the receiver: when credit is due.
//!
//! A CREDIT tells three absolute positions: what landed, what was consumed, how far the sender may write. It goes out
//! when one of them moved by a quarter of the window since it was last told, or when the sender asked because somebody
//! waits. The window is the smaller of the two rings, so that a sender with the smaller ring is not left without.

use crate::types::Position;

/// The positions of a CREDIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Everything below is in this end's memory.
    pub landed: Position,
    /// Everything below was given back.
    pub consumed: Position,
    /// The sender may write up to here.
    pub grant: Position,
}

/// One subscription at the receiver.
#[derive(Debug, Clone)]
pub struct Inbound {
    quarter: u64,
    told: Credit,
    asked_landed: Position,
    asked_consumed: Position,
}

impl Inbound {
    /// A subscription that begins at `start`; `window` is the smaller of what the two rings hold in flight.
    pub fn new(start: Position, window: u64) -> Self {
        Self {
            quarter: (window / 4).max(1),
            told: Credit { landed: start, consumed: start, grant: start },
            asked_landed: 0,
            asked_consumed: 0,
        }
    }

    /// What was told last.
    pub fn told(&self) -> Credit {
        self.told
    }

    /// The step, in bytes, at which a position is told again.
    pub fn quarter(&self) -> u64 {
        self.quarter
    }

    /// The sender asked: tell as soon as these are reached.
    pub fn on_ask(&mut self, landed: Position, consumed: Position) {
        self.asked_landed = self.asked_landed.max(landed);
        self.asked_consumed = self.asked_consumed.max(consumed);
    }

    /// Whether a CREDIT is due, with the positions as they are now. If so it counts as told.
    pub fn credit(&mut self, now: Credit) -> Option<Credit> {
        let asked = reached(self.asked_landed, self.told.landed, now.landed)
            || reached(self.asked_consumed, self.told.consumed, now.consumed);
        let due = asked
            || now.grant.saturating_sub(self.told.grant) >= self.quarter
            || now.landed.saturating_sub(self.told.landed) >= self.quarter
            || now.consumed.saturating_sub(self.told.consumed) >= self.quarter;
        #[cfg(feature = "planted-bugs")]
        let due = match crate::planted::is(crate::planted::CREDIT_LATE) {
            true => now.grant.saturating_sub(self.told.grant) >= 5 * self.quarter,
            false => due,
        };
        if !due {
            return None;
        }
        self.tell(now)
    }

    /// Tells whatever changed, due or not (after SUBSCRIBED and on resume, so that the sender knows its first grant).
    pub fn tell(&mut self, now: Credit) -> Option<Credit> {
        let credit = Credit {
            landed: now.landed.max(self.told.landed),
            consumed: now.consumed.max(self.told.consumed),
            grant: now.grant.max(self.told.grant),
        };
        self.told = credit;
        Some(credit)
    }
}

/// Whether something asked for, and not told yet, is there.
fn reached(asked: Position, told: Position, now: Position) -> bool {
    asked > told && now >= asked
}
