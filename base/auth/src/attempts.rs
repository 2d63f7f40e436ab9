//! Failed logins by source, and how long a source waits after them.
//!
//! ```text
//!   failures   1..=3   4      5      6    …   10      after a pause of ten longest delays: forgotten
//!   delay      none    0.5 s  1 s    2 s  …   30 s    (the default of AttemptRule)
//! ```
//!
//! Only the check of a password is delayed, because it is expensive. A valid token, or a password that was checked shortly before,
//! passes without a delay. So a client that guesses passwords from a shared address does not lock out the other clients there whose
//! credentials cannot be guessed.
//!
//! A successful login clears only that user's failures. Otherwise an attacker could log in as himself between two guesses, and have no
//! delay.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use peers::HostAddress;

/// The longest delay of a source, if a rule does not say otherwise.
pub const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// How failed logins delay their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptRule {
    /// Failures without a delay. Default 3: people mistype.
    pub free: u32,
    /// The delay after the next failure. Each further failure doubles it. Default 0.5 s.
    pub first_delay: Duration,
    /// The longest delay. Default [`LONGEST_DELAY`].
    pub longest_delay: Duration,
    /// A source is forgotten after this time without a failure. Default 5 minutes.
    pub memory: Duration,
}

impl Default for AttemptRule {
    fn default() -> Self {
        Self {
            free: 3,
            first_delay: Duration::from_millis(500),
            longest_delay: LONGEST_DELAY,
            memory: Duration::from_secs(300),
        }
    }
}

/// The most sources that are remembered. A source costs about 150 bytes.
const MAX_SOURCES: usize = 16_384;

/// Where a client comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A host.
    Address(HostAddress),
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
        address.parse().map_or(Self::Unknown, Self::Address)
    }
}

/// The users whose logins have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// All failures name one user; this is the hash of the name.
    One(u64),
    /// The failures name several users, or no user.
    Several,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
    whose: Whose,
}

/// The sources of failed logins.
#[derive(Debug, Default)]
pub struct Attempts {
    rule: AttemptRule,
    sources: HashMap<Source, Failures>,
    /// The same, by the time of the last failure.
    by_age: BTreeSet<(Instant, Source)>,
    names: RandomState,
}

impl Attempts {
    /// No failures yet.
    pub fn new(rule: AttemptRule) -> Self {
        Self { rule, ..Self::default() }
    }

    /// How long a source still has to wait. `None`: it need not wait.
    pub fn delay(&self, source: Source, now: Instant) -> Option<Duration> {
        let Failures { count, last, .. } = *self.sources.get(&source)?;
        let AttemptRule { free, first_delay, longest_delay, .. } = self.rule;
        let doublings = count.checked_sub(free)?.checked_sub(1)?;
        let delay = first_delay.saturating_mul(1 << doublings.min(16)).min(longest_delay);
        delay.checked_sub(now.saturating_duration_since(last)).filter(|left| !left.is_zero())
    }

    /// Whether a source has failed so often that it has to wait after every further failure.
    pub fn is_suspect(&self, source: Source) -> bool {
        self.sources.get(&source).is_some_and(|failures| failures.count >= self.rule.free)
    }

    /// Counts a failed login, of the user who was named.
    pub fn failed(&mut self, source: Source, user: Option<&str>, now: Instant) {
        self.forget_old(now);
        let whose = user.map_or(Whose::Several, |user| self.one(user));
        let mut failures = Failures { count: 0, last: now, whose };
        if let Some(known) = self.sources.get(&source) {
            self.by_age.remove(&(known.last, source));
            failures.count = known.count;
            if known.whose != whose {
                failures.whose = Whose::Several;
            }
        } else if self.sources.len() >= MAX_SOURCES
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.sources.remove(&oldest);
        }
        failures.count = failures.count.saturating_add(1);
        self.sources.insert(source, failures);
        self.by_age.insert((now, source));
    }

    /// Records that a user has logged in with a password. The failures of a source are cleared if all of them are of this user.
    /// `counted`: this login was counted as a failure before its check.
    pub fn succeeded(&mut self, source: Source, user: &str, counted: bool) {
        let own = self.one(user);
        let Some(known) = self.sources.get_mut(&source) else { return };
        known.count -= u32::from(counted && known.count > 0);
        if known.whose == own || known.count == 0 {
            self.by_age.remove(&(known.last, source));
            self.sources.remove(&source);
        }
    }

    fn one(&self, user: &str) -> Whose {
        Whose::One(self.names.hash_one(user))
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
            && now.saturating_duration_since(last) > self.rule.memory
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

    const MEMORY: Duration = Duration::from_secs(300);

    fn source(n: u32) -> Source {
        Source::Unix(n)
    }

    #[test]
    fn the_delay_doubles_up_to_a_limit() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let delays: Vec<u128> = (0..12)
            .map(|_| {
                attempts.failed(source(1), Some("a"), now);
                attempts.delay(source(1), now).map_or(0, |delay| delay.as_millis())
            })
            .collect();
        assert_eq!(delays, [0, 0, 0, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        assert_eq!(attempts.delay(source(1), now + LONGEST_DELAY), None);
        assert_eq!(attempts.delay(source(2), now), None);
        attempts.succeeded(source(1), "a", false);
        assert_eq!(attempts.delay(source(1), now), None);
        assert!(attempts.is_empty());
    }

    /// A rule with one length of delays is a limit of attempts in a time.
    #[test]
    fn a_rule_says_how_many_failures_are_free_and_what_follows() {
        let minute = Duration::from_secs(60);
        let rule = |free| AttemptRule { free, first_delay: minute, longest_delay: minute, memory: minute };
        let (mut attempts, now) = (Attempts::new(rule(2)), Instant::now());
        let mut delays = (0..4).map(|_| {
            attempts.failed(source(1), None, now);
            attempts.delay(source(1), now)
        });
        assert!(delays.by_ref().take(2).all(|delay| delay.is_none()));
        assert_eq!(delays.collect::<Vec<_>>(), [Some(minute), Some(minute)]);
        assert_eq!(attempts.delay(source(1), now + minute), None);
        attempts.failed(source(1), None, now + 2 * minute);
        assert_eq!(attempts.delay(source(1), now + 2 * minute), None, "the others are forgotten");
        let mut unlimited = Attempts::new(rule(u32::MAX));
        (0..100).for_each(|_| unlimited.failed(source(1), None, now));
        assert!(unlimited.delay(source(1), now).is_none() && !unlimited.is_suspect(source(1)));
    }

    #[test]
    fn a_right_password_makes_up_for_failures_of_its_user_alone() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for user in [Some("a"), Some("a"), Some("a"), Some("b")] {
            attempts.failed(source(1), user, now);
            attempts.failed(source(2), user.filter(|user| *user == "a"), now);
        }
        for n in [1, 2] {
            let waits = attempts.delay(source(n), now);
            attempts.succeeded(source(n), "a", false);
            assert!(waits.is_some() && attempts.delay(source(n), now) == waits);
            // The attempt itself was no failure.
            attempts.succeeded(source(n), "a", true);
            assert_eq!(attempts.delay(source(n), now), None);
            assert!(attempts.is_suspect(source(n)));
        }
    }

    #[test]
    fn a_flood_of_sources_takes_bounded_memory() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for n in 0..MAX_SOURCES as u32 + 1000 {
            attempts.failed(source(n), None, now + Duration::from_micros(n.into()));
        }
        assert_eq!((attempts.len(), attempts.by_age.len()), (MAX_SOURCES, MAX_SOURCES));
        attempts.failed(source(0), None, now + 2 * MEMORY);
        assert_eq!((attempts.len(), attempts.by_age.len()), (1, 1));
    }

    proptest! {
        /// Compared with a list of the failures of each source, of users 0 to 2; user 0 is none.
        #[test]
        fn behaves_like_a_plain_list(
            steps in proptest::collection::vec((0_u32..4, 0_usize..3, 0_u64..40_000, any::<bool>()), 1..60),
        ) {
            const USERS: [Option<&str>; 3] = [None, Some("a"), Some("b")];
            let (mut attempts, mut now) = (Attempts::default(), Instant::now());
            let mut model: Vec<(u32, Vec<usize>, Instant)> = Vec::new();
            for (n, user, pause, fails) in steps {
                now += Duration::from_millis(pause);
                if fails {
                    attempts.failed(source(n), USERS[user], now);
                    model.retain(|(_, _, last)| now - *last <= MEMORY);
                    let mut users = model.iter().find(|m| m.0 == n).map_or(Vec::new(), |m| m.1.clone());
                    users.push(user);
                    model.retain(|m| m.0 != n);
                    model.push((n, users, now));
                } else if let Some(name) = USERS[user] {
                    attempts.succeeded(source(n), name, false);
                    model.retain(|m| m.0 != n || m.1.iter().any(|failed| *failed != user));
                }
                for n in 0..4 {
                    let expected = model.iter().find(|m| m.0 == n).and_then(|(_, users, last)| {
                        let doublings = u32::try_from(users.len()).unwrap().checked_sub(4)?;
                        let millis = (500_u64 << doublings.min(16)).min(30_000);
                        Duration::from_millis(millis).checked_sub(now - *last).filter(|left| !left.is_zero())
                    });
                    prop_assert_eq!(attempts.delay(source(n), now), expected);
                }
            }
        }
    }
}
