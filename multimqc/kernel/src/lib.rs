//! MultiMQC's level in the kernel.
//!
//! eBPF programs see each packet before the network stack does. They store the messages of pushes in rings, and answer pulls from
//! them. User space maps the rings, reads them in place, and is woken once for each batch.
//!
//! ```text
//!             interface
//!   push ──▶ ┌──────────────────────┐  copy   ┌──────────────┐  mapped   ┌────────────┐
//!            │ program in XDP,      │ ──────▶ │ ring of the  │ ────────▶ │ Topic::read│ ──▶ next level
//!   pull ──▶ │ tcx or Netfilter     │ ◀────── │ topic        │           └────────────┘
//!  reply ◀── │                      │         └──────────────┘           ┌────────────┐
//!            └──────────────────────┘ ── one event for each batch ─────▶ │ wait_batch │
//!                 │ everything else                                      └────────────┘
//!                 ▼ as it came
//!            network stack
//! ```
//!
//! * [`Kernel`] loads and attaches the programs, and opens topics. With [`Config::keep`] the rings outlive the process.
//! * [`Topic`] reads a ring by offset, and never returns bytes that were overwritten meanwhile.
//! * [`KernelLevel`] is the level in a stack, with other levels behind it.
//! * [`detach`] removes the files that a crashed process has left.
//!
//! The programs are in the folder `multimqc/bpf`, with their objects, so building this crate needs no clang. docs/MULTIMQC_KERNEL.md is
//! the user's guide: rights, limits, and what is stored.

mod attach;
mod config;
mod counters;
mod error;
mod frames;
mod holes;
mod kernel;
mod layout;
mod level;
mod maps;
mod object;
mod programs;
mod sys;
mod topic;
mod wakes;

pub use attach::detach;
pub use config::{Config, MAX_RING_BYTES, MAX_TOPICS, Mode, Ports};
pub use counters::KernelCounters;
pub use error::KernelError;
pub use frames::{FrameSender, FrameSink, numbered_message};
pub use kernel::{Kernel, Run};
pub use layout::MAX_MESSAGE_BYTES;
pub use level::KernelLevel;
pub use topic::{Range, Topic};
