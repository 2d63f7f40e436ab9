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
mod run;
mod subscriber;
mod world;

pub use oracle::Stats;
pub use run::{Failure, run, run_many};
