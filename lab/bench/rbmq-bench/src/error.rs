//! The reasons for which a bench has no result, and whose fault they are.

use std::io;

/// Why a bench gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The system refused something; the text says what.
    #[error("the system refused: {0}")]
    Io(#[from] io::Error),
    /// The arguments leave nothing to measure.
    #[error(
        "nothing to measure: none of the systems that are installed can do it this way (the relay has --api batch and --confirm none only, --api wire has --transport tcp and --confirm none only; other systems have no --confirm consumed)"
    )]
    NothingToMeasure,
    /// A message has to hold its number.
    #[error("--size must be at least 8 and every rate above 0")]
    BadPing,
    /// A time on the command line is no time.
    #[error("--seconds must be above 0 and --warmup at least 0, both at most 3600")]
    BadTime,
    /// A process of the bench failed.
    #[error(transparent)]
    Process(#[from] benchkit::Error),
    /// The system under test delivered wrong bytes. The result is worthless.
    #[error(
        "wrong byte in topic {topic}, within the messages that follow number {after_messages}: the system under test damaged, lost or repeated data"
    )]
    WrongByte {
        /// The topic's number.
        topic: u64,
        /// Messages that were right before.
        after_messages: u64,
    },
    /// Without flow control the source was faster than the sink.
    #[error(
        "after {after_messages} deliveries some were overwritten before they were read: choose a lower --bursts-per-s"
    )]
    Overwritten {
        /// Deliveries that were right before.
        after_messages: u64,
    },
    /// The broker, or the library, refused or failed.
    #[error("the system under test failed: {0}")]
    System(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The broker refused a worker's request.
    #[error("the broker refused: {reason}")]
    Refused {
        /// The broker's reason.
        reason: String,
    },
    /// The system under test mixed topics up.
    #[error("messages of topic '{name}' arrived without a subscription")]
    StrangeTopic {
        /// The topic.
        name: String,
    },
    /// A gateway's settings are wrong.
    #[error("the gateway cannot be set up: {0}")]
    Gateway(String),
    /// A system that is measured beside ours is not there.
    #[error("{peer} is not installed; scripts/bench-peers installs it")]
    NotInstalled {
        /// The system.
        peer: String,
    },
    /// A server that is measured beside ours did not start.
    #[error("the server of {peer} did not start; the end of its log: {log}")]
    ServerFailed {
        /// The system.
        peer: String,
        /// The end of the server's log.
        log: String,
    },
    /// A server sends bytes that its protocol does not have, or reports an error.
    #[error("{peer} said: {said}")]
    PeerSaid {
        /// The system.
        peer: String,
        /// The beginning of the bytes.
        said: String,
    },
    /// A worker that needs a folder was started without one.
    #[error("--folder is missing: workers are started by the bench itself")]
    NoFolder,
    /// A server did another handshake than was to be measured.
    #[error(
        "a {was} handshake where a {wanted} one was to be measured: the server gave no ticket, or took none"
    )]
    Handshake {
        /// The kind that was wanted.
        wanted: String,
        /// The kind that it was.
        was: String,
    },
    /// Something else connected to the relay's port.
    #[error("a connection began with byte {role}: only bench workers may connect to the relay")]
    Stranger {
        /// The first byte it sent.
        role: u8,
    },
}

impl From<rustix::io::Errno> for BenchError {
    fn from(errno: rustix::io::Errno) -> BenchError {
        BenchError::Io(errno.into())
    }
}
