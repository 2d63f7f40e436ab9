//! A viewer's connection: a socket, with or without TLS.
//!
//! ```text
//!   ring ──▶ sealed (or copied, without TLS) ──▶ Out ── still there? ──▶ socket
//!            one encryption, no copy before it           one write
//! ```
//!
//! A piece of a ring goes into the buffer, and is checked after that. So the socket gets only bytes that were not overwritten.

mod connection;
mod corked;
mod handshake;
mod in_place;
#[cfg(test)]
mod tests;

pub(crate) use connection::Link;
pub(crate) use corked::{Corked, corked};
pub(crate) use handshake::accept;
pub(crate) use tls13::PIECE;
