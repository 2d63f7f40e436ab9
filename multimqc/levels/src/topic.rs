//! Names of topics.

use std::fmt;

/// The number of a topic. Each topic is one logical log.
///
/// The header form of the wire format carries it; the plain form has a port pair for each topic instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicId(pub u16);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The random name of one incarnation of a log. An offset has a meaning only together with it. 0 is no incarnation; in a request it
/// stands for any epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// No epoch, or any.
    pub const ANY: Epoch = Epoch(0);

    /// Whether a request that names this epoch may be answered from a log of epoch `log`.
    pub fn admits(self, log: Epoch) -> bool {
        self == Epoch::ANY || self == log
    }
}
