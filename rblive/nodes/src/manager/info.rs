//! Information of a manager about its streams and nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{NodeId, RsId};

/// A stream that this node sends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboundInfo {
    /// The stream.
    pub id: RsId,
    /// Its name.
    pub name: Arc<str>,
    /// Whether the stream was created here, and not received from another node.
    pub created_here: bool,
    /// The nodes that get the stream, in order.
    pub nodes: Vec<NodeId>,
    /// Chunks that were disseminated. 0 for a stream from another node.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time since the newest one. `None` without one, and for a stream from another node.
    pub age: Option<Duration>,
    /// The capacity of the buffer in bytes.
    pub capacity_bytes: u64,
}

/// The buffer of a stream that this node has created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamBuffer {
    /// Its capacity in bytes.
    pub capacity_bytes: u64,
    /// The largest chunk in bytes.
    pub chunk_bytes: u64,
}

/// A stream that this node receives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboundInfo {
    /// The stream.
    pub id: RsId,
    /// Its name.
    pub name: Arc<str>,
    /// The node that sends it.
    pub from: NodeId,
    /// Whether that node is connected.
    pub connected: bool,
    /// Chunks that arrived.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The time since the newest one. `None` without one.
    pub age: Option<Duration>,
    /// Bytes that were overwritten before they arrived.
    pub lost_bytes: u64,
    /// Bytes that the application has returned with [`RsManager::data_consumed`](crate::RsManager::data_consumed).
    pub returned_bytes: u64,
    /// Bytes that arrived with their markers copied into this node's memory: 0 where the sender's memory is mapped.
    pub copied_bytes: u64,
}

/// A node to which this node sends streams.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub connected: bool,
    /// The transport of the connection: `tcp`, `shm` or `rdma`.
    pub carrier: Option<&'static str>,
}
