//! Room for one message in the memory that it is sent from.
//!
//! ```text
//!   claim(100)                      fill in place                  publish_segment(segment, 60)
//!   │ header │ 100 bytes │   ──▶   │ header │ 60 bytes │ ... │   ──▶   │ 60 │ 60 bytes │
//! ```
//!
//! Attributes are behind the header from the start. Only the length before them changes.

use crate::ground::error::PublishError;
use crate::state::space_log::Room;
use crate::wire::{
    ATTRIBUTES_HEADER_BYTES, Attributes, RECORD_HEADER_BYTES, record_header, record_header_with,
};

/// Room for one message of a topic, which [`TopicWriter::claim`](crate::TopicWriter::claim) returns: the application fills the
/// memory that the message is sent from, and [`TopicWriter::publish_segment`](crate::TopicWriter::publish_segment) publishes it.
/// The segment borrows nothing, so that another thread or another language can fill it.
///
/// Several segments may be open at a time. Messages become visible in the order in which they were claimed, and later messages wait for
/// an open segment. Return a segment that is not needed with `publish_segment(segment, None)`: after a segment is dropped, the
/// topic cannot continue, unless it was the newest.
///
/// In a topic of a space the segment is memory of its own, and is copied when it is published: an open one keeps nobody waiting.
pub struct MessageSegment {
    pub(crate) room: Room,
    /// Bytes of the record's headers and attributes, before the bytes of the application.
    pub(crate) header: usize,
}

impl MessageSegment {
    /// The bytes to fill. They stay at one address while the segment lives, also if it is moved. Their content is arbitrary
    /// until it is written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room.bytes_mut()[self.header..]
    }

    /// Writes the header of a record whose content are the first `bytes` bytes, which are not more than there are.
    pub(crate) fn write_header(&mut self, bytes: usize) {
        const HEADERS: usize = RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES;
        let head = &mut self.room.bytes_mut()[..self.header];
        if let Some((to, attributes)) = head.split_first_chunk_mut::<HEADERS>() {
            *to = record_header_with(Attributes::checked_before(attributes), bytes).unwrap_or(*to);
        } else if let Some(to) = head.first_chunk_mut() {
            *to = record_header(bytes).unwrap_or(*to);
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.room.len() - self.header
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for MessageSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageSegment").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// A segment was not published.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SegmentNotPublished {
    /// The reason.
    pub error: PublishError,
    /// The segment, given back where it can be published otherwise.
    pub segment: Option<MessageSegment>,
}
