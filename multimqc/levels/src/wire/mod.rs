//! The wire format: UDP datagrams in two forms. docs/MULTIMQC_PROTOCOL.md describes both byte for byte.
//!
//! * The [`plain`] form is the paper's (figure 7): a push is nothing but its message, a pull is an offset and a length, and a
//!   reply is nothing but bytes. Each topic has a pair of ports.
//! * The [`header`] form begins each datagram with 32 bytes, so that many topics share one port, replies can be matched, and
//!   losses and holes are known.
//!
//! Parsing copies nothing, allocates nothing and never panics. Numbers are little endian.

pub mod header;
mod numbers;
pub mod plain;

pub use header::{
    Datagram, HEADER_BYTES, Header, Kind, MAGIC, Malformed, Status, VERSION, encode_reply_data,
};
pub use numbers::{IPV6_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES, MTU_PAYLOAD_BYTES};
pub use plain::{PULL_BYTES, PullRequest};

/// The port for pushes in the plain form.
pub const PUSH_PORT: u16 = 19999;
/// The port for pulls in the plain form.
pub const PULL_PORT: u16 = 19998;
/// The port for all datagrams in the header form.
pub const HEADER_PORT: u16 = 19997;

/// The most bytes of a reply to a request of `request_bytes`, where `max_reply_bytes` is the configured limit: a reply is never
/// longer than its request, unless the network is trusted. A request is padded to get more.
///
/// Without this rule, a small request with a forged source address would send a large reply to another machine.
pub fn reply_limit(request_bytes: usize, trusted: bool, max_reply_bytes: usize) -> usize {
    if trusted { max_reply_bytes } else { max_reply_bytes.min(request_bytes) }
}
