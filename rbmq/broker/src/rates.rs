//! How many bytes per second users and addresses may publish and receive.
//!
//! ```text
//!   [quotas] ──▶ RateSettings ──▶ Rates: a limit for each user and address, in each direction ──▶ connections of the framework
//!                                   └──▶ who is at or near a limit: metrics, rbmq top
//! ```
//!
//! The framework delays; nothing is looked at here for a message. A share outlives its connections until its bucket is full again:
//! a client that connects anew has no new burst.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use access::Principal;
use rocketbufs::{MeterClock, RateLimit, RateLimits};

/// Shares without a connection are forgotten when there are so many more than before.
const FORGET_AT_LEAST: usize = 64;

/// The time between two samples of a rate.
const SAMPLE: Duration = Duration::from_secs(1);

/// The way that bytes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub(crate) enum Direction {
    /// Published to the broker.
    In,
    /// Sent to subscriptions.
    Out,
}

impl Direction {
    pub(crate) const ALL: [Self; 2] = [Self::In, Self::Out];

    /// The name in settings and metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// The limits in bytes per second, by [`Direction`], and the burst. None: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RateSettings {
    pub(crate) user: [Option<u64>; 2],
    pub(crate) address: [Option<u64>; 2],
    /// The time whose bytes may come at once.
    pub(crate) burst_ms: u64,
}

impl RateSettings {
    fn of(&self, who: &Principal) -> [Option<u64>; 2] {
        match who {
            Principal::User(_) => self.user,
            _ => self.address,
        }
    }

    fn burst(&self, rate: u64) -> u64 {
        u64::try_from(u128::from(rate) * u128::from(self.burst_ms) / 1_000).unwrap_or(u64::MAX)
    }

    /// Which limits there are.
    fn shape(&self) -> [bool; 4] {
        let [[a, b], [c, d]] = [self.user, self.address];
        [a, b, c, d].map(|limit| limit.is_some())
    }
}

/// The use of one limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateUse {
    pub(crate) who: Principal,
    pub(crate) direction: Direction,
    /// Bytes per second.
    pub(crate) limit: u64,
    /// Bytes per second between the last two samples.
    pub(crate) rate: u64,
    pub(crate) bytes: u64,
    pub(crate) delayed: Duration,
    /// Something was delayed between the last two samples.
    pub(crate) is_delayed: bool,
}

impl RateUse {
    /// At least four fifths of the limit.
    pub(crate) fn is_near(&self) -> bool {
        self.is_delayed || self.rate.saturating_mul(5) >= self.limit.saturating_mul(4)
    }
}

/// A limit of somebody in a direction, and its last sample.
struct Metered {
    limit: RateLimit,
    at: Instant,
    bytes: u64,
    delayed: Duration,
    rate: u64,
    is_delayed: bool,
}

impl Metered {
    fn new(limit: RateLimit, now: Instant) -> Self {
        Self { limit, at: now, bytes: 0, delayed: Duration::ZERO, rate: 0, is_delayed: false }
    }

    fn sample(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at);
        if passed < SAMPLE {
            return;
        }
        let usage = self.limit.usage();
        let bytes = usage.bytes.saturating_sub(self.bytes);
        self.rate = u64::try_from(u128::from(bytes) * 1_000 / passed.as_millis()).unwrap_or(u64::MAX);
        self.is_delayed = usage.delayed > self.delayed;
        (self.at, self.bytes, self.delayed) = (now, usage.bytes, usage.delayed);
    }
}

/// The limits of all users and addresses.
#[derive(Default)]
pub(crate) struct Rates {
    settings: RateSettings,
    shares: HashMap<Principal, [Option<Metered>; 2]>,
    forget_at: usize,
}

impl Rates {
    pub(crate) fn new(settings: RateSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Whether anybody has a limit.
    pub(crate) fn has_limits(&self) -> bool {
        self.settings.shape().contains(&true)
    }

    /// The limits of a connection that counts for these.
    pub(crate) fn limits(&mut self, whom: &[Principal]) -> RateLimits {
        let (settings, now) = (self.settings, Instant::now());
        let mut limits = RateLimits::new();
        for who in whom {
            let of = settings.of(who);
            if of == [None; 2] {
                continue;
            }
            let share = self.shares.entry(who.clone()).or_default();
            for (rate, share) in of.into_iter().zip(share.iter_mut()) {
                if let (Some(rate), None) = (rate, &share) {
                    *share = Some(Metered::new(RateLimit::new(rate, settings.burst(rate)), now));
                }
            }
            let limit = |of: &Option<Metered>| of.as_ref().map(|metered| metered.limit.clone());
            limits = limit(&share[0]).into_iter().fold(limits, RateLimits::received);
            limits = limit(&share[1]).into_iter().fold(limits, RateLimits::sent);
        }
        limits
    }

    /// Forgets shares that nobody uses and that would be the same if they were made again.
    pub(crate) fn forget_unused(&mut self, clock: MeterClock) {
        if self.shares.len() < self.forget_at.max(FORGET_AT_LEAST) {
            return;
        }
        let is_used = |of: &Metered| of.limit.is_shared() || !clock.is_full(&of.limit);
        self.shares.retain(|_, share| share.iter().flatten().any(is_used));
        self.forget_at = 2 * self.shares.len();
    }

    /// Other settings are in force, also for the connections that there are. Returns whether those need other limits.
    pub(crate) fn set(&mut self, settings: RateSettings) -> bool {
        let before = std::mem::replace(&mut self.settings, settings);
        for (who, share) in &mut self.shares {
            for (rate, metered) in settings.of(who).into_iter().zip(share) {
                let rate = rate.unwrap_or(0);
                if let Some(metered) = metered {
                    metered.limit.set(rate, settings.burst(rate));
                }
                if rate == 0 {
                    *metered = None;
                }
            }
        }
        self.shares.retain(|_, share| share.iter().any(Option::is_some));
        before.shape() != settings.shape()
    }

    /// The use of the limits: those that delay first, then by how much is used, at most `most`.
    pub(crate) fn uses(&mut self, most: usize, now: Instant) -> Vec<RateUse> {
        let mut uses = Vec::new();
        for (who, share) in &mut self.shares {
            for (direction, metered) in Direction::ALL.into_iter().zip(share) {
                let Some(metered) = metered else { continue };
                metered.sample(now);
                let usage = metered.limit.usage();
                uses.push(RateUse {
                    who: who.clone(),
                    direction,
                    limit: metered.limit.bytes_per_second(),
                    rate: metered.rate,
                    bytes: usage.bytes,
                    delayed: usage.delayed,
                    is_delayed: metered.is_delayed,
                });
            }
        }
        let share = |of: &RateUse| of.rate.saturating_mul(1_000) / of.limit.max(1);
        uses.sort_by(|a, b| {
            let (used, name) = (share(b).cmp(&share(a)), a.who.cmp(&b.who));
            b.is_delayed.cmp(&a.is_delayed).then(used).then(name).then(a.direction.cmp(&b.direction))
        });
        uses.truncate(most);
        uses
    }
}

#[cfg(test)]
mod tests {
    use rocketbufs::{Config, Context};

    use super::*;

    fn user(name: &str) -> Principal {
        Principal::User(name.into())
    }

    fn address(last: u8) -> Principal {
        Principal::Address(format!("10.0.0.{last}").parse().unwrap())
    }

    fn settings() -> RateSettings {
        RateSettings {
            user: [Some(1_000_000), None],
            address: [Some(5_000_000), Some(9_000_000)],
            burst_ms: 500,
        }
    }

    #[test]
    fn connections_of_a_user_share_a_limit() {
        let mut rates = Rates::new(settings());
        let limits = rates.limits(&[user("anna"), address(1)]);
        drop(rates.limits(&[user("anna"), address(2)]));
        assert!(!limits.is_empty() && rates.limits(&[]).is_empty());
        let who = |rates: &mut Rates| {
            let uses = rates.uses(99, Instant::now());
            uses.iter()
                .map(|of| format!("{} {} {}", of.who, of.direction.as_str(), of.limit))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            who(&mut rates),
            [
                "user 'anna' in 1000000",
                "address 10.0.0.1 in 5000000",
                "address 10.0.0.1 out 9000000",
                "address 10.0.0.2 in 5000000",
                "address 10.0.0.2 out 9000000",
            ]
        );
        assert_eq!(rates.uses(1, Instant::now()).len(), 1);
        // Another rate reaches the connections by itself; another limit does not.
        assert!(!rates.set(RateSettings { user: [Some(7), None], ..settings() }));
        assert_eq!(who(&mut rates)[0], "user 'anna' in 7");
        assert!(rates.set(RateSettings { address: [None; 2], ..settings() }));
        assert_eq!(who(&mut rates), ["user 'anna' in 1000000"]);
        assert!(rates.set(RateSettings::default()));
        assert!(rates.shares.is_empty() && rates.limits(&[user("anna")]).is_empty());
    }

    #[test]
    fn shares_that_nobody_uses_are_forgotten() {
        let ctx = Context::new(Config::default()).unwrap();
        let mut rates = Rates::new(settings());
        let used = rates.limits(&[user("anna")]);
        for last in 0..200 {
            drop(rates.limits(&[address(last)]));
        }
        rates.forget_unused(ctx.meter_clock());
        assert_eq!(rates.shares.len(), 1);
        drop(used);
        for last in 0..62 {
            drop(rates.limits(&[address(last)]));
        }
        rates.forget_unused(ctx.meter_clock());
        assert_eq!(rates.shares.len(), 63, "there are few");
    }

    #[test]
    fn who_uses_four_fifths_is_near_the_limit() {
        let of = |rate, is_delayed| RateUse {
            who: user("anna"),
            direction: Direction::In,
            limit: 1_000,
            rate,
            bytes: 0,
            delayed: Duration::ZERO,
            is_delayed,
        };
        assert_eq!([of(799, false), of(800, false), of(0, true)].map(|of| of.is_near()), [false, true, true]);
    }
}
