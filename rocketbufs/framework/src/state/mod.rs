//! The state that the application's handles and the workers share, in four layers. A layer knows only the layers
//! below it.
//!
//! ```text
//!   ends      ContextShared ─▶ Command                    what handles ask of a worker
//!             ConnShared   ListenerShared   ROutShared   RInShared
//!                                               │ has        │ has
//!   logs                                        ▼            ▼
//!                                             Buffer ◀── SubscriptionShared     if it is spliced
//!                                               │            │
//!   workers                                     ▼ Request    ▼                  marks, wake-ups, jobs
//!             ContextInner ─▶ WorkerShared                                      configuration, memory, clock
//!
//!   records   Budget  BusyPollBudget  ConfirmedPositions  DurableSlots  IdleState …
//! ```
//!
//! The needs of a layer from the layers above it are traits. A buffer knows its rOut as a `BufferOwner` and its upstream
//! subscription as an `Upstream`, and a subscription knows its rIn as a `SubscriptionOwner`. A worker knows its
//! mailbox as a `RequestQueue`, its reactor as a `BorrowedReactor`, and an rIn that waits for it as a
//! `WaitingThread`.
//!
//! Errors, events and options, which handles return and take, are beside the four folders.
//!
//! These layers do no I/O and know no handle: callbacks of the application are closures over its state.

mod ends;
pub mod error;
pub(crate) mod events;
pub(crate) mod in_event;
mod logs;
pub(crate) mod options;
mod records;
pub(crate) mod view;
mod workers;

pub(crate) use ends::{
    Command, ConnShared, ConnState, ContextShared, ListenerShared, Looks, MOST_RINGS, Phase, PolledRings,
    Queue, RInShared, ROutShared, Role, Worker,
};
pub use ends::{ForeignConnection, ForeignReason};
pub use logs::Traffic;
pub(crate) use logs::{
    Buffer, BufferOwner, DurableCursor, Followed, Leaving, OwnedName, Readable, ReceiveMemory,
    SubscriptionNews, SubscriptionOwner, SubscriptionShared, SubscriptionState, SubscriptionStatus, Upstream,
    downstream_of, held_at,
};
pub use records::{
    Budget, ConfirmedPositions, Meter, MeterClock, Progress, RateLimit, RateLimits, RateUsage,
    SubscriberProgress,
};
pub(crate) use records::{
    BusyPollBudget, Calls, Contexts, DurableSlots, IdleState, Log, MOVING, Member, Membership, MinReceivers,
    NOWHERE, PLACES_APART, POLLS_PER_DELIVERY, ProgressWatch, Waits, Watchers, page_bytes,
};
pub use workers::EndsWithContext;
pub(crate) use workers::{
    Activated, Borrow, BorrowedReactor, ContextInner, Entropy, Parked, Request, Sent, WaitingThread,
    WorkerShared, after, as_worker, become_worker, is_worker, may_wait, nanos_since,
};
