//! The workers: threads that own connections, and application threads that do their work.
//!
//! ```text
//!   transport ── events ──▶ ┌─────────┐ ── looks up once ──▶ machines of `crate::proto` ── effects ─┐
//!   handles ── commands ──▶ │ Reactor │                                                           ▼
//!   buffers ── marks ─────▶ └─────────┘ ◀────────── Io: transport, time, scheduler, messages ◀──────┘
//! ```
//!
//! * `reactor`: one turn of a worker, and what it owns;
//! * `peer`: one subscription of a peer, and the execution of its machine's effects;
//! * `io`: what executing an effect takes besides the connection: transport, time, and who has something to send;
//! * `accepting`, `links`: connections, from the first byte to the last;
//! * `admitting`: subscriptions of peers, until they are answered;
//! * `sending`: the same, from then on;
//! * `asking`: subscriptions to peers, until they are answered;
//! * `receiving`: the same, from then on;
//! * `ticks`: what happens because time passed.
//!
//! Optimisations, each with its own state:
//!
//! * `caller_send`, `pauses`: sending on the application's thread;
//! * `caller_runs`: an application thread that waits does the worker's work;
//! * `following`: readers that map a ring, and are woken by its writer;
//! * `on_demand`: credit on demand, where subscriptions share a budget;
//! * `idle`, `trimming`: memory that rings at rest give back.

mod accepting;
mod admitting;
mod asking;
mod caller_runs;
pub(crate) mod caller_send;
mod following;
mod idle;
mod io;
mod links;
mod on_demand;
mod pauses;
mod peer;
mod reactor;
mod receiving;
mod sending;
pub(crate) mod thread;
mod ticks;
mod trimming;

pub(crate) use accepting::transport_connections;
pub(crate) use caller_runs::Waiting;
#[doc(hidden)]
pub use reactor::Reactor;
