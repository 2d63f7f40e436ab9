//! The state that the application's handles and the workers share, in four layers. A layer knows only the layers
//! below it.
//!
//! ```text
//!   ends      ContextShared  Command    what handles ask of a worker
//!             ConnShared  ListenerShared  ROutShared  RInShared
//!                                         │ has         │ has
//!   logs                                  ▼             ▼
//!                                      Buffer ◀──── SubscriptionShared     a spliced subscription knows its buffer
//!                                         │             │
//!   workers                               ▼ Request     ▼             numbers and jobs; marks and wake-ups
//!             ContextInner ─▶ WorkerShared                            also configuration, memory, clock
//!
//!   records   Budget, BusyPollBudget, ConfirmedPositions, IdleState … know nothing of the others
//! ```
//!
//! Upwards there are four traits: a buffer knows its rOut as a `BufferOwner` and its upstream subscription as an
//! `Upstream`, a subscription its rIn as a `SubscriptionOwner`, and a worker its mailbox as a `RequestQueue`.
//!
//! These layers do no I/O and know no handle: callbacks of the application are closures over its state.

mod ends;
mod logs;
mod records;
mod workers;

pub(crate) use ends::{
    Command, ConnShared, ConnState, ContextShared, ListenerShared, MOST_RINGS, Phase, PolledRings, Queue,
    RInShared, ROutShared, Role, Worker,
};
pub use ends::{ForeignConnection, ForeignReason};
pub use logs::Traffic;
pub(crate) use logs::{
    Buffer, BufferOwner, DurableCursor, Followed, Known, Leaving, Readable, ReceiveMemory, SubscriptionNews,
    SubscriptionOwner, SubscriptionShared, SubscriptionState, SubscriptionStatus, Upstream, downstream_of,
    held_at,
};
pub use records::{Budget, ConfirmedPositions, Progress, SubscriberProgress};
pub(crate) use records::{
    BusyPollBudget, Calls, Contexts, DurableSlots, IdleState, Log, MOVING, Member, Membership, MinReceivers,
    NOWHERE, PLACES_APART, POLLS_PER_DELIVERY, ProgressWatch, Waits, Watchers, page_bytes,
};
pub(crate) use workers::{
    Activated, Borrow, BorrowedReactor, ContextInner, Entropy, Parked, Request, Sent, WaitingThread,
    WorkerShared, after, as_worker, become_worker, is_worker, may_wait, nanos_since,
};
