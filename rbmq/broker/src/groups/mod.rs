//! Groups: workers that share a kept topic, each message for one of them ([`rbmq_groups`]).
//!
//! ```text
//!   engine ── joins, marks, questions, ends ──▶ thread of the groups: machine, journal ──▶ a buffer for each worker
//!   kept logs ── news ────────────────────────▶      └── reads the log of the topic
//! ```
//!
//! A thread of its own owns all groups, since it reads and writes the disk. The engine checks rights and opens topics; what workers say goes
//! on as it came. A worker's buffer is for it alone, as that of a replay, and counts as a reader of the topic.

mod burial;
mod consumers;
mod handle;
mod live;
mod reading;
mod row;
mod service;
mod shared;

pub(crate) use consumers::Touched;
pub use consumers::{GroupChange, GroupCharge, GroupRoom};
pub(super) use handle::Groups;
pub(super) use row::GroupLimits;
pub(crate) use row::GroupRow;
pub(crate) use shared::Members;
pub(super) use shared::{Joining, Parts, Question, Wake, no_group};
