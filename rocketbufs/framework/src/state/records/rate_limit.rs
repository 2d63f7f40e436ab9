//! A limit on the bytes per second of connections: a token bucket that delays.
//!
//! The state is one number, the time at which the bucket would be full again if nothing more came:
//!
//! ```text
//!   time            now              now + burst                a bucket with room for `burst`, in time at the rate
//!   ─────────────────┼────────────────────┼─────────────▶
//!    full_at: full   │  some tokens left  │  in debt for
//!                    │                    │  full_at − (now + burst)
//! ```
//!
//! Bytes move `full_at` by the time that they take at the rate. Arrived bytes are charged afterwards and may leave a debt, for
//! which the senders' credit waits. Bytes to send are reserved: the reservation tells when they may go, so that connections
//! which share a limit take turns in the order of their reservations, and each of them is woken once.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ground::types::Nanos;

/// Parts of a nanosecond: a small transfer at a high rate takes less than one. 36 years of them fit.
const PARTS: u64 = 16;

const PARTS_PER_SECOND: u128 = 1_000_000_000 * PARTS as u128;

/// The least burst: a smaller one would cost a wake-up for every few bytes.
const LEAST_BURST_BYTES: u64 = 4 << 10;

/// A reservation has the bytes of so many parts of a second, within these bounds.
const RESERVATIONS_PER_SECOND: u64 = 64;
const LEAST_RESERVATION_BYTES: u64 = 1 << 10;
const MOST_RESERVATION_BYTES: u64 = 256 << 10;

/// A limit on bytes per second, which any number of connections of one [`Context`](crate::Context) share: a token bucket. Bytes
/// beyond it are delayed and never dropped. Clones are the same limit. See [`Conn::set_rate_limits`](crate::Conn::set_rate_limits).
///
/// In any `t` seconds at most `burst_bytes + t * bytes_per_second` bytes are sent. Of what arrives as much more may come as had
/// been granted to the senders before: at most the smaller of the burst and the free part of the ring, for each subscription.
///
/// ```
/// use rocketbufs::RateLimit;
///
/// let limit = RateLimit::new(1_000_000, 250_000);
/// assert_eq!(limit.usage().bytes, 0);
/// limit.set(0, 0); // No limit from here on.
/// assert_eq!(limit.bytes_per_second(), 0);
/// ```
#[derive(Clone)]
pub struct RateLimit(Arc<Bucket>);

struct Bucket {
    bytes_per_second: AtomicU64,
    burst_bytes: AtomicU64,
    full_at: AtomicU64,
    bytes: AtomicU64,
    /// Until when anybody waits, and for how long somebody did.
    waits_until: AtomicU64,
    waited: AtomicU64,
}

/// The counts of a [`RateLimit`] since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RateUsage {
    /// Bytes that counted for the limit.
    pub bytes: u64,
    /// How long anything was delayed. A present delay is in it from its beginning, up to its expected end.
    pub delayed: Duration,
}

impl RateLimit {
    /// Creates a limit with a full bucket. `bytes_per_second`: 0 is no limit. `burst_bytes`: how much may go at once after a
    /// pause; at least 4 KiB.
    pub fn new(bytes_per_second: u64, burst_bytes: u64) -> Self {
        let bucket = Bucket {
            bytes_per_second: AtomicU64::new(bytes_per_second),
            burst_bytes: AtomicU64::new(burst_bytes.max(LEAST_BURST_BYTES)),
            full_at: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            waits_until: AtomicU64::new(0),
            waited: AtomicU64::new(0),
        };
        Self(Arc::new(bucket))
    }

    /// Sets another rate and burst, for later bytes. A present delay ends when it would have.
    pub fn set(&self, bytes_per_second: u64, burst_bytes: u64) {
        self.0.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
        self.0.burst_bytes.store(burst_bytes.max(LEAST_BURST_BYTES), Ordering::Relaxed);
    }

    /// Returns the bytes per second; 0: no limit.
    pub fn bytes_per_second(&self) -> u64 {
        self.0.bytes_per_second.load(Ordering::Relaxed)
    }

    /// Returns the bytes that may go at once after a pause.
    pub fn burst_bytes(&self) -> u64 {
        self.0.burst_bytes.load(Ordering::Relaxed)
    }

    /// Returns the counts so far.
    pub fn usage(&self) -> RateUsage {
        let bytes = self.0.bytes.load(Ordering::Relaxed);
        RateUsage { bytes, delayed: Duration::from_nanos(self.0.waited.load(Ordering::Relaxed)) }
    }

    /// Returns whether anybody else has this limit: a connection, or another handle.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Returns whether the bucket is full.
    pub(crate) fn is_full(&self, now: Nanos) -> bool {
        self.0.full_at.load(Ordering::Relaxed) <= now.saturating_mul(PARTS)
    }

    /// Returns the time that bytes take at the rate, rounded down or up.
    fn time_of(&self, bytes: u64, round_up: bool) -> u64 {
        let rate = u128::from(self.bytes_per_second());
        if rate == 0 {
            return 0;
        }
        let parts = u128::from(bytes) * PARTS_PER_SECOND;
        let time = if round_up { parts.div_ceil(rate) } else { parts / rate };
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Charges bytes. Returns when the bucket is out of debt.
    pub(crate) fn charge(&self, bytes: u64, now: Nanos) -> Nanos {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        let (now, time) = (now.saturating_mul(PARTS), self.time_of(bytes, true));
        let charged = |full_at: u64| full_at.max(now).saturating_add(time);
        // The number is all that the threads share.
        let before =
            self.0.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| Some(charged(at)));
        self.out_of_debt(charged(before.unwrap_or_else(|at| at)))
    }

    /// Returns when the bucket is out of debt.
    pub(crate) fn free_at(&self) -> Nanos {
        self.out_of_debt(self.0.full_at.load(Ordering::Relaxed))
    }

    fn out_of_debt(&self, full_at: u64) -> Nanos {
        match self.bytes_per_second() {
            0 => 0,
            _ => full_at.saturating_sub(self.time_of(self.burst_bytes(), false)).div_ceil(PARTS),
        }
    }

    /// Gives back charged bytes that were not moved.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        let time = self.time_of(bytes, false);
        let less = |full_at: u64| Some(full_at.saturating_sub(time));
        let _ = self.0.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Counts a delay until then.
    pub(crate) fn delays(&self, now: Nanos, until: Nanos) {
        let counted_to = self.0.waits_until.fetch_max(until, Ordering::Relaxed);
        self.0.waited.fetch_add(until.saturating_sub(counted_to.max(now)), Ordering::Relaxed);
    }

    /// Returns how many bytes a connection reserves at once.
    fn reservation(&self) -> u64 {
        match self.bytes_per_second() {
            0 => u64::MAX,
            rate => (rate / RESERVATIONS_PER_SECOND)
                .clamp(LEAST_RESERVATION_BYTES, MOST_RESERVATION_BYTES)
                .min(self.burst_bytes()),
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("bytes_per_second", &self.bytes_per_second())
            .field("burst_bytes", &self.burst_bytes())
            .field("usage", &self.usage())
            .finish()
    }
}

/// The limits of one connection: each of them counts all of its bytes. See [`Conn::set_rate_limits`](crate::Conn::set_rate_limits).
///
/// ```
/// use rocketbufs::{RateLimit, RateLimits};
///
/// let (user, address) = (RateLimit::new(1_000_000, 250_000), RateLimit::new(5_000_000, 1_000_000));
/// let limits = RateLimits::new().received(user.clone()).received(address).sent(user);
/// assert!(!limits.is_empty());
/// ```
#[derive(Debug, Clone, Default)]
pub struct RateLimits {
    pub(crate) received: Vec<RateLimit>,
    pub(crate) sent: Vec<RateLimit>,
}

impl RateLimits {
    /// Creates no limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit on the payload that arrives: the credit of this end's subscriptions waits.
    #[must_use]
    pub fn received(mut self, limit: RateLimit) -> Self {
        self.received.push(limit);
        self
    }

    /// Adds a limit on the payload that is sent: the peer's subscriptions are sent later.
    #[must_use]
    pub fn sent(mut self, limit: RateLimit) -> Self {
        self.sent.push(limit);
        self
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty() && self.sent.is_empty()
    }

    /// Charges arrived bytes.
    pub(crate) fn arrived(&self, bytes: u64, now: Nanos) {
        for limit in &self.received {
            limit.charge(bytes, now);
        }
    }

    /// Returns when credit may be given. Until then it counts as delayed.
    pub(crate) fn credit_at(&self, now: Nanos) -> Nanos {
        latest(&self.received, now, RateLimit::free_at)
    }

    /// Returns how many bytes to receive at once at most, by a program that looks at the limits between two pieces.
    pub(crate) fn arrival(&self) -> u64 {
        self.received.iter().map(RateLimit::reservation).min().unwrap_or(u64::MAX)
    }

    /// Returns how many bytes to reserve at most.
    pub(crate) fn reservation(&self) -> u64 {
        self.sent.iter().map(RateLimit::reservation).min().unwrap_or(u64::MAX)
    }

    /// Reserves bytes. Returns when they may be sent. Until then they count as delayed.
    pub(crate) fn reserve(&self, bytes: u64, now: Nanos) -> Nanos {
        latest(&self.sent, now, |limit| limit.charge(bytes, now))
    }

    /// Settles a reservation: so many of its bytes, or more than that, were sent.
    pub(crate) fn settle(&self, reserved: u64, sent: u64, now: Nanos) {
        for limit in &self.sent {
            if sent < reserved {
                limit.give_back(reserved - sent);
            } else {
                limit.charge(sent - reserved, now);
            }
        }
    }
}

fn latest(limits: &[RateLimit], now: Nanos, at: impl Fn(&RateLimit) -> Nanos) -> Nanos {
    let each = limits.iter().map(|limit| {
        let at = at(limit);
        if at > now {
            limit.delays(now, at);
        }
        at
    });
    each.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// A bucket as in a textbook: tokens that grow with time, up to the burst. Counted in bytes times nanoseconds.
    struct Model {
        rate: i128,
        burst: i128,
        tokens: i128,
        at: Nanos,
    }

    impl Model {
        const BYTE: i128 = SECOND as i128;

        fn new(rate: u64, burst: u64) -> Self {
            let burst = i128::from(burst) * Self::BYTE;
            Self { rate: rate.into(), burst, tokens: burst, at: 0 }
        }

        fn to(&mut self, now: Nanos) {
            self.tokens = (self.tokens + i128::from(now - self.at) * self.rate).min(self.burst);
            self.at = now;
        }

        /// When there is no debt.
        fn free_at(&self) -> Nanos {
            let debt = (-self.tokens).max(0);
            self.at + Nanos::try_from(u128::try_from(debt).unwrap().div_ceil(self.rate as u128)).unwrap()
        }
    }

    #[derive(Debug, Clone)]
    enum Do {
        Pass(Nanos),
        Charge(u64),
        ChargeAndGiveBack(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Do>> {
        let step = prop_oneof![
            (0..3 * SECOND).prop_map(Do::Pass),
            (0..50_000_u64).prop_map(Do::Charge),
            (0..50_000_u64, 0..50_000_u64).prop_map(|(a, b)| Do::ChargeAndGiveBack(a.max(b), a.min(b))),
        ];
        proptest::collection::vec(step, 1..80)
    }

    proptest! {
        #[test]
        fn counts_as_a_bucket_of_tokens(rate in 1_000..10_000_000_u64, burst in 4_096..1_000_000_u64, steps in steps()) {
            let (limit, mut model, mut now) = (RateLimit::new(rate, burst), Model::new(rate, burst), 0);
            let mut bytes = 0;
            for (count, step) in steps.into_iter().enumerate() {
                match step {
                    Do::Pass(nanos) => now += nanos,
                    Do::Charge(size) => {
                        model.to(now);
                        model.tokens -= i128::from(size) * Model::BYTE;
                        limit.charge(size, now);
                        bytes += size;
                    }
                    Do::ChargeAndGiveBack(size, back) => {
                        model.to(now);
                        model.tokens -= i128::from(size - back) * Model::BYTE;
                        limit.charge(size, now);
                        limit.give_back(back);
                        bytes += size - back;
                    }
                }
                model.to(now);
                // Rounding delays, by less than a nanosecond for each step, and never hurries.
                let (is, exact) = (limit.free_at(), model.free_at());
                if exact > now || is > now {
                    prop_assert!(is >= exact && is <= exact + count as u64 + 2, "{is} {exact} at {now}");
                }
            }
            prop_assert_eq!(limit.usage().bytes, bytes);
        }

        /// A sender that sends each reservation when it may go never exceeds the burst and the rate.
        #[test]
        fn reservations_stay_below_the_rate(
            rate in 1_000..10_000_000_u64,
            burst in 4_096..1_000_000_u64,
            asked in proptest::collection::vec((0..4_096_u64, 0..SECOND / 10, any::<bool>()), 1..200),
        ) {
            let limits = RateLimits::new().sent(RateLimit::new(rate, burst));
            let (mut now, mut sent, mut from) = (0, 0_u128, 0);
            for (bytes, pause, unused) in asked {
                now += pause;
                let size = bytes.min(limits.reservation());
                let at = limits.reserve(size, now).max(now);
                if at == now && pause > 0 && sent == 0 {
                    from = now;
                }
                now = at;
                let used = if unused { size / 2 } else { size };
                limits.settle(size, used, now);
                sent += u128::from(used);
                let most = u128::from(burst) + u128::from(now - from) * u128::from(rate) / u128::from(SECOND);
                prop_assert!(sent <= most + 1, "{sent} of {most}");
            }
        }
    }

    #[test]
    fn reservations_of_two_take_turns() {
        let limit = RateLimit::new(64 << 10, 4 << 10);
        let (first, second) = (RateLimits::new().sent(limit.clone()), RateLimits::new().sent(limit.clone()));
        first.reserve(4 << 10, 0);
        let at = [first.reserve(1 << 10, 0), second.reserve(1 << 10, 0), first.reserve(1 << 10, 0)];
        assert_eq!(at, [1, 2, 3].map(|n| n * SECOND / 64));
        // The delays overlap, and count once.
        assert_eq!(limit.usage().delayed, Duration::from_nanos(3 * SECOND / 64));
    }

    #[test]
    fn without_a_rate_nothing_waits_and_a_new_rate_begins_with_a_full_bucket() {
        let limit = RateLimit::new(0, 0);
        assert_eq!((limit.charge(u64::MAX, 5), limit.reservation()), (0, u64::MAX));
        limit.set(1_000, 8_192);
        assert!(limit.charge(8_192, 10) <= 10);
        assert!(limit.charge(1, 10) > 10);
        limit.set(0, 0);
        assert_eq!(limit.free_at(), 0);
    }

    #[test]
    fn no_amount_overflows() {
        let limit = RateLimit::new(1, u64::MAX);
        let limits = RateLimits::new().sent(limit.clone()).received(limit);
        limits.arrived(u64::MAX, u64::MAX);
        limits.settle(u64::MAX, 0, u64::MAX);
        let _ = (limits.reserve(u64::MAX, 0), limits.credit_at(0));
    }
}
