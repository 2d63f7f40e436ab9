//! A limit on log lines about events that may happen thousands of times per second.

use std::time::{Duration, Instant};

/// Allows one line in ten seconds, and counts the suppressed lines.
///
/// ```
/// use std::time::{Duration, Instant};
/// use peers::LogLimiter;
///
/// let (mut limiter, begin) = (LogLimiter::default(), Instant::now());
/// assert_eq!(limiter.allow(begin), Some(0));
/// assert_eq!(limiter.allow(begin + Duration::from_secs(9)), None);
/// assert_eq!(limiter.allow(begin + LogLimiter::INTERVAL), Some(1));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct LogLimiter {
    last: Option<Instant>,
    since: u64,
}

impl LogLimiter {
    /// The shortest time between two lines.
    pub const INTERVAL: Duration = Duration::from_secs(10);

    /// The number of lines suppressed since the last one; none if this line is suppressed too.
    pub fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < Self::INTERVAL) {
            self.since += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}
