//! Groups: several workers share a log, each message goes to one of them, and comes again until it is acknowledged.
//!
//! ```text
//!   log ──┬───────────────────────────────┬────────────────┬──▶
//!         │ floor                         │ next           │ end
//!         │   ●     ●●    ●  ●            │                │
//!         │   └ pending: held by a worker,│ not read yet:  │
//!         │     waits for one, or delayed │ the rest of the lag
//! ```
//!
//! [`Group`] is a machine: it does no I/O and knows no clock. It is told what the log has and what the workers say, and says who
//! gets which message. Everything below `next` that is not pending is done. [`Journal`] keeps that on the disk, on a log of its own.
//! [`Consumers`] is the other kind: named consumers ask for entries, and nothing comes back to others by itself.
#![forbid(unsafe_code)]

mod consumers;
pub mod folder;
mod group;
mod journal;
mod pending;
mod state;
mod worker;

pub use consumers::{
    CONSUMER_ENTRY_BYTES, Consumer, ConsumerCounts, Consumers, Delivered, EntryId, MAX_CONSUMER_NAME_BYTES,
    TooManyConsumers,
};
pub use group::{Answered, AtWorker, Counters, Dead, Group, Handout, Limits, TIGHT_PENDING};
pub use journal::{Journal, JournalError, Recovered};
pub use pending::ENTRY_BYTES;
pub use state::{Changes, MAX_PENDING, Saved, SavedEntry, Settings};
pub use worker::Attempt;
