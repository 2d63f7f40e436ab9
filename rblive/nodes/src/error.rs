//! The errors of a manager's calls.

use rocketbufs::error::{BufferError, ContextError, ListenError};

use crate::chunk::RsChunk;
use crate::config::ConfigError;
use crate::ids::{NodeId, RsId};

/// Why a manager could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The framework could not start.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The address of the node cannot be listened on.
    #[error("the address of this node in `nodes`: {0}")]
    Listen(#[from] ListenError),
    /// The system gave no thread.
    #[error("the system gives no thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The token of the nodes cannot be used.
    #[error("{0}")]
    Token(String),
}

/// Why a call on a stream failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The name is not allowed; see [`check_name`](crate::content::check_name).
    #[error("'{}' is no name of a stream: use letters, digits and . _ - /", .0.escape_default())]
    Name(String),
    /// The node has as many streams as the configuration allows.
    #[error("the node has {0} streams, the most that streams.max_streams allows")]
    TooMany(usize),
    /// The node has no such stream.
    #[error("this node has no stream {0}")]
    NoSuchStream(RsId),
    /// The configuration has no such node.
    #[error("the configuration has no node {0}")]
    NoSuchNode(NodeId),
    /// The node does not receive streams: it has no address.
    #[error("node {0} has no address at which it takes streams")]
    NoAddress(NodeId),
    /// This node does not disseminate.
    #[error("this node has the role of a delivery node, and creates and sends no streams")]
    NotDisseminating,
    /// The memory for the stream's buffer is missing.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// The system gave no thread for the connection to a node.
    #[error("the system gives no thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Why a chunk was not allocated or not disseminated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The node has no such stream, or it came from another node.
    #[error("this node does not write stream {0}")]
    NoSuchStream(RsId),
    /// The chunk is larger than the stream's largest.
    #[error(
        "a chunk of {size} bytes is larger than streams.chunk_bytes, or than an eighth of a buffer that has grown: {max}"
    )]
    TooLarge {
        /// The asked size.
        size: usize,
        /// The most that is allowed.
        max: u64,
    },
    /// A chunk has at least one byte.
    #[error("a chunk has at least one byte")]
    Empty,
    /// Too many chunks were allocated and neither disseminated nor dropped.
    #[error("too many chunks of the stream are allocated: disseminate or drop one")]
    TooManyOpen,
    /// Only the newest allocated chunk can be shorter than it was allocated. The error returns the chunk.
    #[error("only the newest allocated chunk can be disseminated shorter than it was allocated")]
    NotNewest(Box<RsChunk>),
    /// The size is larger than the chunk. The error returns the chunk.
    #[error("{size} bytes of a chunk of {} bytes", .chunk.size())]
    TooLong {
        /// The size that was given.
        size: usize,
        /// The chunk.
        chunk: Box<RsChunk>,
    },
    /// Too many chunks wait for their callback.
    #[error(
        "{0} chunks of the stream wait for their callback, the most that limits.max_pending_contexts allows"
    )]
    TooManyContexts(usize),
    /// The stream has ended.
    #[error("the stream has ended")]
    Ended,
}
