//! The words that everything here shares.

use std::fmt;

pub use rocketnet::WireId;
pub use rocketring::Position;

/// Identifies a buffer; chosen by the application, unique in its endpoint (paper 1, section 3.1, `bid_t`).
pub type Bid = u32;

/// How far the receivers of a buffer are, the weakest level first. At each level there is a position below which everything has
/// come that far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ProgressLevel {
    /// In the memory of every subscriber. A subscriber over shared memory reads the sender's ring. For it, everything that it
    /// received has landed if it is durable with [`Policy::Block`], and otherwise everything that it gave back: the sender keeps
    /// these bytes without the connection too.
    Landed = 0,
    /// In the memory of every receiver at the end of a chain of splices.
    Delivered = 1,
    /// Given back by the application of every such receiver.
    Consumed = 2,
}

impl ProgressLevel {
    /// All levels, the weakest first.
    pub const ALL: [Self; 3] = [Self::Landed, Self::Delivered, Self::Consumed];
}

/// A time-out that no call outlives, within the range of clocks.
pub(crate) const NO_LIMIT: std::time::Duration = std::time::Duration::from_secs(1 << 32);

/// Monotonic nanoseconds since an arbitrary start: the only time that the machines here know, always a parameter.
pub type Nanos = u64;

/// Random name of one writer's log. A position means something only together with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u128);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({:032x})", self.0)
    }
}

/// The sender's treatment of a subscription whose receiver is slow; every subscription has its own policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Policy {
    /// The subscription holds the writer back (with flow control only). Nothing is lost.
    #[default]
    Block = 0,
    /// At a lag of `max_lag` it skips to the newest complete delivery and is told what it lost.
    Drop = 1,
    /// At a lag of `max_lag` its connection is closed, with the reason.
    Disconnect = 2,
    /// Without flow control: the writer never waits; a receiver that was lapped is told by how much.
    Overwrite = 3,
}

impl Policy {
    pub(crate) fn from_u8(value: u8) -> Option<Self> {
        [Self::Block, Self::Drop, Self::Disconnect, Self::Overwrite].into_iter().find(|p| *p as u8 == value)
    }
}

impl Policy {
    /// Its name, as it is written in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Drop => "drop",
            Self::Disconnect => "disconnect",
            Self::Overwrite => "overwrite",
        }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "block" => Ok(Self::Block),
            "drop" => Ok(Self::Drop),
            "disconnect" => Ok(Self::Disconnect),
            "overwrite" => Ok(Self::Overwrite),
            other => Err(format!("'{other}' is no policy; it is one of block, drop, disconnect, overwrite")),
        }
    }
}
