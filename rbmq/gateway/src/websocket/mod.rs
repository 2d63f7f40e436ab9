//! WebSocket (RFC 6455) without I/O: the request of a client, and the frames of a connection.
//!
//! ```text
//!   GET … Upgrade: websocket ──▶ answer() ──▶ 101, or why not          masked frames ──▶ Reader ──▶ bytes of the protocol, pings, a close
//!                                                                       bytes of the protocol ──▶ header() before them
//! ```
//!
//! A protocol's packets and the frames have nothing to do with each other: what comes in frames is a stream, and is given on as it comes, so a frame
//! of any length needs no memory.

mod frames;
mod handshake;

pub use frames::{End, Fault, Reader, close, header, pong};
pub use handshake::{MAX_REQUEST_BYTES, Refused, answer};
