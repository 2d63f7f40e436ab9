//! The least number of receivers for whom a log that is handed on may be confirmed.
//!
//! ```text
//!      reached                head            fewer receivers than the least:
//!  ───────┼────────────────────┼──▶           nothing more is confirmed than was, and the ring keeps all from there on,
//!         └ kept for those who come ┘         so that whoever comes, or comes back, finds it; its writer waits for room
//! ```

use std::sync::Mutex;

use crate::lock::lock;
use crate::state::Confirmed;
use crate::types::Position;

/// See [the module](self).
#[derive(Debug, Default)]
pub(crate) struct MinReceivers {
    receivers: u32,
    /// How far the log was delivered and consumed while there were enough.
    reached: Mutex<[Position; 2]>,
}

impl MinReceivers {
    pub(crate) fn new(receivers: u32) -> Self {
        Self { receivers, reached: Mutex::default() }
    }

    /// The least number; 0: there is none.
    pub(crate) fn receivers(&self) -> u32 {
        self.receivers
    }

    /// Whether there is a least.
    pub(crate) fn is_any(&self) -> bool {
        self.receivers > 0
    }

    /// What may be said of a log that is confirmed so far.
    pub(crate) fn settle(&self, mut confirmed: Confirmed) -> Confirmed {
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
