//! Limits that a sender sets for the options of a buffer's subscriptions.

use std::fmt;
use std::time::Duration;

use crate::ground::types::{Bid, Policy};

/// A set of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicySet(u8);

impl PolicySet {
    /// Every policy.
    pub const ALL: Self = Self(0b1111);

    /// The policies that a buffer can have at all.
    pub(crate) fn possible(flow_control: bool) -> Self {
        match flow_control {
            true => [Policy::Block, Policy::Drop, Policy::Disconnect].into_iter().collect(),
            false => [Policy::Disconnect, Policy::Overwrite].into_iter().collect(),
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Bit n stands for the policy of that number.
    pub(crate) fn bits(self) -> u64 {
        self.0.into()
    }

    /// The policies of a peer's bits; bits without a policy are passed over.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self((bits & Self::ALL.bits()) as u8)
    }

    /// Whether it is one of them.
    pub fn contains(self, policy: Policy) -> bool {
        self.0 & 1 << policy as u8 != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// All of them, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Policy> {
        (0..4).filter_map(Policy::from_u8).filter(move |policy| self.contains(*policy))
    }
}

/// A peer that asks to subscribe; see [`ROut::set_admission`](crate::ROut::set_admission).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asking<'a> {
    /// The id of the connection.
    pub conn: u64,
    /// The buffer.
    pub bid: Bid,
    /// The name of the subscription; empty if it has none.
    pub name: &'a [u8],
}

/// The options that the application lets a peer subscribe with; see [`ROut::set_admission`](crate::ROut::set_admission).
///
/// ```
/// use rocketbufs::{Admitted, PolicySet};
/// let admitted = Admitted { policies: PolicySet::ALL, owner: 7 };
/// assert_eq!(Admitted::from(PolicySet::ALL).owner, 0);
/// # assert!(admitted.policies == PolicySet::ALL);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// The policies that the peer may ask for.
    pub policies: PolicySet,
    /// The owner of the subscription's name: subscriptions of different owners with the same name have nothing to do with each
    /// other. Otherwise a peer that knows a name takes over the subscription and its held position.
    pub owner: u64,
}

impl From<PolicySet> for Admitted {
    /// The same owner for everybody.
    fn from(policies: PolicySet) -> Self {
        Self { policies, owner: 0 }
    }
}

impl FromIterator<Policy> for PolicySet {
    fn from_iter<I: IntoIterator<Item = Policy>>(policies: I) -> Self {
        Self(policies.into_iter().fold(0, |bits, policy| bits | 1 << policy as u8))
    }
}

impl fmt::Display for PolicySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter().map(|policy| policy.to_string()).collect();
        f.write_str(&names.join(", "))
    }
}

/// How long a subscription with [`Policy::Block`] may hold the writer without progress while others wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockTimeout {
    /// The default: the one of the buffer's limits, or else `session.block_timeout_ms` of the sender.
    #[default]
    Default,
    /// At most this long; the subscription is disconnected then. Whole milliseconds, and at least one.
    After(Duration),
    /// Without a limit.
    Never,
}

impl BlockTimeout {
    /// The time in whole milliseconds, 0 for no limit, as a message says it; none for the default.
    pub(crate) fn millis(self) -> Option<u32> {
        match self {
            Self::Default => None,
            Self::After(duration) => Some(millis(duration).max(1)),
            Self::Never => Some(0),
        }
    }
}

/// The limits for options that subscriptions of a buffer ask for; see
/// [`OutBuffer::set_limits`](crate::OutBuffer::set_limits). The default allows everything.
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Policy, SubscriptionLimits};
///
/// let limits = SubscriptionLimits::new()
///     .policies([Policy::Block, Policy::Drop].into_iter().collect())
///     .max_hold(Some(Duration::from_secs(60)));
/// # drop(limits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionLimits {
    pub(crate) policies: PolicySet,
    max_lag_bytes: Option<u64>,
    block_timeout: BlockTimeout,
    max_hold: Option<Duration>,
}

impl Default for SubscriptionLimits {
    fn default() -> Self {
        let (policies, block_timeout) = (PolicySet::ALL, BlockTimeout::Default);
        Self { policies, max_lag_bytes: None, block_timeout, max_hold: None }
    }
}

/// Whole milliseconds, as a message says them; `u32::MAX` has a meaning of its own there.
pub(crate) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX - 1)
}

impl SubscriptionLimits {
    /// The default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The lag in force; `asked` is 0 if nothing was asked for, `default` applies then without a limit.
    pub(crate) fn lag(&self, asked: u64, default: Option<u64>) -> Option<u64> {
        match (asked, self.max_lag_bytes) {
            (0, most) => most.or(default),
            (asked, most) => Some(asked.min(most.unwrap_or(u64::MAX))),
        }
    }

    /// The time-out in force, in milliseconds, 0 for no limit; `asked` is none if nothing was asked for.
    pub(crate) fn timeout_ms(&self, asked: Option<u32>, default: u32) -> u32 {
        match (asked, self.block_timeout.millis()) {
            (None, most) => most.unwrap_or(default),
            (Some(asked), None | Some(0)) => asked,
            (Some(0), Some(most)) => most,
            (Some(asked), Some(most)) => asked.min(most),
        }
    }

    /// How long a place is kept, in milliseconds; `asked` for that long.
    pub(crate) fn hold_ms(&self, asked: u32) -> u32 {
        asked.min(self.max_hold.map_or(u32::MAX, millis))
    }
}

option_setters::setters! { SubscriptionLimits:
    /// The allowed policies. Another policy is refused, and the receiver is told which policies are allowed. Default: all.
    policies(policies: PolicySet);
    /// The largest lag in bytes at which `drop` and `disconnect` act, and the lag at which they act where the receiver named
    /// none. A larger lag is lowered to this. `None`: no limit.
    max_lag_bytes(bytes: Option<u64>);
    /// Upper limit of `block_timeout`, and its value for receivers that give none. A longer time is lowered to this.
    /// [`BlockTimeout::Never`]: no limit for receivers that give none.
    block_timeout(timeout: BlockTimeout);
    /// The longest time for which the place of a durable subscription is kept. A longer time is lowered to this. `None`: no
    /// limit but `limits.max_hold_ms`.
    max_hold(hold: Option<Duration>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_lowered_and_never_raised() {
        let none = SubscriptionLimits::default();
        let some = SubscriptionLimits {
            max_lag_bytes: Some(100),
            block_timeout: BlockTimeout::After(Duration::from_millis(50)),
            max_hold: Some(Duration::from_millis(7)),
            ..none
        };
        let lags = |limits: &SubscriptionLimits| [0, 200, 3].map(|asked| limits.lag(asked, Some(9)).unwrap());
        assert_eq!((lags(&none), lags(&some)), ([9, 200, 3], [100, 100, 3]));
        assert_eq!((none.lag(0, None), none.lag(200, None)), (None, Some(200)));
        assert_eq!((none.timeout_ms(None, 9), none.timeout_ms(Some(0), 9)), (9, 0));
        assert_eq!((some.timeout_ms(None, 9), some.timeout_ms(Some(0), 9)), (50, 50));
        assert_eq!((some.timeout_ms(Some(60), 9), some.timeout_ms(Some(20), 9)), (50, 20));
        let never = SubscriptionLimits { block_timeout: BlockTimeout::Never, ..none };
        assert_eq!((never.timeout_ms(None, 9), never.timeout_ms(Some(20), 9)), (0, 20));
        assert_eq!((none.hold_ms(9), some.hold_ms(9), some.hold_ms(3)), (9, 7, 3));
    }

    #[test]
    fn sets_of_policies() {
        let set: PolicySet = [Policy::Disconnect, Policy::Block].into_iter().collect();
        assert_eq!(set.to_string(), "block, disconnect");
        assert_eq!(PolicySet::from_bits(set.bits() | 1 << 40), set);
        assert_eq!(PolicySet::possible(false).and(set).to_string(), "disconnect");
        assert!(PolicySet::from_bits(0).is_empty());
    }
}
