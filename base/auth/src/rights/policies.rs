//! The policies that a rule allows its readers.

use serde::{Deserialize, Serialize};

/// The policy for a slow reader, with the names of RocketBufs; a right only allows policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Policy {
    /// The reader holds the publisher back.
    Block = 0,
    /// The reader loses messages.
    Drop = 1,
    /// Its connection is closed.
    Disconnect = 2,
    /// Its data is overwritten. A rule with it is refused, since rings of a broker have flow control.
    Overwrite = 3,
}

impl Policy {
    const ALL: [Self; 4] = [Self::Block, Self::Drop, Self::Disconnect, Self::Overwrite];

    /// The name, as in a rule.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Drop => "drop",
            Self::Disconnect => "disconnect",
            Self::Overwrite => "overwrite",
        }
    }
}

/// Some policies, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies(u8);

impl Policies {
    /// No policy.
    pub const NONE: Self = Self(0);

    /// These and others.
    pub fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The policies, in the order of [`Policy`].
    pub fn iter(self) -> impl Iterator<Item = Policy> {
        Policy::ALL.into_iter().filter(move |policy| self.0 & 1 << *policy as u8 != 0)
    }
}

impl FromIterator<Policy> for Policies {
    fn from_iter<I: IntoIterator<Item = Policy>>(policies: I) -> Self {
        Self(policies.into_iter().fold(0, |bits, policy| bits | 1 << policy as u8))
    }
}
