//! The workers: threads that own connections, and application threads that do their work.
//!
//! ```text
//!   transport ── events ──▶ ┌─────────┐ ── looks up once ──▶ machines of `crate::proto` ── effects ─┐
//!   handles ── commands ──▶ │ Reactor │                                                           ▼
//!   buffers ── marks ─────▶ └─────────┘ ◀─── WorkerContext: transport, time, schedule, messages ◀───┘
//! ```
//!
//! * `reactor`: one turn of a worker, and what it owns;
//! * `out_effects`: one subscription of a peer, and the execution of its machine's effects;
//! * `in_effects`: one subscription of this end, and the execution of its machines' effects;
//! * `worker_context`: what executing an effect needs besides the connection: transport, time, and the schedule;
//! * `accept`, `links`: how connections and listeners come and go;
//! * `connection`: one connection: what arrives, and what is sent, with
//!   * `handshake`: its begin, its time limits and its end;
//!   * `out_admit`, `out_leave`: how subscriptions of the peer come and go;
//!   * `in_subscribe`: how subscriptions of this end come and go;
//! * `reactor_action`: what a connection leaves to the reactor;
//! * `growing`: rings of subscriptions of this end that get larger deliveries than before;
//! * `in_linger`: how subscriptions of this end learn that their logs have ended;
//! * `rate_limit`, `rate_limit_state`: rate limits, which delay what is sent and the credit for what arrives;
//! * `ticks`: what happens because time passed.
//!
//! Optimisations, each with its own state:
//!
//! * `caller_send`: sending on the application's thread;
//! * `caller_runs`: an application thread that waits does the worker's work;
//! * `follow`: readers that map a ring, and that its writer wakes;
//! * `on_demand`: credit on demand, for subscriptions that share a budget;
//! * `idle`, `trimming`: memory that rings at rest release.

mod accept;
mod caller_runs;
pub(crate) mod caller_send;
mod connection;
mod follow;
mod growing;
mod handshake;
mod idle;
mod in_effects;
mod in_linger;
mod in_subscribe;
mod links;
mod on_demand;
mod out_admit;
mod out_effects;
mod out_leave;
mod rate_limit;
mod rate_limit_state;
mod reactor;
mod reactor_action;
pub(crate) mod thread;
mod ticks;
mod trimming;
mod worker_context;

pub(crate) use accept::transport_connections;
pub(crate) use caller_runs::Waiting;
#[doc(hidden)]
pub use reactor::Reactor;
