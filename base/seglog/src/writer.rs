//! The state that belongs to the writer alone, and not to readers.

use std::sync::Arc;

use crate::clock::AgeClock;
use crate::shared::Shared;
use crate::ticker::Ticker;

/// Writes to the last segment. `append` appends, `segments` begins, completes and removes segments.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    /// There with a policy that has an interval.
    pub(crate) ticker: Option<Ticker>,
    /// The last segment has bytes of a failed append behind its records.
    pub(crate) torn: bool,
    /// The removal of a segment may not be durable.
    pub(crate) unsynced_removal: bool,
    pub(crate) age_clock: AgeClock,
    /// Retention removes nothing from here on.
    pub(crate) held_from: u64,
    /// Retention would have removed more.
    pub(crate) is_held: bool,
    /// Reused memory for headers.
    pub(crate) headers: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, ticker: Option<Ticker>) -> Self {
        let mut age_clock = AgeClock::default();
        age_clock.look(shared.storage.now(), shared.storage.steady());
        Self {
            shared,
            ticker,
            torn: false,
            unsynced_removal: false,
            age_clock,
            held_from: u64::MAX,
            is_held: false,
            headers: Vec::new(),
        }
    }

    pub(crate) fn first(&self) -> u64 {
        self.shared.kept().start
    }

    pub(crate) fn end(&self) -> u64 {
        self.shared.kept().end
    }

    pub(crate) fn durable(&self) -> u64 {
        self.shared.state.lock().durable
    }
}
