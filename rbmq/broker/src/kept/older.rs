//! The reading of an archive by a replay: the deliveries that the disk has removed, cut at the runs that they consist of.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rbmq_wire::{RUN_HEADER_BYTES, Runs};
use rocketbufs::Position;
use tracing::{debug, warn};

use super::archive::{ArchiveError, ArchiveRead};
use super::archived::Archived;

/// Bytes that are read at once, unless a run is longer.
const READ_BYTES: usize = 256 << 10;

/// The archive of a topic, as one replay reads it.
pub(super) struct Older {
    archived: Arc<Archived>,
    /// How long the replay waits for an archive that does not answer.
    patience: Duration,
    /// Since when it does not.
    down_since: Option<Instant>,
    /// The log from `at` on: the first `end` bytes were read, of which the first `used` are not needed any more. The rest is room,
    /// which is zeroed only once: an archive may give few bytes at a time.
    bytes: Vec<u8>,
    at: Position,
    used: usize,
    end: usize,
}

/// The next piece of the log.
pub(super) enum Next<'a> {
    /// A run, whole.
    Run(&'a [u8]),
    /// Nothing below this position.
    Lost(Position),
    /// The archive does not answer now.
    Later,
}

impl Older {
    pub(super) fn new(archived: Arc<Archived>, patience: Duration) -> Self {
        Self { archived, patience, down_since: None, bytes: Vec::new(), at: 0, used: 0, end: 0 }
    }

    /// Frees the memory of bytes that were read.
    pub(super) fn clear(&mut self) {
        (self.bytes, self.used, self.end) = (Vec::new(), 0, 0);
    }

    /// The run that begins at a position. `limit`: from there on the disk has everything. `max_run`: longer runs are skipped.
    pub(super) fn next(&mut self, position: Position, limit: Position, max_run: u64) -> Next<'_> {
        if (self.at..=self.at + self.end as u64).contains(&position) {
            self.used = (position - self.at) as usize;
        } else {
            (self.at, self.used, self.end) = (position, 0, 0);
        }
        loop {
            let rest = &self.bytes[self.used..self.end];
            let length = match run_length(rest) {
                Some(length) if length <= rest.len() as u64 => {
                    return Next::Run(&self.bytes[self.used..][..length as usize]);
                }
                length => length.unwrap_or(RUN_HEADER_BYTES as u64),
            };
            if length > max_run {
                // The topic's deliveries were larger once, or the subscriber's position is none where a run begins.
                debug!("{length} bytes at {position} of an archive are skipped: a run may have {max_run}");
                return Next::Lost(position.saturating_add(length).min(limit));
            }
            if let Some(next) = self.fill(length as usize, limit) {
                return next;
            }
        }
    }

    /// Reads more, at least up to a length if it is there. Returns why nothing was read.
    fn fill(&mut self, length: usize, limit: Position) -> Option<Next<'static>> {
        self.bytes.copy_within(self.used..self.end, 0);
        (self.at, self.used, self.end) = (self.at + self.used as u64, 0, self.end - self.used);
        let from = self.at + self.end as u64;
        let room = length.max(READ_BYTES).max(self.bytes.len());
        self.bytes.resize(room, 0);
        let read = self.archived.read(from, &mut self.bytes[self.end..]);
        if let Ok(ArchiveRead::Bytes(bytes)) = read {
            self.end += bytes;
        }
        let next = match read {
            Ok(ArchiveRead::Bytes(_)) => None,
            Ok(ArchiveRead::Hole { to } | ArchiveRead::Removed { first: to }) => {
                Some(Next::Lost(to.clamp(self.at + 1, limit)))
            }
            Err(ArchiveError::Refused(_)) => Some(Next::Lost(limit)),
            // Bytes that the disk has just removed are on their way, or become a hole.
            Ok(ArchiveRead::End) | Err(ArchiveError::Down(_)) => {
                let since = *self.down_since.get_or_insert_with(Instant::now);
                if since.elapsed() < self.patience {
                    return Some(Next::Later);
                }
                warn!("a replay skips {from} to {limit}, which the archive does not give (replay_wait_ms)");
                Some(Next::Lost(limit))
            }
        };
        self.down_since = None;
        next
    }
}

/// The length of the run that begins here, with its header. None if the header is not complete.
fn run_length(bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(..RUN_HEADER_BYTES)?;
    let missing = Runs::new(header).malformed().map_or(0, |error| error.missing);
    Some((RUN_HEADER_BYTES + missing) as u64)
}
