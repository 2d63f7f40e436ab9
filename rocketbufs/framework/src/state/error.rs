//! Errors, one enum for each operation. `Full` and `TimedOut` are outcomes that an application expects.
//!
//! The crate's root re-exports those that programs match on while they run: [`SegmentError`], [`WaitError`] and [`DownReason`].
//! Errors of configuration are in [`config`](crate::config).

use crate::config::ConfigError;
use crate::ground::out_segment::OutSegment;
use crate::ground::types::{Bid, Position};
use crate::proto::CloseCode;

pub use crate::proto::{RefuseCode, RefusedError};
pub use rocketnet::tcp::TlsError;

/// A context could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A knob has a value that it cannot have.
    #[error(transparent)]
    Config(ConfigError),
    /// Memory for rings cannot be reserved.
    #[error("cannot reserve memory for rings: {0}")]
    Memory(rocketring::PoolError),
    /// The transport cannot be set up.
    #[error(transparent)]
    Transport(rocketnet::TransportError),
    /// The files of `[tls]` cannot be used.
    #[error(transparent)]
    Tls(TlsError),
    /// The system refused a thread or a descriptor.
    #[error("cannot start a worker thread: {0}")]
    Thread(std::io::Error),
}

/// A connection could not be made or used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConnError {
    /// The application's hello is longer than the protocol allows.
    #[error("the hello has {size} bytes; at most {max} are allowed")]
    HelloTooLong {
        /// Its size.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The connection is down, and why.
    #[error(transparent)]
    Down(DownReason),
    /// The peer did not answer in time.
    #[error("{addr} did not accept the connection within {waited_ms} ms")]
    TimedOut {
        /// Where to.
        addr: String,
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// The process has no descriptor left, with which a task would wait for the connection.
    #[error("no descriptor to wait for the connection with: {0}")]
    Descriptor(String),
    /// A call that waits was made from a callback.
    #[error("this call waits and was made from a callback, which runs on the thread it would wait for")]
    CalledFromWorker,
}

/// Why a connection is down, and which end brought it down. The text is for people; programs look at the variant and its
/// code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DownReason {
    /// This end closed the connection.
    #[error("{text}")]
    Local {
        /// The code that the peer was told.
        code: CloseCode,
        /// The reason that the peer was told.
        text: String,
    },
    /// The peer closed the connection.
    #[error("{}", closed_by_peer(*code, text))]
    Peer {
        /// The code that the peer told.
        code: CloseCode,
        /// The reason that the peer told.
        text: String,
    },
    /// The network, the transport or the peer's machine failed, or the connection could not be made.
    #[error(transparent)]
    Transport(rocketnet::Down),
    /// This end could not begin the connection, or used it after it was down.
    #[error("{0}")]
    NotStarted(String),
}

impl DownReason {
    /// The code of an orderly close, by either end.
    pub fn code(&self) -> Option<CloseCode> {
        match self {
            Self::Local { code, .. } | Self::Peer { code, .. } => Some(*code),
            Self::Transport(_) | Self::NotStarted(_) => None,
        }
    }

    /// Whether the peer closed the connection because another one took over: a client that reconnects would take the place
    /// back.
    pub fn is_taken_over(&self) -> bool {
        matches!(self, Self::Peer { code: CloseCode::TakenOver, .. })
    }
}

fn closed_by_peer(code: CloseCode, text: &str) -> String {
    match code {
        CloseCode::NotAccepted => format!("not accepted: {text}"),
        CloseCode::Normal => format!("the peer closed: {text}"),
        other => format!("the peer closed ({other:?}): {text}"),
    }
}

/// A listener cannot use its address.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another socket listens on the address.
    #[error("cannot listen on {addr}: {reason}")]
    AddressInUse {
        /// The address.
        addr: String,
        /// The text of the transport's error.
        reason: String,
    },
    /// The address is invalid, or the system refuses it.
    #[error("cannot listen on {addr}: {reason}")]
    Refused {
        /// The address.
        addr: String,
        /// The text of the error.
        reason: String,
    },
    /// A call that waits was made from a callback.
    #[error("this call waits and was made from a callback, which runs on the thread it would wait for")]
    CalledFromWorker,
}

impl ListenError {
    pub(crate) fn of_transport(addr: &str, error: &rocketnet::TransportError) -> Self {
        let (addr, reason) = (addr.to_owned(), error.to_string());
        match error {
            rocketnet::TransportError::Listen { source, .. }
                if source.kind() == std::io::ErrorKind::AddrInUse =>
            {
                Self::AddressInUse { addr, reason }
            }
            _ => Self::Refused { addr, reason },
        }
    }
}

/// A control message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The control message is too large.
    #[error("the control message has {size} bytes; at most {max} are allowed")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// Too many wait to be sent: the peer reads too slowly, or they are made too fast.
    #[error("{queued} bytes of control messages wait to be sent; try again later")]
    Full {
        /// Bytes that wait.
        queued: usize,
    },
    /// The connection is down.
    #[error("the connection is down")]
    Down,
}

/// A buffer could not be made, found or spliced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// The id is taken in this rOut.
    #[error("buffer {0} exists already in this rOut")]
    Exists(Bid),
    /// The rOut has no such buffer.
    #[error("there is no buffer {0} here")]
    NoSuchBuffer(Bid),
    /// The buffer belongs to a spliced rIn: only its remote writer writes.
    #[error("buffer {0} is spliced: only its remote writer writes into it")]
    Spliced(Bid),
    /// The buffer was destroyed.
    #[error("buffer {0} was destroyed")]
    Closed(Bid),
    /// The buffer is not spliced.
    #[error("buffer {0} is not spliced: it ends when it is destroyed")]
    NotSpliced(Bid),
    /// The buffer is spliced, and the sender has not answered its subscription yet.
    #[error("the subscription that buffer {0} is spliced from was not answered yet")]
    NotAnswered(Bid),
    /// The subscription shares a budget: its ring comes and goes, and cannot be another buffer's.
    #[error(
        "the subscription of buffer {0} shares a budget and cannot be spliced; give it a ring of its own"
    )]
    Budgeted(Bid),
    /// The subscription that was to be spliced could not be begun.
    #[error(transparent)]
    NotSubscribed(#[from] SubscribeError),
    /// An [`InReader`](crate::InReader) receives for all of that rIn.
    #[error("the rIn of buffer {0} has a reader, which alone receives; drop that first")]
    HasReader(Bid),
    /// The writer of this buffer is in use by another thread.
    #[error("the writer of buffer {0} was taken; a buffer has one writer")]
    WriterTaken(Bid),
    /// More buffers than configured.
    #[error("{0} buffers and subscriptions exist: the limit (limits.max_buffers)")]
    TooMany(usize),
    /// The log would begin so near the last position that a delivery may not fit.
    #[error(
        "a log that begins at position {start} has no room for a delivery of {max_delivery} bytes; \
         begin it at {} or below", u64::MAX - max_delivery
    )]
    NoPositions {
        /// Where the log was to begin.
        start: Position,
        /// The buffer's largest delivery, in bytes.
        max_delivery: u64,
    },
    /// No memory for its ring.
    #[error(transparent)]
    Memory(#[from] rocketring::PoolError),
}

/// A segment of a buffer cannot be had now, or ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// No room: the slowest subscriber that holds has not taken enough yet. An outcome; try again, or wait.
    #[error("the buffer is full")]
    Full,
    /// No room within the time given.
    #[error("the buffer stayed full for the time given")]
    TimedOut,
    /// Larger than any delivery of this buffer may be.
    #[error("{size} bytes were asked for; a delivery of this buffer has at most {max}")]
    TooLarge {
        /// Asked for.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// No bytes were asked for.
    #[error("a segment of no bytes was asked for; a delivery has at least one")]
    Empty,
    /// Too many segments are open at once.
    #[error("too many segments of this buffer are open; deliver some first")]
    TooManyOpen,
    /// A segment was dropped without being delivered while newer ones are open: the log cannot go on.
    #[error("a segment of this buffer was dropped undelivered; deliver it with size 0 to give it back")]
    SegmentLost,
    /// The rOut has no such buffer.
    #[error("there is no buffer {0} here")]
    NoSuchBuffer(Bid),
    /// The buffer is spliced.
    #[error("buffer {0} is spliced: only its remote writer writes into it")]
    Spliced(Bid),
    /// The writer of the buffer was taken.
    #[error("the writer of buffer {0} was taken; a buffer has one writer")]
    WriterTaken(Bid),
    /// The buffer was destroyed, or the context was shut down.
    #[error("the buffer was destroyed, or its context was shut down")]
    Closed,
    /// A call that waits was made from a callback.
    #[error("this call waits and was made from a callback, which runs on the thread it would wait for")]
    CalledFromWorker,
}

/// A segment was not delivered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// Only the newest open segment may be delivered short or given back.
    #[error("only the newest open segment may be delivered with fewer bytes than it has")]
    ShortDeliver(OutSegment),
    /// More than the segment has.
    #[error("{size} bytes were delivered of a segment that has fewer")]
    TooLong {
        /// The number of bytes that the caller asked to deliver.
        size: u64,
        /// The segment, given back to the caller.
        segment: OutSegment,
    },
    /// The segment belongs to another buffer, or its buffer's writer was taken.
    #[error("the segment does not belong to this writer")]
    Foreign(OutSegment),
    /// The buffer was destroyed, or the context was shut down.
    #[error("the buffer was destroyed, or its context was shut down")]
    Closed,
    /// Too many deliveries with a context wait for their confirmation (`limits.max_pending_contexts`).
    #[error("{0} deliveries wait for their confirmation: the limit (limits.max_pending_contexts)")]
    TooManyContexts(usize),
}

impl DeliverError {
    /// The segment, where it can be delivered otherwise.
    pub fn into_segment(self) -> Option<OutSegment> {
        match self {
            Self::ShortDeliver(segment) | Self::TooLong { segment, .. } | Self::Foreign(segment) => {
                Some(segment)
            }
            Self::Closed | Self::TooManyContexts(_) => None,
        }
    }
}

/// A wait for subscribers ended before they had made the asked progress.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Not within the time given; this much is confirmed.
    #[error("not confirmed in time; everything below position {confirmed} is")]
    TimedOut {
        /// Every subscriber has confirmed the bytes below this position.
        confirmed: Position,
    },
    /// A call that waits was made from a callback.
    #[error("this call waits and was made from a callback, which runs on the thread it would wait for")]
    CalledFromWorker,
    /// The context was shut down: no subscriber confirms anything any more.
    #[error("the context was shut down")]
    ShutDown,
}

/// A subscription could not be begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// This rIn has a subscription of that buffer.
    #[error("this rIn is subscribed to buffer {0} already")]
    Exists(Bid),
    /// The name is longer than the protocol allows.
    #[error("the name has {size} bytes; at most {max} are allowed")]
    NameTooLong {
        /// Its size.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The ring is larger than all rings of this process may be together.
    #[error(
        "a ring of {size} bytes was asked for; all rings together may have {max} (buffers.max_ring_bytes)"
    )]
    TooLarge {
        /// Asked for.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// More subscriptions than configured.
    #[error("{0} buffers and subscriptions exist: the limit (limits.max_buffers)")]
    TooMany(usize),
}

/// Received data cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The rIn has no such subscription.
    #[error("this rIn has no subscription of buffer {0}")]
    NotSubscribed(Bid),
    /// More was given back than was received.
    #[error("{size} bytes were given back; only {received} were received and not yet given back")]
    TooMuch {
        /// Given back.
        size: u64,
        /// Received.
        received: u64,
    },
    /// A call that waits was made from a callback.
    #[error("this call waits and was made from a callback, which runs on the thread it would wait for")]
    CalledFromWorker,
    /// An [`InReader`](crate::InReader) receives everything of this rIn.
    #[error("this rIn has a reader, which alone receives; drop that first")]
    ReaderTaken,
    /// The context was shut down: nothing comes any more, and everything that came was taken.
    #[error("the context was shut down")]
    ShutDown,
}
