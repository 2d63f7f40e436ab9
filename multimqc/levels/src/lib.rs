//! MultiMQC: a multilevel cache for streams of small messages.
//!
//! A flood of tiny messages arrives over UDP, and most readers want the newest. Each topic is one logical log of bytes, and each
//! level holds a window of it: the fast and small levels the newest bytes, the slow and large ones more. A pull is answered by
//! the first level that holds its range, and the reply is the same from each level.
//!
//! ```text
//!   pushes                                                                          pulls
//!     │   offset 0 ───────────────────────────────────────────────────▶ head          │
//!     ▼                                                            ┌────────┐         ▼
//!   1, 2  NIC                                                      │ newest │      answers or forwards
//!     │ transfer, in batches that carry their offset        ┌──────┴────────┤         ▼
//!   3     kernel                                            │               │      answers or forwards
//!     ▼                                             ┌───────┴───────────────┤         ▼
//!   4     user: a ring in memory                    │                       │      answers or forwards
//!     ▼                  ┌──────────────────────────┴───────────────────────┤         ▼
//!   5     disk           │                                                  │      answers or forwards
//!     ▼   ┌──────────────┴──────────────────────────────────────────────────┤         ▼
//!   6     Kafka                                                             │      answers or says what is missing
//! ```
//!
//! * [`Level`] is the contract. A level can be left out or put in without a change of the others.
//! * [`Batch`] carries its offset, so a lost batch is a [`Hole`] and shifts nothing.
//! * [`Sizing`] is equation 1 of the paper: how late the next level may be.
//! * [`Stack`] puts levels together, and [`Transfers`] moves bytes from each to the next.
//! * [`Service`] has the effects of datagrams, without sockets; [`Server`] has the sockets and threads. [`functions`] run
//!   in it.
//! * [`Pusher`] and [`Puller`] are clients of the header form.
//! * [`wire`] is the format of pushes, pulls, replies and batches.
//!
//! Linux only, like the rest of the workspace.

#![forbid(unsafe_code)]

mod client;
mod counters;
mod equation;
pub mod functions;
mod level;
pub mod levels;
mod log;
mod senders;
mod server;
mod service;
mod sessions;
mod spread;
mod stack;
mod topic;
mod transfer;
pub mod wire;

pub use client::{Fetched, Puller, Pusher};
pub use counters::LevelCounters;
pub use equation::{OVERLAP_BYTES, Sizing, TooSmall};
pub use level::{Appended, Counters, Found, Kept, Level, LevelError, LevelKind, Stop, Written};
pub use log::{Batch, Hole, MAX_OFFSET, Offset, Placement, Window};
pub use senders::SenderReport;
pub use server::{Addresses, Server, ServerConfig, StartError, TopicConfig};
pub use service::{Functions, Service, ServiceConfig, ServiceReport};
pub use sessions::{MAX_SESSIONS, Session, Sessions};
pub use stack::{Answer, Repair, Stack, StackError, Tail};
pub use topic::{Epoch, TopicId};
pub use transfer::{Mover, Progress, ProgressReport, TransferConfig, Transfers};
