//! What the subscriptions of a buffer may ask for: the sender's word against the receivers'.

use std::fmt;
use std::time::Duration;

use crate::types::Policy;

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

    /// The policies of a peer's bits; what is none is passed over.
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

/// What a buffer's subscriptions may ask for; see [`ROut::set_limits`](crate::ROut::set_limits). The default allows
/// everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionLimits {
    /// Another policy is refused, and the receiver is told which are allowed.
    pub policies: PolicySet,
    /// The largest lag at which `drop` and `disconnect` act, in bytes, and where they act if the receiver named none.
    /// A larger one becomes this.
    pub max_lag_bytes: Option<u64>,
    /// The longest that `block` may hold the writer without progress, and how long it may if the receiver named
    /// nothing. A longer one, and "for ever", becomes this. Zero: for ever.
    pub block_timeout: Option<Duration>,
    /// The longest that a place is kept. A longer one becomes this.
    pub max_hold: Option<Duration>,
}

impl Default for SubscriptionLimits {
    fn default() -> Self {
        Self { policies: PolicySet::ALL, max_lag_bytes: None, block_timeout: None, max_hold: None }
    }
}

/// Whole milliseconds, as a message says them; `u32::MAX` has a meaning of its own there.
pub(crate) fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX - 1)
}

impl SubscriptionLimits {
    /// The lag in force; `asked` is 0 if nothing was asked for, `default` is what counts then without terms.
    pub(crate) fn lag(&self, asked: u64, default: u64) -> u64 {
        match (asked, self.max_lag_bytes) {
            (0, Some(most)) => most,
            (0, None) => default,
            (asked, most) => asked.min(most.unwrap_or(u64::MAX)),
        }
    }

    /// The time-out in force, in milliseconds, 0 for ever; `asked` is none if nothing was asked for.
    pub(crate) fn timeout_ms(&self, asked: Option<u32>, default: u32) -> u32 {
        match (asked, self.block_timeout.map(millis)) {
            (None, most) => most.unwrap_or(default),
            (Some(asked), None | Some(0)) => asked,
            (Some(0), Some(most)) => most,
            (Some(asked), Some(most)) => asked.min(most),
        }
    }

    /// How long a place is kept, in milliseconds.
    pub(crate) fn hold_ms(&self, asked: u32) -> u32 {
        asked.min(self.max_hold.map_or(u32::MAX, millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_lowered_and_never_raised() {
        let none = SubscriptionLimits::default();
        let some = SubscriptionLimits {
            max_lag_bytes: Some(100),
            block_timeout: Some(Duration::from_millis(50)),
            max_hold: Some(Duration::from_millis(7)),
            ..none
        };
        assert_eq!((none.lag(0, 9), none.lag(200, 9)), (9, 200));
        assert_eq!((some.lag(0, 9), some.lag(200, 9), some.lag(3, 9)), (100, 100, 3));
        assert_eq!((none.timeout_ms(None, 9), none.timeout_ms(Some(0), 9)), (9, 0));
        assert_eq!((some.timeout_ms(None, 9), some.timeout_ms(Some(0), 9)), (50, 50));
        assert_eq!((some.timeout_ms(Some(60), 9), some.timeout_ms(Some(20), 9)), (50, 20));
        let ever = SubscriptionLimits { block_timeout: Some(Duration::ZERO), ..none };
        assert_eq!((ever.timeout_ms(None, 9), ever.timeout_ms(Some(20), 9)), (0, 20));
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
