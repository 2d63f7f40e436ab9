//! The names of nodes and streams.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use locks::Mutex;

/// The number of a node, unique among all nodes of a configuration. Not 0.
pub type NodeId = u16;

const TIME_BITS: u32 = 48;

/// The id of a stream, unique across nodes and across restarts of a node: 16 bits of the node that created it, and 48 bits of the
/// time of creation in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RsId(u64);

impl RsId {
    /// The id that a number stands for.
    pub fn from_u64(id: u64) -> Self {
        Self(id)
    }

    /// The id as a number.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// The node that created the stream.
    pub fn node(self) -> NodeId {
        (self.0 >> TIME_BITS) as NodeId
    }
}

impl fmt::Display for RsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::str::FromStr for RsId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// Makes the ids of a node's streams.
#[derive(Debug)]
pub(crate) struct IdMaker {
    node: NodeId,
    last_us: Mutex<u64>,
}

impl IdMaker {
    pub(crate) fn new(node: NodeId) -> Self {
        Self { node, last_us: Mutex::new(0) }
    }

    /// An id that this node has not made before. A clock that stands still or is set back does not repeat an id within a process.
    pub(crate) fn next(&self) -> RsId {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let mut last = self.last_us.lock();
        *last = now.max(*last + 1);
        RsId(u64::from(self.node) << TIME_BITS | *last & ((1 << TIME_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_name_their_node() {
        let maker = IdMaker::new(9);
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| maker.next()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.node() == 9 && id.to_string().parse() == Ok(*id)));
    }
}
