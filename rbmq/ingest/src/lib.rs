//! Messages that arrive over UDP at a level of MultiMQC become messages of topics of an RBMQ broker.
//!
//! ```text
//!   sensors ──▶ interface ──▶ level: kernel, or user ──▶ feed: ring of the topic ──▶ subscribers
//!                             length, message, length…    the same bytes and positions
//! ```
//!
//! The level stores each message behind its length ([`multimqc::functions::Record`]), which is the form of RBMQ's records. So a batch
//! is one copy from the level's ring into the ring of the topic, without work for a single message but a look at its length.
//!
//! The copy is needed, because both rings promise different things. The level never waits: it overwrites its oldest bytes. The ring of
//! a topic has flow control: a subscriber may hold bytes, which then stay. While the ring of the topic is full, messages stay in the
//! level, whose ring is the buffer for bursts. Bytes that the level overwrites before the topic had room become a hole of
//! the same size: the hole is counted, logged, and reported to each subscriber.
#![forbid(unsafe_code)]

mod boundaries;
mod error;
mod interface;
mod line;
mod records;
mod source;
mod worker;

pub use error::IngestError;
pub use source::Ingest;
