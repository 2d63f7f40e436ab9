//! CMQ: an asynchronous message queue over UDP, for many processes that send each other small messages.
//!
//! A push never waits. Messages leave in batches, by size and by age. The network may lose some of them: later messages are
//! not delayed, and the receiver counts the losses of each sender. CMQ has no broker and no connection: a queue is a socket.
//!
//! ```text
//!   cw_push(key, message)                                                         cw_pop()
//!      │                                                                             ▲
//!      ▼                                                                             │
//!   a batch for each key ── qthresh bytes or timeout ──▶ datagrams ~~▶ numbers ──▶ mailboxes
//!   (proto::unreliable::batcher)                         (io::socket)  (proto::unreliable::receiver)
//! ```
//!
//! * [`new_rq`] opens a queue; [`Cmq::cw_push`] and [`Cmq::cw_pop`] are the paper's calls.
//! * [`Config`] has every setting: when batches leave, and the limits.
//! * [`Event`] and [`Stats`] report losses, duplicates and late messages.
//! * [`strategy`] has the paper's message passing strategies: request and response, futures, replay, replacement.
//! * [`Cmq::push_reliable`] sends a message until it is confirmed.
//! * [`Security`] encrypts and authenticates every datagram.
//! * [`wire`] is the format of a datagram. `docs/CMQ.md` is the guide.

#![forbid(unsafe_code)]

mod codec;
mod config;
mod error;
mod event;
mod io;
mod key;
mod multicast;
pub mod proto;
mod queue;
mod security;
pub mod strategy;
#[cfg(feature = "stream")]
mod stream;
pub mod wire;

pub use config::{
    Config, ConfigError, Delivery, MAX_QTHRESH, MIN_DATAGRAM, OverflowPolicy, Oversize, Reliable,
};
pub use error::{OpenError, PushError};
pub use event::{
    Event, HandshakeError, ReceiveCounts, Refusal, ReliableCounts, SecurityCounts, SenderInfo, Stats,
    Undelivered,
};
pub use io::mailbox::Popped;
pub use key::Key;
pub use multicast::{Interface, Multicast};
pub use proto::reliable::Fate;
pub use queue::{Cmq, Mailbox, new_raw_rq, new_rq, new_rq_with};
pub use security::{KEY_BYTES, KeyError, PublicKey, SecretKey, Security};
#[cfg(feature = "stream")]
pub use stream::MessageStream;
