//! The round trip time of a link, as RFC 9002 estimates it.

use std::time::Duration;

/// The round trip time before the first measurement.
const INITIAL: Duration = Duration::from_millis(100);
/// The least allowance for the variation of round trips: a busy receiver may read its socket so much later.
const GRANULARITY: Duration = Duration::from_millis(1);
/// The shortest wait for an earlier segment once a later one was acknowledged. Timers are exact to some 50 µs, and a millisecond would be
/// ten round trips of a local network.
const LEAST_LOSS_DELAY: Duration = Duration::from_micros(250);
/// The longest wait for an acknowledgement.
const MAX_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
}

impl Rtt {
    pub fn new() -> Rtt {
        Rtt { smoothed: None, variation: INITIAL / 2, latest: INITIAL }
    }

    pub fn sample(&mut self, latest: Duration) {
        self.latest = latest;
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.variation) = (Some(latest), latest / 2);
            return;
        };
        self.variation = (3 * self.variation + smoothed.abs_diff(latest)) / 4;
        self.smoothed = Some((7 * smoothed + latest) / 8);
    }

    /// The smoothed round trip time.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// How long after a later segment was acknowledged an earlier one is lost: RACK, with a reordering window of `eighths` eighths of
    /// a round trip.
    pub fn loss_delay(&self, eighths: u32) -> Duration {
        let rtt = self.smoothed().max(self.latest);
        (rtt + rtt * eighths / 8).max(LEAST_LOSS_DELAY)
    }

    /// How long to wait for an acknowledgement, after this many waits in vain.
    pub fn timeout(&self, in_vain: u32) -> Duration {
        let once = self.smoothed() + (4 * self.variation).max(GRANULARITY);
        once.saturating_mul(1 << in_vain.min(10)).min(MAX_TIMEOUT)
    }
}
