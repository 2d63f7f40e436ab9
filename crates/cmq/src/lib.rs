//! CMQ: an asynchronous message queue over UDP, for many processes that send each other small messages.
//!
//! Messages are pushed and forgotten. They leave in batches by size and by age; the network may lose some, and then the
//! others keep their pace, and the receiver knows how many of which sender were lost. There is no broker and no
//! connection: a queue is a socket.
//!
//! ```text
//!   cw_push(key, message)                                                          cw_pop()
//!      │                                                                              ▲
//!      ▼                                                                              │
//!   a queue for each key ── qthresh bytes, or timeout ──▶ datagrams ~~▶ numbers ──▶ mailboxes
//!   (proto::batches)                                      (io::socket)  (proto::receiver)
//! ```
//!
//! * [`new_rq`] makes a queue, [`Cmq::cw_push`] and [`Cmq::cw_pop`] are the paper's calls;
//! * [`Config`] has every setting: when batches leave, what is kept, what is refused;
//! * [`Event`] and [`Stats`] say what was lost, came twice or late;
//! * [`strategy`] has the paper's message passing strategies: request and response, futures, replay, replacement;
//! * [`wire`] is the format of a datagram; `docs/CMQ.md` explains all of it.

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
pub mod strategy;
#[cfg(feature = "stream")]
mod stream;
pub mod wire;

pub use config::{Config, ConfigError, Large, MAX_QTHRESH, MIN_DATAGRAM, Order, WhenFull};
pub use error::{OpenError, PushError};
pub use event::{Counts, Event, Sender, Stats};
pub use io::mailbox::Popped;
pub use key::Key;
pub use multicast::{Interface, Multicast};
pub use queue::{Cmq, Mailbox, new_raw_rq, new_rq, new_rq_with};
#[cfg(feature = "stream")]
pub use stream::MessageStream;
