//! Limits on bytes that a program moves by other means than the connections of a context, and that count together with theirs.

use std::time::{Duration, Instant};

use super::rate_limit::{RateLimit, RateLimits};
use crate::ground::types::Nanos;

/// The clock of the limits of a context.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct MeterClock(Instant);

impl MeterClock {
    /// Creates a clock that counts from this time. Limits have one clock: that of their context ([`Context::meter_clock`](crate::Context::meter_clock)), or one
    /// where they are of no context.
    pub fn new(started: Instant) -> Self {
        Self(started)
    }

    fn now(self) -> Nanos {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Returns whether the bucket of a limit is full: a new limit would delay no less.
    pub fn is_full(self, limit: &RateLimit) -> bool {
        limit.is_full(self.now())
    }
}

/// The limits of one connection of a program's own. Dropping it gives back what was reserved and not sent.
#[doc(hidden)]
#[derive(Debug)]
pub struct Meter {
    limits: RateLimits,
    clock: MeterClock,
    reserved: u64,
    send_at: Nanos,
}

impl Meter {
    /// Creates a meter of limits.
    pub fn new(limits: RateLimits, clock: MeterClock) -> Self {
        Self { limits, clock, reserved: 0, send_at: 0 }
    }

    /// Returns how many bytes to receive at once at most.
    pub fn most_to_receive(&self) -> usize {
        usize::try_from(self.limits.arrival()).unwrap_or(usize::MAX)
    }

    /// Charges bytes that have arrived. Returns how long nothing more is to be received.
    pub fn arrived(&self, bytes: usize) -> Duration {
        let now = self.clock.now();
        self.limits.arrived(bytes as u64, now);
        Duration::from_nanos(self.limits.credit_at(now).saturating_sub(now))
    }

    /// Asks for sending. Returns how many bytes may be sent now.
    ///
    /// # Errors
    /// Nothing may be sent for so long.
    pub fn may_send(&mut self, bytes: u64) -> Result<usize, Duration> {
        let now = self.clock.now();
        if self.reserved == 0 {
            self.reserved = bytes.min(self.limits.reservation());
            self.send_at = self.limits.reserve(self.reserved, now);
        }
        match self.send_at.checked_sub(now) {
            None | Some(0) => Ok(usize::try_from(self.reserved).unwrap_or(usize::MAX)),
            Some(wait) => Err(Duration::from_nanos(wait)),
        }
    }

    /// So many bytes were sent, at most as many as may be.
    pub fn sent(&mut self, bytes: usize) {
        self.reserved = self.reserved.saturating_sub(bytes as u64);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.limits.settle(self.reserved, 0, self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_before_its_time_and_what_was_not_sent_is_given_back() {
        let (limit, clock) = (RateLimit::new(1_000, 4_096), MeterClock::new(Instant::now()));
        let limits = RateLimits::new().received(limit.clone()).sent(limit.clone());
        let mut meter = Meter::new(limits, clock);
        assert_eq!(meter.most_to_receive(), 1_024);
        assert_eq!(meter.may_send(100), Ok(100));
        meter.sent(60);
        assert_eq!(meter.may_send(100), Ok(40), "the rest of what was reserved");
        meter.sent(40);
        // Everything that the bucket has, and as much again.
        let wait = meter.arrived(8_192);
        assert!(wait > Duration::from_secs(3) && wait <= Duration::from_secs(5), "{wait:?}");
        assert!(meter.may_send(100).is_err_and(|wait| wait > Duration::from_secs(3)));
        assert!(!clock.is_full(&limit));
        let before = limit.usage().bytes;
        drop(meter);
        assert_eq!(limit.usage().bytes, before - 100);
        assert!(limit.usage().delayed > Duration::from_secs(3));
    }
}
