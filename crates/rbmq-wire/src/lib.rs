//! RBMQ's own bytes on top of RocketBufs: the hello, the control messages and the records.
//!
//! ```text
//!  publisher                          broker                          subscriber
//!     ── Hello(publisher) ─▶              ◀─ Hello(subscriber) ──
//!     ── CREATE{bid, topic} ─▶            ◀─ TOPICS{names} ──
//!     ◀─ CREATED | REFUSED ──             ── TOPIC{topic, bid, epoch} ─▶   (now, and whenever one appears)
//!     ◀─ SUBSCRIBERS{bid, n} ──           ── TOPIC_GONE{bid} | REJECTED ─▶
//!     ══ data of bid ══▶       spliced    ══ data of the broker's bid ══▶
//!     ◀─ ENDED{bid, end} ──
//! ```
//!
//! The hello travels in the application's part of RocketBufs' handshake, control messages as its application
//! control messages (ordered with the data), records inside deliveries. Whatever comes from a peer is data: decoding
//! accepts exactly what encoding makes, says what was wrong otherwise, and never panics. docs/RBMQ.md has the same
//! byte for byte.

#![forbid(unsafe_code)]

pub mod connect;
mod control;
mod error;
mod filter;
mod hello;
mod levels;
mod observe;
mod records;
mod runs;
pub mod sync;
mod topic;

pub use control::{Control, RefuseCode, Terms, Topic};
pub use error::DecodeError;
pub use filter::{FilterError, TopicFilter};
pub use hello::{Hello, MAX_CLIENT_NAME_BYTES, Role};
pub use levels::Levels;
pub use observe::{
    BrokerSummary, BufferStage, BufferStats, Holds, Observe, Page, Place, Slowest, SubscriptionStats,
    TopicStats,
};
pub use records::{RECORD_HEADER_BYTES, RecordError, Records, push_record, record_header};
pub use runs::{Piece, RUN_HEADER_BYTES, Run, RunError, Runs, Unpack, UnpackError, run_header};
pub use topic::{MAX_TOPIC_BYTES, TopicError, TopicName};

/// How the bytes of a topic's deliveries are to be read. The broker does not look at them; it tells subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Framing {
    /// Deliveries hold whole records: `u32` length (little endian) and as many bytes.
    #[default]
    Records,
    /// Deliveries hold bytes as they are: a stream without marks.
    Raw,
    /// Deliveries hold runs: the number of a publisher, a length, and whole records of that publisher. Only brokers
    /// write them, for topics whose publishers share a ring.
    Merged,
}

impl Framing {
    fn code(self) -> u8 {
        match self {
            Self::Records => 0,
            Self::Raw => 1,
            Self::Merged => 2,
        }
    }

    fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::Records),
            1 => Ok(Self::Raw),
            2 => Ok(Self::Merged),
            other => Err(DecodeError::value("framing", other)),
        }
    }
}

impl std::fmt::Display for Framing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Records => "records",
            Self::Raw => "raw",
            Self::Merged => "merged",
        })
    }
}
