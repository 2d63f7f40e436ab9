//! Segments of output buffers.

use rocketring::{Claim, MARK_HEAD_BYTES, MARK_TAIL_BYTES};

use crate::ground::types::{Bid, Position};

/// Bytes of the markers around a delivery of an overwritable buffer.
pub(crate) const MARK_BYTES: u64 = (MARK_HEAD_BYTES + MARK_TAIL_BYTES) as u64;

/// A free piece of an output buffer: the application's until it is delivered (paper 1, Listing 1 and section 3.2).
/// Several may be open; they become visible in the order in which they were taken.
#[derive(Debug)]
pub struct OutSegment {
    pub(crate) claim: Claim,
    pub(crate) bid: Bid,
    /// Markers surround the bytes of the application.
    pub(crate) marked: bool,
}

impl OutSegment {
    /// The bytes to fill. One piece: rings are mapped twice.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.claim.bytes();
        if self.marked {
            let end = bytes.len() - MARK_TAIL_BYTES;
            return &mut bytes[MARK_HEAD_BYTES..end];
        }
        bytes
    }

    /// The buffer.
    pub fn bid(&self) -> Bid {
        self.bid
    }

    /// Position of the first byte in the log.
    pub fn position(&self) -> Position {
        self.claim.from() + if self.marked { MARK_HEAD_BYTES as u64 } else { 0 }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.claim.len() - if self.marked { MARK_BYTES as usize } else { 0 }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
