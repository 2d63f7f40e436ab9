//! The levels of confirmation, and the result of a confirmation.

use std::fmt;

use rocketbufs::Position;

/// How far published records have come, the weakest level first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConfirmLevel {
    /// The records are in the broker's memory. They are lost if the broker dies.
    Accepted = 0,
    /// The records are in the memory of every subscriber that the broker had when it accepted them. A durable
    /// subscriber counts only when it has consumed them.
    Delivered = 1,
    /// Every such subscriber has consumed the records.
    Consumed = 2,
}

impl ConfirmLevel {
    /// All levels, the weakest first.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Delivered, Self::Consumed];

    /// The framework's name for this level.
    pub(super) fn framework(self) -> rocketbufs::ProgressLevel {
        match self {
            Self::Accepted => rocketbufs::ProgressLevel::Landed,
            Self::Delivered => rocketbufs::ProgressLevel::Delivered,
            Self::Consumed => rocketbufs::ProgressLevel::Consumed,
        }
    }
}

impl fmt::Display for ConfirmLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Delivered => "delivered",
            Self::Consumed => "consumed",
        })
    }
}

/// The result of a confirmation that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// The level.
    pub level: ConfirmLevel,
    /// Everything below this position is confirmed: the position that was asked for, or a later one.
    pub position: Position,
    /// The number of subscribers that the confirmation covers, at the ends of all chains of brokers. Durable subscribers
    /// that block publishers are included while they are offline. With 0, no subscriber was required to have the records.
    pub subscribers: u32,
    /// The number of subscribers that left after the broker accepted the position. They no longer count and may not have
    /// the records. The subscribers of a broker that died are not counted here before they are back.
    pub left: u32,
    /// The number of later losses of subscribers: by their policy, or because their broker died.
    pub lost: u32,
}
