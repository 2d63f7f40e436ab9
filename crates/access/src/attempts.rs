//! Failed logins by source, and how long a source waits after them.
//!
//! ```text
//!   failures   1..=3   4      5      6    …   10      after a pause of ten longest delays: forgotten
//!   delay      none    0.5 s  1 s    2 s  …   30 s
//! ```
//!
//! Only what costs this end much is delayed: the check of a password. A right token or a password that was checked a moment ago
//! passes, so somebody who guesses passwords behind a shared address does not lock the others out of what cannot be guessed.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Failures without a delay: people mistype.
const FREE: u32 = 3;

const FIRST_DELAY: Duration = Duration::from_millis(500);

/// The longest delay of a source.
pub const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// A source is forgotten after this time without a failure.
const MEMORY: Duration = Duration::from_secs(300);

/// The most sources that are remembered. A source costs about 150 bytes.
const MAX_SOURCES: usize = 16_384;

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// An address. Of an IPv6 address only the first 64 bits count, since a customer has at least so many.
    Address(IpAddr),
    /// A Unix user of this machine.
    Unix(u32),
    /// Unknown: all such clients are one source.
    Unknown,
}

impl Source {
    /// The source of an address as text, with or without a port.
    ///
    /// ```
    /// use access::Source;
    /// assert_eq!(Source::of("10.0.0.1:9"), Source::of("10.0.0.1:8"));
    /// assert_eq!(Source::of("[2001:db8::1]:9"), Source::of("[2001:db8::2]:9"));
    /// assert_eq!(Source::of("10.0.0.1:9"), Source::of("[::ffff:10.0.0.1]:9"));
    /// assert_eq!(Source::of("somewhere"), Source::Unknown);
    /// ```
    pub fn of(address: &str) -> Self {
        let socket = address.parse::<std::net::SocketAddr>().map(|socket| socket.ip());
        match socket.or_else(|_| address.parse::<IpAddr>()) {
            Ok(ip) => Self::Address(match ip.to_canonical() {
                IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
                v4 => v4,
            }),
            Err(_) => Self::Unknown,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

/// The sources of failed logins.
#[derive(Debug, Default)]
pub struct Attempts {
    sources: HashMap<Source, Failures>,
    /// The same, by the time of the last failure.
    by_age: BTreeSet<(Instant, Source)>,
}

impl Attempts {
    /// How long a source still has to wait; none if it need not.
    pub fn delay(&self, source: Source, now: Instant) -> Option<Duration> {
        let Failures { count, last } = *self.sources.get(&source)?;
        let doublings = count.checked_sub(FREE + 1)?;
        let delay = FIRST_DELAY.saturating_mul(1 << doublings.min(16)).min(LONGEST_DELAY);
        delay.checked_sub(now.saturating_duration_since(last)).filter(|left| !left.is_zero())
    }

    /// Whether a source has failed so often that it has to wait after every further failure.
    pub fn is_suspect(&self, source: Source) -> bool {
        self.sources.get(&source).is_some_and(|failures| failures.count >= FREE)
    }

    /// Counts a failed login.
    pub fn failed(&mut self, source: Source, now: Instant) {
        self.forget_old(now);
        let mut failures = Failures { count: 0, last: now };
        if let Some(known) = self.sources.get(&source) {
            self.by_age.remove(&(known.last, source));
            failures.count = known.count;
        } else if self.sources.len() >= MAX_SOURCES
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.sources.remove(&oldest);
        }
        failures.count = failures.count.saturating_add(1);
        self.sources.insert(source, failures);
        self.by_age.insert((now, source));
    }

    /// Forgets the failures of a source, after a successful login with a password.
    pub fn succeeded(&mut self, source: Source) {
        if let Some(known) = self.sources.remove(&source) {
            self.by_age.remove(&(known.last, source));
        }
    }

    /// The number of sources that are remembered.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether no source is remembered.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    fn forget_old(&mut self, now: Instant) {
        while let Some((last, source)) = self.by_age.first().copied()
            && now.saturating_duration_since(last) > MEMORY
        {
            self.by_age.pop_first();
            self.sources.remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn source(n: u32) -> Source {
        Source::Unix(n)
    }

    #[test]
    fn the_delay_doubles_up_to_a_limit() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let delays: Vec<u128> = (0..12)
            .map(|_| {
                attempts.failed(source(1), now);
                attempts.delay(source(1), now).map_or(0, |delay| delay.as_millis())
            })
            .collect();
        assert_eq!(delays, [0, 0, 0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(attempts.delay(source(1), now + LONGEST_DELAY), None);
        assert_eq!(attempts.delay(source(2), now), None);
        attempts.succeeded(source(1));
        assert_eq!(attempts.delay(source(1), now), None);
        assert!(attempts.is_empty());
    }

    #[test]
    fn a_flood_of_sources_takes_bounded_memory() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for n in 0..MAX_SOURCES as u32 + 1000 {
            attempts.failed(source(n), now + Duration::from_micros(n.into()));
        }
        assert_eq!((attempts.len(), attempts.by_age.len()), (MAX_SOURCES, MAX_SOURCES));
        attempts.failed(source(0), now + 2 * MEMORY);
        assert_eq!((attempts.len(), attempts.by_age.len()), (1, 1));
    }

    proptest! {
        /// Compared with a list of the last failures of each source.
        #[test]
        fn behaves_like_a_plain_list(steps in proptest::collection::vec((0_u32..4, 0_u64..40_000, any::<bool>()), 1..60)) {
            let (mut attempts, mut now) = (Attempts::default(), Instant::now());
            let mut model: Vec<(u32, u32, Instant)> = Vec::new();
            for (n, pause, fails) in steps {
                now += Duration::from_millis(pause);
                if fails {
                    attempts.failed(source(n), now);
                    model.retain(|(_, _, last)| now - *last <= MEMORY);
                    let count = model.iter().find(|m| m.0 == n).map_or(0, |m| m.1) + 1;
                    model.retain(|m| m.0 != n);
                    model.push((n, count, now));
                } else {
                    attempts.succeeded(source(n));
                    model.retain(|m| m.0 != n);
                }
                for n in 0..4 {
                    let expected = model.iter().find(|m| m.0 == n).and_then(|(_, count, last)| {
                        let millis = if *count <= 3 { 0 } else { (500_u64 << (count - 4).min(16)).min(30_000) };
                        Duration::from_millis(millis).checked_sub(now - *last).filter(|left| !left.is_zero())
                    });
                    prop_assert_eq!(attempts.delay(source(n), now), expected);
                }
            }
        }
    }
}
