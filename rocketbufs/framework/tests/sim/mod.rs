//! The simulator of sessions, credit and subscriptions: whole topologies of processes on a simulated network, in one
//! thread, on a virtual clock, all drawn from one seed.
//!
//! ```text
//!   seed ─▶ Plan ─▶ World: busy (faults) ─▶ calm ─▶ all delivered? ─▶ CLOSED ─▶ all got it? ─▶ memory back?
//!                     │ one small step at a time, drawn from the seed:
//!                     │   the network moves │ a worker takes a turn │ an application acts │ a fault
//!                     └─ after each: oracle and inspection
//! ```

mod broker;
mod inspect;
mod link;
mod oracle;
mod plan;
mod publisher;
mod rng;
mod run;
mod subscriber;
mod world;

pub use oracle::Stats;
#[allow(unused_imports, reason = "of several test binaries, some use it")]
pub use run::{Failure, Outcome, run, run_many};
