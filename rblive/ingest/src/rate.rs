//! How much a publisher sends.

use std::time::{Duration, Instant};

/// How long the rate of a publisher is averaged over.
const PERIOD: Duration = Duration::from_secs(10);

/// Counts the bytes of a publisher in a period.
#[derive(Debug)]
pub(crate) struct Rate {
    begin: Instant,
    bytes: u64,
    /// The most bytes in a period.
    most: u64,
}

impl Rate {
    /// Allows this many bytes in a second.
    pub(crate) fn new(bytes_per_second: u64) -> Self {
        Self { begin: Instant::now(), bytes: 0, most: bytes_per_second.saturating_mul(PERIOD.as_secs()) }
    }

    /// Counts bytes; false if they are too many.
    pub(crate) fn allows(&mut self, bytes: usize) -> bool {
        if self.begin.elapsed() >= PERIOD {
            (self.begin, self.bytes) = (Instant::now(), 0);
        }
        self.bytes += bytes as u64;
        self.bytes <= self.most
    }
}
