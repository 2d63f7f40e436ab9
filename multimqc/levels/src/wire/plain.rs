//! The plain form, figure 7 of the paper.
//!
//! ```text
//!   push (to 19999)          pull (to 19998)                                reply (from 19998)
//!  0                        0              8              16               0
//! ┌───────────────────────┐┌──────────────┬──────────────┬───────────────┐┌─────────────────────────────┐
//! │ message, 1 byte or more││ start u64    │ length u64   │ padding       ││ bytes of the log from start │
//! └───────────────────────┘└──────────────┴──────────────┴───────────────┘└─────────────────────────────┘
//! ```
//!
//! The whole payload of a push is the message. The padding of a pull is any number of bytes of any value: a reply is not longer
//! than its request, unless the network is trusted. A reply that is shorter than asked ends where the log has no more bytes, at a
//! hole, or at the limit of replies. An empty reply means that there is no byte at `start`; only the header form has the reason.

use super::numbers::u64_at;
use crate::log::{MAX_OFFSET, Offset};

/// Bytes of a pull request without padding.
pub const PULL_BYTES: usize = 16;

/// A pull request: a range of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullRequest {
    /// The offset of the first byte.
    pub start: Offset,
    /// The number of bytes.
    pub length: u64,
}

impl PullRequest {
    /// The request in a datagram. `None`: it is shorter than [`PULL_BYTES`], or starts beyond [`MAX_OFFSET`].
    pub fn parse(payload: &[u8]) -> Option<PullRequest> {
        let bytes: &[u8; PULL_BYTES] = payload.first_chunk()?;
        let (start, length) = (u64_at(bytes, 0), u64_at(bytes, 8));
        (start <= MAX_OFFSET).then_some(PullRequest { start, length })
    }

    /// The request as bytes, without padding.
    pub fn encode(&self) -> [u8; PULL_BYTES] {
        let mut bytes = [0; PULL_BYTES];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// The request, padded with zeros to `bytes` if it is shorter. `out` is replaced.
    pub fn encode_padded(&self, bytes: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.encode());
        out.resize(bytes.max(PULL_BYTES), 0);
    }
}
