//! Events of a stream on a delivery node, besides chunks.

use std::sync::Arc;

/// An event of a received stream. Events and chunks of a stream come in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamEvent {
    /// The stream begins at this node. Its first chunks may be older than the event.
    Began {
        /// The name of the stream.
        name: Arc<str>,
    },
    /// Chunks of the stream were overwritten before this node received them.
    Lost {
        /// Their bytes, with their markers.
        bytes: u64,
    },
    /// The connection to the sending node is lost. The stream continues if the node returns within `dissemination.linger_ms`.
    Interrupted,
    /// The sending node has returned.
    Resumed,
    /// The stream has ended. Its chunks remain readable while references to them exist.
    Ended,
}
