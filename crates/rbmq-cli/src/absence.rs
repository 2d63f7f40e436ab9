//! How long `pub` waits, when its input has ended, for a broker that is away.

use std::cell::Cell;
use std::time::{Duration, Instant};

use rbmq::{ConfirmLevel, PublisherWaitError, TopicWriter};

use super::failure::Failure;

/// How often a broker is looked for at most.
const LOOK: Duration = Duration::from_millis(50);

/// A broker that is away for too long. One that is there may have to wait for its subscribers; what a stuck one of them
/// may cost is its configuration's business (`session.block_timeout_ms`).
pub(super) struct Absence {
    limit: Duration,
    /// At which level it is told what is confirmed; none: what the broker has.
    level: Option<ConfirmLevel>,
    /// When it was last there, or took something.
    since: Cell<Instant>,
    looked: Cell<Instant>,
    /// The most that any broker had.
    had: Cell<u64>,
}

impl Absence {
    pub(super) fn new(limit: Duration, level: Option<ConfirmLevel>) -> Self {
        let now = Instant::now();
        Self { limit, level, since: Cell::new(now), looked: Cell::new(now), had: Cell::new(0) }
    }

    /// Looks whether the broker is there; fails if it has not been for too long.
    pub(super) fn look(&self, writer: &TopicWriter) -> Result<(), Failure> {
        if self.looked.get().elapsed() < LOOK {
            return Ok(());
        }
        let flushed = writer.flush(Some(Duration::ZERO));
        self.looked.set(Instant::now());
        match flushed {
            Err(error) => self.check(writer, error),
            Ok(()) => {
                self.since.set(Instant::now());
                Ok(())
            }
        }
    }

    /// What a flush that was not done says about the broker. A refusal is for those to tell who wait for something.
    pub(super) fn check(&self, writer: &TopicWriter, error: PublisherWaitError) -> Result<(), Failure> {
        let PublisherWaitError::NotAccepted { topic, confirmed, end, last_error, .. } = error else {
            return Ok(());
        };
        let had = self.had.get().max(confirmed);
        if last_error.is_none() || had > self.had.replace(had) {
            self.since.set(Instant::now());
        }
        if self.since.get().elapsed() < self.limit {
            return Ok(());
        }
        // A broker that is not there has nothing; what was confirmed by one that was is confirmed all the same.
        let confirmed = self.level.map_or(confirmed, |level| writer.confirmed(level));
        let waited = self.limit;
        Err(Failure::failed(PublisherWaitError::NotAccepted { topic, confirmed, end, waited, last_error }))
    }
}
