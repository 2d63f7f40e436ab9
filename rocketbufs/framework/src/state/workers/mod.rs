//! The ways to a worker, and the state that all objects of a context share. A buffer or an end marks its slot at a worker,
//! wakes the worker, or makes a [`Request`], which names everything by number.

mod context;
mod request;
mod worker;

pub use context::EndsWithContext;
pub(crate) use context::{ContextInner, Entropy};
pub(crate) use request::{Activated, Parked, Request};
pub(crate) use worker::{
    Borrow, BorrowedReactor, Sent, WaitingThread, WorkerShared, after, as_worker, become_worker, is_worker,
    may_wait, nanos_since,
};
