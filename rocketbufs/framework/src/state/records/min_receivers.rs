//! The least number of receivers for which a forwarded log may be confirmed.
//!
//! ```text
//!      reached                head            fewer receivers than the least:
//!  ───────┼────────────────────┼──▶           nothing more is confirmed, and the ring holds the rest,
//!         └ held for new receivers ─┘         so that a joining or resuming receiver finds it
//! ```

use std::sync::Mutex;

use super::confirmed::ConfirmedPositions;
use crate::ground::lock::lock;
use crate::ground::types::Position;

/// The least number of receivers of a subscription, see [the module](self).
#[derive(Debug, Default)]
pub(crate) struct MinReceivers {
    receivers: u32,
    /// How far the log was delivered and consumed while there were enough receivers.
    reached: Mutex<[Position; 2]>,
}

impl MinReceivers {
    pub(crate) fn new(receivers: u32) -> Self {
        Self { receivers, reached: Mutex::default() }
    }

    /// Returns the least number; 0: there is none.
    pub(crate) fn receivers(&self) -> u32 {
        self.receivers
    }

    /// Returns whether there is a least number.
    pub(crate) fn is_any(&self) -> bool {
        self.receivers > 0
    }

    /// Limits the confirmed positions of a log to those that may be reported.
    pub(crate) fn settle(&self, mut confirmed: ConfirmedPositions) -> ConfirmedPositions {
        if !self.is_any() {
            return confirmed;
        }
        let mut reached = lock(&self.reached);
        if confirmed.coverage.receivers < self.receivers {
            [confirmed.delivered, confirmed.consumed] = *reached;
        } else {
            let now = [confirmed.delivered, confirmed.consumed];
            *reached = [now[0].max(reached[0]), now[1].max(reached[1])];
        }
        confirmed
    }
}
