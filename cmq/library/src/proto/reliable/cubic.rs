//! Congestion control: CUBIC (RFC 9438), in bytes, with the recovery of RFC 9002 and pacing.
//!
//! CUBIC is the default of TCP in Linux, Windows and macOS, so a link takes about the share of a TCP connection. BBR would get more
//! out of paths that lose at random, and takes more than its share from CUBIC in shallow buffers.

use std::time::{Duration, Instant};

/// The factor of the window after a loss.
const BETA: f64 = 0.7;
/// The growth of the window, in segments for each cubic second.
const C: f64 = 0.4;
/// The burst that may be sent at once: so many segments, or the bytes of so much time at the rate, whichever is more.
const BURST_SEGMENTS: usize = 10;
const BURST_TIME: Duration = Duration::from_millis(2);
/// The shortest pause. The segments that follow a pause are sent with one call of the system. A path with a round trip below 2.5 ms has
/// no pauses, since its window is smaller than a burst.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Cubic {
    segment: usize,
    window: usize,
    threshold: usize,
    /// The window before the last loss, and when the growth since then began.
    before_loss: f64,
    epoch: Option<(Instant, f64)>,
    /// The window that Reno would have since then. The window is not smaller.
    reno: f64,
    /// Losses of segments that were sent before this time belong to the last reduction.
    recovery: Option<Instant>,
    /// Pacing: bytes that may leave now, and when that was computed.
    tokens: f64,
    counted: Option<Instant>,
}

impl Cubic {
    /// For segments of at most this many bytes.
    pub fn new(segment: usize) -> Cubic {
        let window = (10 * segment).min((2 * segment).max(14_720));
        Cubic {
            segment,
            window,
            threshold: usize::MAX,
            before_loss: 0.0,
            epoch: None,
            reno: 0.0,
            recovery: None,
            tokens: 0.0,
            counted: None,
        }
    }

    /// Bytes that may be on their way.
    pub fn window(&self) -> usize {
        self.window
    }

    fn least(&self) -> usize {
        2 * self.segment
    }

    /// Handles the acknowledgement of bytes that were sent at `sent`. `full`: the window was used.
    pub fn acknowledged(&mut self, now: Instant, bytes: usize, sent: Instant, rtt: Duration, full: bool) {
        if self.recovery.is_some_and(|recovery| sent <= recovery) || !full {
            return;
        }
        if self.window < self.threshold {
            self.window += bytes;
            return;
        }
        let segment = self.segment as f64;
        let (began, origin) = *self.epoch.get_or_insert_with(|| {
            self.reno = self.window as f64;
            (now, self.before_loss.max(self.window as f64))
        });
        let start = self.window as f64;
        let flat = ((origin - origin.min(self.before_loss.max(1.0)) * BETA).max(0.0) / segment / C).cbrt();
        let time = (now - began + rtt).as_secs_f64() - flat;
        let target = (origin + C * time.powi(3) * segment).clamp(start, 1.5 * start);
        // As many segments as Reno would have, with CUBIC's factor.
        let alpha = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        self.reno += alpha * segment * bytes as f64 / start;
        let grown = start + (target - start) * bytes as f64 / start;
        self.window = grown.max(self.reno) as usize;
    }

    /// Handles the loss of a segment that was sent at `sent`.
    pub fn lost(&mut self, now: Instant, sent: Instant) {
        if self.recovery.is_some_and(|recovery| sent <= recovery) {
            return;
        }
        self.recovery = Some(now);
        let window = self.window as f64;
        // A window that shrinks twice in a row leaves room for others.
        self.before_loss = if window < self.before_loss { window * (1.0 + BETA) / 2.0 } else { window };
        self.window = ((window * BETA) as usize).max(self.least());
        self.threshold = self.window;
        self.epoch = None;
    }

    /// Returns to the smallest window, because nothing was acknowledged for long.
    pub fn collapse(&mut self, now: Instant) {
        if self.window <= self.least() {
            return;
        }
        self.threshold = (self.window / 2).max(self.least());
        self.window = self.least();
        (self.recovery, self.epoch) = (Some(now), None);
    }

    /// Bytes for each second, a quarter more than the window for each round trip.
    fn rate(&self, rtt: Duration) -> f64 {
        1.25 * self.window as f64 / rtt.as_secs_f64().max(1e-6)
    }

    /// When this many bytes may be sent. `None`: now.
    pub fn pace(&mut self, now: Instant, bytes: usize, rtt: Duration) -> Option<Instant> {
        let rate = self.rate(rtt);
        let most = (rate * BURST_TIME.as_secs_f64()).max((BURST_SEGMENTS * self.segment) as f64);
        let since = self.counted.replace(now).map_or(1.0, |counted| (now - counted).as_secs_f64());
        self.tokens = (self.tokens + rate * since).min(most);
        let missing = bytes as f64 - self.tokens;
        (missing > 0.0).then(|| now + Duration::from_secs_f64((missing / rate).min(1.0)).max(LEAST_PAUSE))
    }

    /// Counts bytes that were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.tokens -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The window grows with each round trip while it is used, shrinks once for each round trip with losses, and comes back to
    /// where it was.
    #[test]
    fn the_window_follows_losses() {
        let mut cubic = Cubic::new(1400);
        let (start, rtt) = (Instant::now(), 50 * MS);
        let first = cubic.window();
        cubic.acknowledged(start, first, start, rtt, false);
        assert_eq!(cubic.window(), first, "a window that is not used does not grow");
        let mut now = start;
        for _ in 0..6 {
            let window = cubic.window();
            cubic.acknowledged(now, window, now, rtt, true);
            assert_eq!(cubic.window(), 2 * window);
            now += rtt;
        }
        let most = cubic.window();
        cubic.lost(now, now);
        cubic.lost(now + MS, now);
        let after = cubic.window();
        assert!((after as f64 / most as f64 - BETA).abs() < 0.01);
        let (mut trips, sent) = (0, now);
        while cubic.window() < most {
            now += rtt;
            cubic.acknowledged(now, cubic.window(), now, rtt, true);
            trips += 1;
            assert!(trips < 1000, "{} of {most} after {:?}", cubic.window(), now - sent);
        }
        cubic.collapse(now);
        assert_eq!(cubic.window(), 2800);
    }

    /// Over a second the rate is that of the window, a quarter more.
    #[test]
    fn bursts_are_bounded() {
        let mut cubic = Cubic::new(1000);
        cubic.window = 100_000;
        let (start, rtt) = (Instant::now(), 100 * MS);
        let (mut now, mut sent) = (start, 0);
        while now < start + 1000 * MS {
            match cubic.pace(now, 1000, rtt) {
                None => {
                    cubic.sent(1000);
                    sent += 1000;
                }
                Some(later) => now = later.max(now + Duration::from_micros(1)),
            }
        }
        assert!((1_250_000..1_275_000).contains(&sent), "{sent}");
    }
}
