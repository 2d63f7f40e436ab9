//! Lines of a log about what may happen thousands of times in a second.

use std::time::{Duration, Instant};

/// Lets a line through once in ten seconds, and counts those in between.
///
/// ```
/// use std::time::{Duration, Instant};
/// use rocketnet::LogLimiter;
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
    /// How often a line is let through at most.
    pub const INTERVAL: Duration = Duration::from_secs(10);

    /// How many were not let through since the last line; none if this one is not either.
    pub fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < Self::INTERVAL) {
            self.since += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}
