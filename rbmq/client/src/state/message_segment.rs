//! Room for one message in the memory that it is sent from.
//!
//! ```text
//!   claim(100)                      fill in place                  publish_segment(segment, 60)
//!   │ header │ 100 bytes │   ──▶   │ header │ 60 bytes │ ... │   ──▶   │ 60 │ 60 bytes │
//! ```

use rocketbufs::OutSegment;

use crate::ground::error::PublishError;

/// Room for one message of a topic, which [`TopicWriter::claim`](crate::TopicWriter::claim) returns: the application fills the
/// memory that the message is sent from, and [`TopicWriter::publish_segment`](crate::TopicWriter::publish_segment) publishes it.
/// The segment borrows nothing, so that another thread or another language can fill it.
///
/// Several segments may be open at a time. Messages become visible in the order in which they were claimed, and later messages wait for
/// an open segment. Return a segment that is not needed with `publish_segment(segment, None)`: after a segment is dropped, the
/// topic cannot continue, unless it was the newest.
#[derive(Debug)]
pub struct MessageSegment {
    pub(crate) segment: OutSegment,
    /// Bytes of the record's header, before the bytes of the application.
    pub(crate) header: usize,
}

impl MessageSegment {
    /// The bytes to fill. They stay at one address while the segment lives, also if it is moved. Their content is arbitrary
    /// until it is written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.segment.bytes_mut()[self.header..]
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.segment.len() - self.header
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
