//! How a worker is reached, and what everything of a context shares.

mod context;
mod worker;

pub(crate) use context::{ContextInner, Entropy};
pub(crate) use worker::{
    Borrow, Inline, Sent, WorkerShared, after, as_worker, become_worker, is_worker, may_wait, nanos_since,
};
