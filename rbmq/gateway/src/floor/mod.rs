//! The floor under all protocols: connections, the log of frames, the topics of the broker.
//!
//! ```text
//!                     ┌───────────────────────── log of frames ─────────────────────────┐
//!   message ─ frame ─▶│ … │ frame │ frame │ frame for RESP3 │ frame │ frame │ frame │   │
//!                     └──────────────▲──────────────▲────────────────────▲───────────────┘
//!                                    │              │                    │
//!                       outbox: ranges and replies of each connection ──▶ one sendmsg for all that is pending
//! ```
//!
//! A message is framed once for each form in which clients get it, and connections send ranges of the log: memory doesn't grow with
//! subscribers. Ranges that follow each other are one range, so a client that gets everything sends large pieces.

mod attempts;
mod beside;
pub(crate) mod bus;
mod confirms;
pub(crate) mod connections;
pub(crate) mod fetching;
mod frames;
mod gathering;
pub(crate) mod hall;
mod kept;
mod logs;
mod metering;
pub(crate) mod openings;
pub(crate) mod outbox;
mod secure;
mod socket;
mod spaces;
pub(crate) mod start;
#[cfg(test)]
mod tests;
pub(crate) mod transport;
pub(crate) mod wake;
pub(crate) mod web_socket;
pub(crate) mod worker;
