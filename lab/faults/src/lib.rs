//! A cluster of three real brokers and a real etcd (and of a real object store, for logs that go on in an archive) under faults that follow from a seed,
//! and checks of what its clients saw.
//!
//! ```text
//!   seed ──▶ schedule of faults ──▶ Cluster: namespaces, brokers, etcd
//!                                     ▲      ▲        ▲
//!                            publishers   subscribers   who owns what, by etcd
//!                                  └──────────┴─────────────┴──▶ Evidence ──▶ what is wrong
//! ```
//!
//! A seed decides what happens and when. The machine decides how the processes run meanwhile, so a seed that fails may pass the next time.
#![forbid(unsafe_code)]

mod check;
mod cluster;
mod damage;
mod disk;
mod nemesis;
mod network;
mod publishers;
mod readers;
mod register;
mod round;
mod store;

pub use check::Evidence;
pub use cluster::{OnLoss, Plan};
pub use nemesis::{Fault, Step};
pub use network::is_in_own_machine;
pub use publishers::{Confirmation, Published};
pub use readers::{Heard, Mark, Notes};
pub use round::{Report, run, run_steps};
pub use store::store_program;
