//! One topic of a publisher: writing records into its buffer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rocketbufs::{ConfirmLevel, OutSegment, OutWriter, Position, SegmentError, WaitError};

use super::confirm::{ConfirmResult, Confirmation, Level};
use super::error::{PublishError, PublisherWaitError};
use super::link::Deadline;
use super::publisher::{CLOSE_TIMEOUT, Inner, TopicState};
use crate::wire::{Framing, RECORD_HEADER_BYTES, TopicName, record_header};

/// How often a publisher that waits for room looks whether the broker still wants the topic.
const LOOK: Duration = Duration::from_millis(200);

/// How often a flush looks whether the broker is back.
const RECONNECT_LOOK: Duration = Duration::from_millis(10);

/// Publishes to one topic. One thread writes; it may be moved to another. Dropping it closes the topic without
/// waiting; [`TopicWriter::close`] waits until the broker has everything.
pub struct TopicWriter {
    inner: Arc<Inner>,
    state: Arc<TopicState>,
    writer: OutWriter,
    max_delivery: u64,
}

impl TopicWriter {
    pub(super) fn new(
        inner: Arc<Inner>,
        state: Arc<TopicState>,
        writer: OutWriter,
        max_delivery: u64,
    ) -> Self {
        Self { inner, state, writer, max_delivery }
    }

    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.state.topic
    }

    /// Most bytes of one delivery: of one record with its header, of one batch, or of one piece of raw bytes.
    pub fn max_delivery_bytes(&self) -> u64 {
        self.max_delivery
    }

    /// Publishes one record as a delivery of its own; waits while the buffer is full. Returns the position behind it.
    ///
    /// # Errors
    /// Too large, the wrong framing, or the broker refused the topic after a reconnect. Nothing was published then.
    #[inline]
    pub fn publish(&mut self, record: &[u8]) -> Result<Position, PublishError> {
        if let Some(header) = self.ready(Framing::Records, record.len())
            && let Ok(end) = self.writer.append(&[&header, record])
        {
            return Ok(end);
        }
        self.publish_slowly(record, None)
    }

    /// As [`TopicWriter::publish`], waiting at most `timeout` while the buffer is full.
    ///
    /// # Errors
    /// As there, and [`PublishError::TimedOut`].
    pub fn publish_timeout(&mut self, record: &[u8], timeout: Duration) -> Result<Position, PublishError> {
        if let Some(header) = self.ready(Framing::Records, record.len())
            && let Ok(end) = self.writer.append(&[&header, record])
        {
            return Ok(end);
        }
        self.publish_slowly(record, Some(timeout))
    }

    /// Publishes plain bytes as they are, in a topic that was opened for [`Framing::Raw`]; more than fit into one
    /// delivery make several. Waits while the buffer is full.
    ///
    /// # Errors
    /// As [`TopicWriter::publish`]; a part may have been published when the broker refused the topic.
    pub fn publish_raw(&mut self, bytes: &[u8]) -> Result<Position, PublishError> {
        self.check(Framing::Raw)?;
        let most = usize::try_from(self.max_delivery).unwrap_or(usize::MAX);
        let mut end = self.writer.head();
        for piece in bytes.chunks(most) {
            end = self.append(&[piece], None)?;
        }
        Ok(end)
    }

    /// A delivery to be filled with many records: one hand-over for all of them. `bytes` is how much room to have
    /// for records with their headers, at most [`TopicWriter::max_delivery_bytes`]. Waits while the buffer is full.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let publisher = rbmq::Publisher::connect("127.0.0.1:7411")?;
    /// let mut prices = publisher.topic("prices")?;
    /// let mut batch = prices.batch(64 << 10)?;
    /// while batch.push(b"EUR 1.07") {}
    /// batch.deliver()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TopicWriter::publish`].
    pub fn batch(&mut self, bytes: u64) -> Result<Batch<'_>, PublishError> {
        self.check(Framing::Records)?;
        let segment = self.segment(bytes, None)?;
        Ok(Batch { owner: self, segment: Some(segment), filled: 0 })
    }

    /// As [`TopicWriter::batch`], waiting at most `timeout` while the buffer is full.
    ///
    /// # Errors
    /// As there, and [`PublishError::TimedOut`].
    pub fn batch_timeout(&mut self, bytes: u64, timeout: Duration) -> Result<Batch<'_>, PublishError> {
        self.check(Framing::Records)?;
        let segment = self.segment(bytes, Some(timeout))?;
        Ok(Batch { owner: self, segment: Some(segment), filled: 0 })
    }

    /// A piece of the buffer of exactly `bytes`, to be filled by `fill` (which returns how many bytes it wrote) and
    /// delivered as raw bytes: without a copy. Waits at most `timeout` (none: for ever) while the buffer is full.
    ///
    /// # Errors
    /// As [`TopicWriter::publish_timeout`]; `E` is what `fill` may fail with, and then nothing is published.
    pub fn fill_raw<E>(
        &mut self,
        bytes: u64,
        timeout: Option<Duration>,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, PublishError> {
        self.check(Framing::Raw)?;
        let mut segment = self.segment(bytes, timeout)?;
        let filled = fill(segment.bytes_mut());
        let size = filled.as_ref().map_or(0, |n| *n as u64);
        self.deliver(segment, size)?;
        Ok(filled)
    }

    /// How many subscribers have a place in this topic's buffer, as the broker told last.
    pub fn subscribers(&self) -> u32 {
        self.state.subscribers()
    }

    /// Waits until the topic has `count` subscribers, so that they get everything from here on.
    ///
    /// # Errors
    /// Fewer within `timeout`.
    pub fn wait_subscribers(&self, count: u32, timeout: Duration) -> Result<(), PublisherWaitError> {
        self.state.wait_subscribers(count, timeout)
    }

    /// The position behind everything that was published.
    pub fn position(&self) -> Position {
        self.writer.head()
    }

    /// Tells when everything below `position` (as [`TopicWriter::publish`] returns it) is confirmed at `level`: a future,
    /// or something to wait for or look at. Any number may be under way, up to [`TopicOptions::max_confirmations`].
    ///
    /// [`TopicOptions::max_confirmations`]: crate::TopicOptions::max_confirmations
    pub fn confirmation(&self, position: Position, level: Level) -> Confirmation {
        let now = (self.writer.head(), self.state.refusal().map(|(_, reason)| reason));
        let asks = (Arc::downgrade(&self.inner), self.state.bid);
        self.state.confirms.begin(level, position, now, asks)
    }

    /// Waits until everything below `position` is confirmed at `level`.
    ///
    /// # Errors
    /// [`ConfirmError`](crate::ConfirmError); each says up to which position it is.
    pub fn confirm(&self, position: Position, level: Level, timeout: Duration) -> ConfirmResult {
        let confirmed = self.confirmation(position, level).wait(timeout);
        let missing = || self.state.min_subscribers.saturating_sub(self.state.subscribers());
        confirmed.map_err(|error| error.explained(self.inner.link.last_error(), missing()))
    }

    /// Up to where everything is confirmed at `level`. Never goes back.
    pub fn confirmed(&self, level: Level) -> Position {
        self.state.confirms.confirmed(level)
    }

    /// After [`ConfirmError::Lost`](crate::ConfirmError::Lost) or [`ConfirmError::TooFew`](crate::ConfirmError::TooFew):
    /// what was lost at `level`, which goes on behind it.
    pub fn accept_lost(&self, level: Level) -> Option<(Position, Position)> {
        self.state.confirms.accept_lost(level)
    }

    /// Waits until the broker has everything that was published.
    ///
    /// # Errors
    /// Not within `timeout`: tells what is confirmed.
    pub fn flush(&self, timeout: Duration) -> Result<(), PublisherWaitError> {
        let (topic, end) = (self.topic().clone(), self.writer.head());
        let deadline = Deadline::after(timeout);
        loop {
            if let Some((_, reason)) = self.state.refusal() {
                return Err(PublisherWaitError::Refused { topic, reason });
            }
            let left = deadline.left();
            let buffer = self.writer.buffer();
            let landed = buffer.wait(ConfirmLevel::Landed, end, Some(left.min(LOOK)));
            // Nobody has it as long as nobody is there: a broker that is away counts for nothing with the framework.
            let broker = buffer.subscribers().into_iter().next();
            let confirmed = broker.as_ref().map_or(0, |broker| broker.landed);
            match landed {
                Ok(()) if broker.is_some() && confirmed >= end => return Ok(()),
                Ok(()) | Err(WaitError::TimedOut { .. }) if left.is_zero() => {
                    let (waited, last_error) = (timeout, self.inner.link.last_error());
                    return Err(PublisherWaitError::NotLanded { topic, confirmed, end, waited, last_error });
                }
                Ok(()) => std::thread::sleep(left.min(RECONNECT_LOOK)),
                Err(WaitError::TimedOut { .. }) => {}
                Err(error) => {
                    return Err(PublisherWaitError::Refused { topic, reason: error.to_string() });
                }
            }
        }
    }

    /// Ends the topic: waits until the broker has everything and knows that this was all, at most 10 s.
    ///
    /// # Errors
    /// Not in time: the broker is away.
    pub fn close(self) -> Result<(), PublisherWaitError> {
        self.close_timeout(CLOSE_TIMEOUT)
    }

    /// As [`TopicWriter::close`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As there. The topic is then dropped.
    pub fn close_timeout(self, timeout: Duration) -> Result<(), PublisherWaitError> {
        let deadline = Deadline::after(timeout);
        self.flush(timeout)?;
        let end = self.writer.head();
        let topic = self.topic().clone();
        self.writer.buffer().destroy();
        if self.state.wait_ended(deadline.left()) {
            return Ok(());
        }
        if let Some((_, reason)) = self.state.refusal() {
            return Err(PublisherWaitError::Refused { topic, reason });
        }
        let last_error = self.inner.link.last_error();
        Err(PublisherWaitError::NotLanded { topic, confirmed: end, end, waited: timeout, last_error })
    }

    /// The header of a record, if it may be written without a further look.
    #[inline]
    fn ready(&self, framing: Framing, len: usize) -> Option<[u8; RECORD_HEADER_BYTES]> {
        if self.state.framing != framing || self.state.stopped.load(Ordering::Relaxed) {
            return None;
        }
        record_header(len)
    }

    fn check(&self, wanted: Framing) -> Result<(), PublishError> {
        if self.state.framing != wanted {
            return Err(PublishError::WrongFraming { opened: self.state.framing, wanted });
        }
        if self.state.stopped.load(Ordering::Acquire)
            && let Some((_, reason)) = self.state.refusal()
        {
            return Err(PublishError::Refused { reason });
        }
        Ok(())
    }

    #[cold]
    fn publish_slowly(&mut self, record: &[u8], timeout: Option<Duration>) -> Result<Position, PublishError> {
        self.check(Framing::Records)?;
        let too_large = PublishError::TooLarge { size: record.len() as u64, max: self.max_delivery };
        let header = record_header(record.len()).ok_or(too_large)?;
        self.append(&[&header, record], timeout)
    }

    fn append(&mut self, parts: &[&[u8]], timeout: Option<Duration>) -> Result<Position, PublishError> {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.waiting(size, timeout, |writer, wait| writer.append_blocking(parts, Some(wait)))
    }

    fn segment(&mut self, bytes: u64, timeout: Option<Duration>) -> Result<OutSegment, PublishError> {
        self.waiting(bytes, timeout, |writer, wait| writer.segment(bytes, Some(wait)))
    }

    /// Tries until there are subscribers enough and room, looking now and then whether the broker still wants the topic.
    fn waiting<T>(
        &mut self,
        size: u64,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut OutWriter, Duration) -> Result<T, SegmentError>,
    ) -> Result<T, PublishError> {
        let deadline = Deadline::after(timeout.unwrap_or(Duration::MAX));
        loop {
            let left = deadline.left();
            if let Some(present) = self.state.too_few(left.min(LOOK)) {
                if left.is_zero() {
                    let (wanted, last_error) = (self.state.min_subscribers, self.inner.link.last_error());
                    return Err(PublishError::TooFewSubscribers { present, wanted, last_error });
                }
                continue;
            }
            self.check(self.state.framing)?;
            match attempt(&mut self.writer, left.min(LOOK)) {
                Ok(done) => return Ok(done),
                Err(SegmentError::TimedOut | SegmentError::Full) if left.is_zero() => {
                    return Err(PublishError::TimedOut { last_error: self.inner.link.last_error() });
                }
                Err(SegmentError::TimedOut | SegmentError::Full) => {}
                Err(SegmentError::TooLarge { max, .. }) => {
                    let header = if self.state.framing == Framing::Records { 4 } else { 0 };
                    return Err(PublishError::TooLarge { size: size.saturating_sub(header), max });
                }
                Err(other) => return Err(PublishError::Buffer(other.to_string())),
            }
        }
    }

    fn deliver(&mut self, segment: OutSegment, size: u64) -> Result<Position, PublishError> {
        self.writer.deliver(segment, size, None).map_err(|e| PublishError::Buffer(e.to_string()))
    }
}

impl Drop for TopicWriter {
    fn drop(&mut self) {
        self.state.confirms.close();
        // Destroyed already if it was closed in order.
        self.writer.buffer().destroy();
        self.inner.forget(self.state.bid);
    }
}

impl std::fmt::Debug for TopicWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicWriter").field("topic", &self.state.topic).finish_non_exhaustive()
    }
}

/// A delivery being filled with records, where they will be sent from. Dropping it without [`Batch::deliver`] gives
/// its room back; nothing of it is published.
pub struct Batch<'w> {
    owner: &'w mut TopicWriter,
    segment: Option<OutSegment>,
    filled: usize,
}

impl Batch<'_> {
    /// Adds a record; false (and nothing added) if there is no room for it.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> bool {
        let Some(segment) = &mut self.segment else { return false };
        let Some(header) = record_header(record.len()) else { return false };
        let Some(room) = segment.bytes_mut().get_mut(self.filled..) else { return false };
        let Some((head, rest)) = room.split_first_chunk_mut::<RECORD_HEADER_BYTES>() else { return false };
        let Some(body) = rest.get_mut(..record.len()) else { return false };
        *head = header;
        body.copy_from_slice(record);
        self.filled += RECORD_HEADER_BYTES + record.len();
        true
    }

    /// Adds records that are encoded already ([`push_record`](crate::wire::push_record)), any number of them, as one
    /// copy; false (and nothing added) if there is no room for all. It is on the caller that they are whole records:
    /// they are not looked at here, and with others the topic's subscribers stop at an error.
    #[inline]
    pub fn push_encoded(&mut self, records: &[u8]) -> bool {
        let Some(segment) = &mut self.segment else { return false };
        let Some(room) = segment.bytes_mut().get_mut(self.filled..) else { return false };
        let Some(to) = room.get_mut(..records.len()) else { return false };
        to.copy_from_slice(records);
        self.filled += records.len();
        true
    }

    /// Bytes filled so far, with headers.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Publishes what was added. Returns the position behind it.
    ///
    /// # Errors
    /// The framework could not deliver; nothing was published.
    pub fn deliver(mut self) -> Result<Position, PublishError> {
        match self.segment.take() {
            Some(segment) => self.owner.deliver(segment, self.filled as u64),
            None => Ok(self.owner.writer.head()),
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some(segment) = self.segment.take() {
            // Giving back the newest open segment cannot fail; there is no other.
            let _ = self.owner.deliver(segment, 0);
        }
    }
}
