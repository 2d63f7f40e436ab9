//! RDMA for RocketNet: native verbs and rdma_cm, loaded at run time.
//!
//! ```text
//!   sender's ring                         adapters                         receiver's ring
//!  ┌────────────┐  write, at the same position, with the id as immediate  ┌────────────┐
//!  │░░░▓▓▓▓▓▓░░░│ ──────────────────────────────────────────────────────▶ │░░░▓▓▓▓▓▓░░░│ ─▶ completion: id, size
//!  └────────────┘  ◀── KEY(id, key, address, capacity), when it is bound  └────────────┘
//! ```
//!
//! The libraries are not linked: [`sys`] opens libibverbs and librdmacm on first use, so that one binary runs with and without
//! them. [`probe`](probe()) reports what is available and what is missing. The data path calls through the device's own table of
//! functions, as the libraries' headers do.
//!
//! * [`Rdma`] is the transport of one worker: reliable connections, one write with immediate data for each range, from
//!   the sender's ring straight into the receiver's. Everything else (control messages, keys, counts of receives) goes in
//!   messages over the same queue pair, so that there is one order.
//! * [`RdmaAndTcp`] serves peers of both, so that data from one can be sent on over the other.
//! * Each connection has a protection domain of its own: a peer can write the rings that are bound to its connection,
//!   and nothing else. A ring is registered while it is bound; the adapter refuses a late write.
//! * A transfer is posted only if the peer has a receive for it, so posted requests complete within a round trip whatever the
//!   peer's processor does, and "receiver not ready" never happens.
//!
//! ```
//! let report = rocketnet_rdma::probe();
//! for missing in report.libraries.iter().filter_map(|library| library.error.as_ref()) {
//!     println!("{missing}");
//! }
//! ```

mod ahead;
mod both;
mod config;
mod conn;
mod drive;
pub mod frame;
mod intake;
mod outbox;
mod outgoing;
mod probe;
mod receives;
mod removal;
mod send_stats;
pub mod sys;
mod transport;

pub use both::RdmaAndTcp;
pub use config::RdmaConfig;
pub use probe::{Access, Device, Gid, Library, Port, Report, probe};
pub use send_stats::SendStats;
pub use transport::Rdma;
