//! The names of nodes and streams.

use std::fmt;

/// The number of a node, unique among all nodes of a configuration. Not 0.
pub type NodeId = u16;

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
        (self.0 >> 48) as NodeId
    }
}

impl fmt::Display for RsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
