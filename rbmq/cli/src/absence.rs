//! The limit for the time that `pub` waits for an offline broker after the end of its input.

use std::cell::Cell;
use std::time::{Duration, Instant};

use commands::Failure;
use rbmq::{ConfirmLevel, PublisherWaitError, TopicWriter};

/// The shortest time between two checks of the broker.
const STEP: Duration = Duration::from_millis(50);

/// Measures how long the broker is offline. A broker that is online may wait for its subscribers; its configuration limits that
/// time (`session.block_timeout_ms`).
pub(super) struct OfflineTimer {
    limit: Duration,
    /// The level whose confirmed position the failure reports; none: the accepted position.
    level: Option<ConfirmLevel>,
    /// When the broker was last online, or accepted records.
    since: Cell<Instant>,
    checked: Cell<Instant>,
    /// The largest position that a broker has accepted.
    accepted: Cell<u64>,
}

impl OfflineTimer {
    pub(super) fn new(limit: Duration, level: Option<ConfirmLevel>) -> Self {
        let now = Instant::now();
        Self { limit, level, since: Cell::new(now), checked: Cell::new(now), accepted: Cell::new(0) }
    }

    /// Fails if the broker has been offline for too long.
    pub(super) fn check(&self, writer: &TopicWriter) -> Result<(), Failure> {
        if self.checked.get().elapsed() < STEP {
            return Ok(());
        }
        let flushed = writer.flush(Some(Duration::ZERO));
        self.checked.set(Instant::now());
        match flushed {
            Err(error) => self.on_flush_error(writer, error),
            Ok(()) => {
                self.since.set(Instant::now());
                Ok(())
            }
        }
    }

    /// Learns from a flush that failed. Refusals are reported by the calls that wait for confirmations.
    pub(super) fn on_flush_error(
        &self,
        writer: &TopicWriter,
        error: PublisherWaitError,
    ) -> Result<(), Failure> {
        let PublisherWaitError::NotAccepted { topic, confirmed, end, last_error, .. } = error else {
            return Ok(());
        };
        let accepted = self.accepted.get().max(confirmed);
        if last_error.is_none() || accepted > self.accepted.replace(accepted) {
            self.since.set(Instant::now());
        }
        if self.since.get().elapsed() < self.limit {
            return Ok(());
        }
        // An offline broker has accepted nothing. Earlier confirmations stay valid.
        let confirmed = self.level.map_or(confirmed, |level| writer.confirmed(level));
        let waited = self.limit;
        Err(Failure::failed(PublisherWaitError::NotAccepted { topic, confirmed, end, waited, last_error }))
    }
}
