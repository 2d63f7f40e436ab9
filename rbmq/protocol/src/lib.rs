//! RBMQ's encoding on top of RocketBufs: the hello, the control messages and the records.
//!
//! ```text
//!  publisher                          broker                          subscriber
//!     ── Hello(publisher) ─▶              ◀─ Hello(subscriber) ──
//!     ── CREATE{bid, topic} ─▶            ◀─ TOPICS{names} ──
//!     ◀─ CREATED | REFUSED ──             ── TOPIC{topic, bid, epoch} ─▶   (existing and later ones)
//!     ◀─ SUBSCRIBERS{bid, n} ──           ── TOPIC_GONE{bid} | REJECTED ─▶
//!     ══ data of bid ══▶       spliced    ══ data of the broker's bid ══▶
//!     ◀─ ENDED{bid, end} ──
//! ```
//!
//! The hello, with the client's credentials, travels in the application's part of RocketBufs' handshake, control messages as its application
//! control messages (ordered with the data), records inside deliveries. Decoding accepts exactly the bytes that encoding
//! produces. For any other bytes it returns an error, and never panics. docs/RBMQ.md specifies the encoding.

#![forbid(unsafe_code)]

mod attributes;
mod attributes_buf;
pub mod connect;
mod control;
mod error;
mod framing;
mod groups;
mod hello;
mod observe;
#[doc(hidden)]
pub mod planted;
mod records;
mod runs;
mod space;
pub mod sync;

pub use attributes::{
    ATTRIBUTES_HEADER_BYTES, Attribute, Attributes, AttributesError, MAX_ATTRIBUTE_BYTES,
    MAX_ATTRIBUTES_BYTES,
};
pub use attributes_buf::{AttributeTooLong, AttributesBuf};
pub use control::{Control, RefuseCode, Rejection, ReplayFrom, SubscribeLimits, Topic};
pub use error::DecodeError;
pub use framing::Framing;
pub use groups::{
    GROUP_HEADER_BYTES, GroupAction, GroupJoin, GroupMessage, GroupName, GroupNameError, GroupStats,
    MAX_GROUP_NAME_BYTES, MAX_GROUP_ROWS, MAX_MARKS, Mark, MarkKind,
};
pub use hello::{Hello, MAX_CLIENT_NAME_BYTES, Role};
pub use observe::{
    BlockReason, BrokerSummary, BufferStage, BufferStats, GatewayStats, LimitStats, Observe, Page,
    SlowestSubscriber, SubscriptionSortKey, SubscriptionStats, TopicStats,
};
pub use peers::{Credentials, CredentialsError, MAX_PASSWORD_BYTES, MAX_TOKEN_BYTES, MAX_USER_BYTES, Secret};
pub use records::{
    MAX_RECORD_BYTES, RECORD_HEADER_BYTES, Record, RecordError, RecordFault, Records, push_record,
    push_record_with, record_header, record_header_with,
};
pub use runs::{Piece, RUN_HEADER_BYTES, Run, RunError, Runs, Unpack, UnpackError, run_header};
pub use space::{Space, SpaceError};
pub use topics::{FilterError, Levels, MAX_TOPIC_BYTES, TopicError, TopicFilter, TopicName};
