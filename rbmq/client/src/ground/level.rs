//! The levels of confirmation, and the result of a confirmation.

use std::fmt;

use rocketbufs::Position;

/// How far published records have come: to the subscribers, the weakest level first, and then to the broker's disk and
/// archive.
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
    /// The records are in the file of a topic that the broker keeps (`keep = true`), and survive the death of the broker: a
    /// subscriber that begins there gets them. A crash of its machine may lose them. Other topics fail with
    /// [`ConfirmError::NotStored`](crate::ConfirmError::NotStored). This level says nothing about subscribers.
    Stored = 3,
    /// The records are on the disk (`fdatasync`) of a topic that the broker keeps, and survive a crash of its machine. A publisher
    /// that waits has the broker sync at once; the publishers that wait meanwhile share the next sync.
    Synced = 4,
    /// The records are in the archive below the disk, as an object store (`archive` in the rule of the topic), and survive the broker's
    /// machine with its disk. A publisher that waits has the archive get everything at once, whatever `batch_ms` says. Topics without an
    /// archive fail with [`ConfirmError::NotStored`](crate::ConfirmError::NotStored).
    Archived = 5,
}

/// The number of levels.
pub(crate) const LEVELS: usize = ConfirmLevel::ALL.len();

/// The number of levels that the framework reports: those before the levels of the disk.
pub(crate) const REPORTED: usize = 3;

impl ConfirmLevel {
    /// All levels: those of the subscribers, the weakest first, and those of the disk, the weaker first.
    pub const ALL: [Self; 6] =
        [Self::Accepted, Self::Delivered, Self::Consumed, Self::Stored, Self::Synced, Self::Archived];

    /// Whether the level is about the broker's disk or archive, and not about subscribers.
    pub fn is_of_disk(self) -> bool {
        self as usize >= REPORTED
    }

    /// The framework's name for this level. None: the broker reports it.
    pub(crate) fn framework(self) -> Option<rocketbufs::ProgressLevel> {
        match self {
            Self::Accepted => Some(rocketbufs::ProgressLevel::Landed),
            Self::Delivered => Some(rocketbufs::ProgressLevel::Delivered),
            Self::Consumed => Some(rocketbufs::ProgressLevel::Consumed),
            Self::Stored | Self::Synced | Self::Archived => None,
        }
    }
}

impl fmt::Display for ConfirmLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Delivered => "delivered",
            Self::Consumed => "consumed",
            Self::Stored => "stored",
            Self::Synced => "synced",
            Self::Archived => "archived",
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
    /// that block publishers are included while they are offline. With 0, no subscriber was required to have the records; always 0
    /// for the levels of the disk and the archive.
    pub subscribers: u32,
    /// The number of subscribers that left after the broker accepted the position. They no longer count and may not have
    /// the records. The subscribers of a broker that died are not counted here before they are back.
    pub left: u32,
    /// The number of later losses of subscribers: by their policy, or because their broker died.
    pub lost: u32,
}
