//! The state that the application's handles and the workers share.
//!
//! ```text
//!   Context   Conn   Listener   ROut                 RIn              handles of the application
//!      │        │        │        │                    │
//!      ▼        ▼        ▼        ▼                    ▼
//!   ContextInner  ConnShared …  ROutShared ─▶ Buffer   RInShared ─▶ InboundShared
//!      │                                        ▲ spliced ▲               │
//!      ▼                                        └──────────────────────────┘
//!   WorkerShared ◀── commands, marks, wake-ups ── all of the above
//! ```
//!
//! This layer does no I/O and knows no handle: callbacks of the application are closures over its state.

mod budget;
mod buffer;
mod command;
mod confirm;
mod conn;
mod context;
mod durable_slots;
mod inbound;
mod listener;
mod log;
mod looks;
mod min_receivers;
mod progress;
mod rest;
mod rin;
mod rout;
mod worker;

pub use budget::Budget;
pub(crate) use budget::{Calls, Member, Membership, page_bytes};
pub use buffer::Traffic;
pub(crate) use buffer::{Buffer, DurableCursor, Known, Leaving, SubscriptionStatus, held_at};
pub(crate) use command::{Command, Parked, Role};
pub use confirm::{ConfirmedPositions, SubscriberProgress};
pub(crate) use confirm::{Contexts, Waits, tell_subscriber_progress};
pub(crate) use conn::{ConnShared, ConnState, Phase};
pub(crate) use context::{ContextInner, Entropy};
pub(crate) use durable_slots::DurableSlots;
pub(crate) use inbound::{Followed, InState, InboundShared, Readable, ReceiveMemory, downstream_of};
pub(crate) use listener::ListenerShared;
pub use listener::{ForeignConnection, ForeignReason};
pub(crate) use log::Log;
pub(crate) use looks::{Looks, MOST_RINGS, Sights, TAKEN};
pub(crate) use min_receivers::MinReceivers;
pub use progress::Progress;
pub(crate) use progress::ProgressWatch;
pub(crate) use rest::{Activated, MOVING, NOWHERE, Rest};
pub(crate) use rin::{Queue, RInShared};
pub(crate) use rout::ROutShared;
pub(crate) use worker::{
    Borrow, Inline, Sent, WorkerShared, after, as_worker, become_worker, is_worker, may_wait, nanos_since,
};
