//! Apache Kafka as the last level of MultiMQC: the "original message queuing middleware" of the paper.
//!
//! Each topic of MultiMQC is a Kafka topic with one partition. A batch is a record, whose key has the position of its bytes in the log:
//!
//! ```text
//!   Kafka's offsets       7              8            9              10
//!                  ┌─────────────┬─────────────┬──────────────┬─────────────┐
//!   records        │ data at 400 │ data at 500 │ hole 560─900 │ data at 950 │
//!                  └─────────────┴─────────────┴──────────────┴─────────────┘
//!   MultiMQC's       400 ─── 500     500 ─ 560    560 ── 900      950 ─ 999      900 to 950 has no record: a hole too
//! ```
//!
//! - **Write**: a record for each batch (several for a batch larger than [`KafkaConfig::max_record_bytes`]; where
//!   Kafka has removed the first of them, the log begins behind the others), by an idempotent producer
//!   with `acks=all`. A write returns when the broker has the record. If Kafka does not answer in time, the record may or may not be
//!   there; the next write first asks Kafka for the end of the log, and drops what it has already.
//! - **Read**: positions ascend with offsets, so a position is found by bisection, which starts from the records that were written or
//!   read before. Reads that follow each other go on in Kafka's order. One reader of a topic is served at a time.
//! - **Holes**: a range that no record covers is a hole, whether a level below left it out or Kafka lost it.
//! - **Kafka down**: writes and reads fail with [`LevelError::Down`](multimqc::LevelError::Down) after [`KafkaConfig::timeout`].
//!   This level keeps no bytes for later: the level below offers the same bytes again, for as long as it has them.
//! - **Restart**: the log continues where Kafka's records end, with the epoch that they carry. A level that is dropped writes a closing
//!   record. If this record is missing, the stack leaves a hole of [`KafkaConfig::restart_gap_bytes`], unless a level before this one
//!   has kept its window.
//!
//! Only one process writes a Kafka topic. The level is never first, because a push would cost a round trip to the broker.
//!
//! The crate builds librdkafka from its sources, which needs a C compiler, make and a minute or two. Nothing else of the workspace
//! depends on it.

#![forbid(unsafe_code)]

mod client;
mod config;
mod find;
mod level;
mod reader;
mod record;

pub use config::KafkaConfig;
pub use level::KafkaLevel;
