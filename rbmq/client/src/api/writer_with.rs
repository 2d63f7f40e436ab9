//! Publishing records with attributes.

use std::time::Duration;

use rocketbufs::Position;

use crate::api::writer::{TopicWriter, WriteBatch};
use crate::ground::error::PublishError;
use crate::state::message_segment::MessageSegment;
use crate::wire::{
    ATTRIBUTES_HEADER_BYTES, Attributes, AttributesBuf, Framing, MAX_RECORD_BYTES, RECORD_HEADER_BYTES,
    push_record_with, record_header_with,
};

/// The headers of a record with attributes.
type Header = [u8; RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES];

impl TopicWriter {
    /// As [`TopicWriter::publish`], with attributes before the content: of an [`AttributesBuf`](crate::AttributesBuf), or of a message
    /// that is passed on. They count for the size of the record. Without attributes this is [`TopicWriter::publish`].
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let publisher = rbmq::Publisher::connect("127.0.0.1:7411")?;
    /// let mut questions = publisher.topic("questions")?;
    /// let mut attributes = rbmq::AttributesBuf::new();
    /// attributes.reply_to("answers/7")?.content_type("text/plain")?.property("lang", "en")?;
    /// questions.publish_with(&attributes, b"what time is it?")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TopicWriter::publish`].
    pub fn publish_with<'a>(
        &mut self,
        attributes: impl Into<Attributes<'a>>,
        record: &[u8],
    ) -> Result<Position, PublishError> {
        self.publish_attributed(attributes.into(), record, None)
    }

    /// As [`TopicWriter::publish_with`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`TopicWriter::publish_timeout`].
    pub fn publish_with_timeout<'a>(
        &mut self,
        attributes: impl Into<Attributes<'a>>,
        record: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Position, PublishError> {
        self.publish_attributed(attributes.into(), record, timeout)
    }

    /// As [`TopicWriter::publish_with`], in a task: see [`TopicWriter::publish_async`].
    ///
    /// # Errors
    /// As [`TopicWriter::publish`].
    pub async fn publish_with_async<'a>(
        &mut self,
        attributes: impl Into<Attributes<'a>>,
        record: &[u8],
    ) -> Result<Position, PublishError> {
        let (attributes, mut named) = (attributes.into(), AttributesBuf::new());
        if attributes.is_empty() {
            return self.publish_async(record).await;
        }
        self.check(Framing::Records)?;
        let attributes = self.named(attributes, &mut named)?;
        let header = header(attributes, record.len())?;
        let size = (header.len() + attributes.len() + record.len()) as u64;
        self.waiting_async(size, |output| output.append(&[&header, attributes.as_bytes(), record])).await
    }

    /// As [`TopicWriter::claim`], for a message with attributes; `bytes` is for its content. Without attributes this is
    /// [`TopicWriter::claim`].
    ///
    /// # Errors
    /// As [`TopicWriter::publish_timeout`].
    pub fn claim_with<'a>(
        &mut self,
        attributes: impl Into<Attributes<'a>>,
        bytes: u64,
        timeout: Option<Duration>,
    ) -> Result<MessageSegment, PublishError> {
        let attributes = attributes.into();
        if attributes.is_empty() {
            return self.claim(bytes, timeout);
        }
        self.check(Framing::Records)?;
        let head = header(attributes, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let header = head.len() + attributes.len();
        let mut room = self.room(bytes + header as u64, timeout)?;
        let (to, rest) = room.bytes_mut().split_at_mut(head.len());
        to.copy_from_slice(&head);
        rest[..attributes.len()].copy_from_slice(attributes.as_bytes());
        Ok(MessageSegment { room, header })
    }

    pub(crate) fn publish_attributed(
        &mut self,
        attributes: Attributes<'_>,
        record: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Position, PublishError> {
        if attributes.is_empty() {
            return self.publish_timeout(record, timeout);
        }
        let mut named = AttributesBuf::new();
        let attributes = self.named(attributes, &mut named)?;
        let header = header(attributes, record.len())?;
        let parts = [&header[..], attributes.as_bytes(), record];
        if self.ready(Framing::Records, record.len()).is_some()
            && let Ok(end) = self.output.append(&parts)
        {
            return Ok(end);
        }
        self.check(Framing::Records)?;
        self.append(&parts, timeout)
    }

    /// Keeps a record for [`TopicWriter::publish_pushed`]. False, and the record is not kept: it does not fit into one delivery with those that
    /// are. For a program that publishes what others send it, and does not know how much that will be.
    ///
    /// # Errors
    /// As [`TopicWriter::publish_with`]. The record is not kept.
    #[doc(hidden)]
    pub fn push<'a>(
        &mut self,
        attributes: impl Into<Attributes<'a>>,
        payload: &[u8],
    ) -> Result<bool, PublishError> {
        self.check(Framing::Records)?;
        let mut named = AttributesBuf::new();
        let attributes = self.named(attributes.into(), &mut named)?;
        let headers = match attributes.is_empty() {
            true => RECORD_HEADER_BYTES,
            false => RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES + attributes.len(),
        };
        let has_room = (self.pushed.len() + headers + payload.len()) as u64 <= self.max_delivery;
        if has_room {
            push_record_with(&mut self.pushed, attributes, payload);
        }
        Ok(has_room)
    }

    /// The bytes of the records that are kept, with headers and attributes.
    #[doc(hidden)]
    pub fn pushed_bytes(&self) -> usize {
        self.pushed.len()
    }

    /// The records that are kept, for a program that has another way into the log than this writer. What is left in it is kept.
    #[doc(hidden)]
    pub fn pushed_mut(&mut self) -> &mut Vec<u8> {
        &mut self.pushed
    }

    /// Publishes the records that are kept, as one delivery. Waits at most `timeout` while the ring is full. Returns the position behind them.
    ///
    /// # Errors
    /// As [`TopicWriter::publish_timeout`]. After [`PublishError::TimedOut`] the records are still kept, and after other errors none is.
    #[doc(hidden)]
    pub fn publish_pushed(&mut self, timeout: Option<Duration>) -> Result<Position, PublishError> {
        let pushed = std::mem::take(&mut self.pushed);
        let published = match pushed.is_empty() {
            true => Ok(self.position()),
            false => self.append(&[&pushed], timeout),
        };
        self.pushed = pushed;
        if !matches!(published, Err(PublishError::TimedOut { .. })) {
            self.pushed.clear();
        }
        published
    }
}

impl WriteBatch<'_> {
    /// As [`WriteBatch::push`], with attributes.
    pub fn push_with<'a>(&mut self, attributes: impl Into<Attributes<'a>>, record: &[u8]) -> bool {
        let attributes = attributes.into();
        if attributes.is_empty() {
            return self.push(record);
        }
        if self.is_of_space() {
            let mut named = AttributesBuf::from(attributes);
            let topic = self.owner.topic.as_str();
            return named.topic(topic).is_ok() && self.push_to_space(Some(&named), record);
        }
        let Some(header) = record_header_with(attributes, record.len()) else { return false };
        self.push_parts(&[&header, attributes.as_bytes(), record])
    }
}

fn header(attributes: Attributes<'_>, bytes: usize) -> Result<Header, PublishError> {
    let too_large = || PublishError::TooLarge {
        size: (bytes as u64).saturating_add(attributes.len() as u64),
        max: MAX_RECORD_BYTES as u64,
    };
    record_header_with(attributes, bytes).ok_or_else(too_large)
}
