//! RESP2 and RESP3: clients of Redis publish to topics and subscribe to them.
//!
//! ```text
//!   bytes ─▶ parse ─▶ machine ─▶ pubsub ─▶ names ─▶ bus              a channel is a topic
//!                        │  └─▶ login, clients, server: what a client asks first
//!                        ├─▶ streams: the logs of kept topics
//!                        └─◀ deliver ◀─ routes (tables of channels and patterns) ◀─ messages of topics
//! ```
//!
//! The parts that read bytes of strangers are public, for those who test them.

mod client;
mod clients;
mod commands;
mod deliver;
mod filters;
pub mod glob;
mod login;
pub(crate) mod machine;
pub mod names;
pub mod parse;
mod pubsub;
mod reads;
mod reply;
mod routes;
mod server;
pub mod streams;
mod table;
#[cfg(test)]
mod tests;
mod transactions;
