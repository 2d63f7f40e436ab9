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

mod ends;
mod logs;
mod records;
mod workers;

pub(crate) use ends::{
    Command, ConnShared, ConnState, ListenerShared, MOST_RINGS, Parked, Phase, PolledRings, Queue, RInShared,
    ROutShared, Role, tell_subscriber_progress,
};
pub use ends::{ForeignConnection, ForeignReason};
pub use logs::Traffic;
pub(crate) use logs::{
    Activated, Buffer, DurableCursor, Followed, InState, InboundShared, Known, Leaving, Readable,
    ReceiveMemory, SubscriptionStatus, downstream_of, held_at,
};
pub use records::{Budget, ConfirmedPositions, Progress, SubscriberProgress};
pub(crate) use records::{
    BusyPollBudget, Calls, Contexts, DurableSlots, IdleState, Log, MOVING, Member, Membership, MinReceivers,
    NOWHERE, ProgressWatch, TAKEN, Waits, Watchers, page_bytes,
};
pub(crate) use workers::{
    Borrow, ContextInner, Entropy, Inline, Sent, WorkerShared, after, as_worker, become_worker, is_worker,
    may_wait, nanos_since,
};
