//! A writer: publishes to one topic.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rocketbufs::{Epoch, GrowError, OutBuffer, OutSegment, Position, Progress, SegmentError, WaitError};

use crate::ground::deadline::Deadline;
use crate::ground::error::{Over, PublishError, PublisherWaitError, TopicEnd};
use crate::ground::level::ConfirmLevel;
use crate::state::confirm::{Asks, ConfirmResult, Confirmation, Published, Source};
use crate::state::conn_places::HOME;
use crate::state::message_segment::{MessageSegment, SegmentNotPublished};
use crate::state::publisher_shared::PublisherShared;
use crate::state::space_log::{LogUser, Output, Room};
use crate::state::topic_state::{CLOSE_TIMEOUT, State, TopicState};
use crate::wire::{
    ATTRIBUTES_HEADER_BYTES, Attributes, AttributesBuf, Framing, MAX_RECORD_BYTES, RECORD_HEADER_BYTES,
    Records, Space, TopicName, push_record_with, record_header,
};

/// The longest wait before a waiting publisher checks whether the broker refuses the topic.
const STEP: Duration = Duration::from_millis(200);

/// How often a flush checks whether the connection is back.
const RECONNECT_STEP: Duration = Duration::from_millis(10);

/// Publishes to one topic. A writer may be moved to another thread, and one thread uses it at a time. Dropping a writer closes
/// its topic without waiting. [`TopicWriter::close`] waits until the broker has everything.
///
/// Published records are in the topic's ring, in this process. The library sends them at once, and again after a lost
/// connection. Calls wait only while the ring is full or the topic has too few subscribers. Time-outs are for the whole call:
/// `None` is no limit, and `Some(Duration::ZERO)` tries once and does not wait.
///
/// The topics of a space that a publisher has open share one ring, and one log: positions, confirmations and room are those of the
/// log. Closing one of them waits for all that was published to the log before, and leaves the others open.
pub struct TopicWriter {
    pub(crate) shared: Arc<PublisherShared>,
    pub(crate) state: Arc<TopicState>,
    pub(crate) output: Output,
    pub(crate) max_delivery: u64,
    pub(crate) topic: TopicName,
    /// Among the writers of the same log.
    pub(crate) id: u64,
    pub(crate) max_confirmations: usize,
    /// Records that are published together.
    pub(crate) pushed: Vec<u8>,
}

impl TopicWriter {
    pub(crate) fn new(
        shared: Arc<PublisherShared>,
        state: Arc<TopicState>,
        output: Output,
        topic: TopicName,
        id: u64,
        max_confirmations: usize,
    ) -> Self {
        let max_delivery = state.max_delivery_bytes();
        Self { shared, state, output, max_delivery, topic, id, max_confirmations, pushed: Vec::new() }
    }

    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The space that the topic is in, whose log its records go to. None: the topic has a buffer of its own.
    pub fn space(&self) -> Option<&Space> {
        self.output.log().map(|log| &log.space)
    }

    /// Why no broker takes anything at the moment; none while one does.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.state.trouble().or_else(|| self.shared.connection.last_error())
    }

    /// Whether the topic takes nothing more: the broker refuses it, or its publisher is closed.
    pub fn has_ended(&self) -> bool {
        self.state.end().is_some()
    }

    /// The largest delivery in bytes: a record with its header, a batch, or a piece of raw bytes.
    pub fn max_delivery_bytes(&self) -> u64 {
        self.max_delivery
    }

    /// The largest delivery that the broker takes, for which the rings grow when it comes: a record with its header. Not smaller than
    /// [`TopicWriter::max_delivery_bytes`], which is what fits without that.
    pub fn largest_delivery_bytes(&self) -> u64 {
        match self.output {
            Output::Own(_) => self.state.largest_bytes(),
            Output::Shared { .. } => self.max_delivery,
        }
    }

    /// Publishes one record. Waits without a limit while the ring is full. Returns the position behind the record.
    ///
    /// A record that is larger than the ring was made for, up to the broker's `max_message_bytes`, lets the rings of the topic grow: here, at the
    /// brokers, and at the subscribers. They stay so large; memory that is not in use is given back.
    ///
    /// # Errors
    /// The record is too large, the topic has another framing, or the broker refuses the topic after a reconnect. Then nothing
    /// was published.
    #[inline]
    pub fn publish(&mut self, record: &[u8]) -> Result<Position, PublishError> {
        if let Some(header) = self.ready(Framing::Records, record.len())
            && let Ok(end) = self.output.append_record(&header, record)
        {
            return Ok(end);
        }
        self.publish_slowly(record, None)
    }

    /// As [`TopicWriter::publish`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`TopicWriter::publish`], and [`PublishError::TimedOut`].
    pub fn publish_timeout(
        &mut self,
        record: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Position, PublishError> {
        if let Some(header) = self.ready(Framing::Records, record.len())
            && let Ok(end) = self.output.append_record(&header, record)
        {
            return Ok(end);
        }
        self.publish_slowly(record, timeout)
    }

    /// Publishes plain bytes, in a topic with [`Framing::Raw`]. Bytes that do not fit into one delivery make several. Waits
    /// without a limit while the ring is full.
    ///
    /// # Errors
    /// As [`TopicWriter::publish`]. A part may have been published when the broker refuses the topic.
    pub fn publish_raw(&mut self, bytes: &[u8]) -> Result<Position, PublishError> {
        self.check(Framing::Raw)?;
        let most = usize::try_from(self.max_delivery).unwrap_or(usize::MAX);
        let mut end = self.output.head();
        for piece in bytes.chunks(most) {
            end = self.append(&[piece], None)?;
        }
        Ok(end)
    }

    /// Begins a delivery of many records, which costs as much as the delivery of one. `bytes` is the room for records with their
    /// headers, at most [`TopicWriter::max_delivery_bytes`]. Waits without a limit while the ring is full.
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
    pub fn batch(&mut self, bytes: u64) -> Result<WriteBatch<'_>, PublishError> {
        self.batch_timeout(bytes, None)
    }

    /// As [`TopicWriter::batch`], waiting at most `timeout`.
    ///
    /// # Errors
    /// As [`TopicWriter::batch`], and [`PublishError::TimedOut`].
    pub fn batch_timeout(
        &mut self,
        bytes: u64,
        timeout: Option<Duration>,
    ) -> Result<WriteBatch<'_>, PublishError> {
        self.check(Framing::Records)?;
        let room = self.room(bytes, timeout)?;
        Ok(WriteBatch::new(self, room, timeout))
    }

    /// Publishes raw bytes without a copy: `fill` writes them into `bytes` bytes of the ring and returns how many bytes it wrote.
    /// Waits at most `timeout` while the ring is full.
    ///
    /// # Errors
    /// As [`TopicWriter::publish_timeout`]. If `fill` fails, nothing is published, and the inner result is its error.
    pub fn fill_raw<E>(
        &mut self,
        bytes: u64,
        timeout: Option<Duration>,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, PublishError> {
        self.check(Framing::Raw)?;
        let mut room = self.room(bytes, timeout)?;
        let filled = fill(room.bytes_mut());
        let size = filled.as_ref().map_or(0, |n| *n as u64);
        if let Room::Ring(segment) = room {
            self.deliver(segment, size)?;
        }
        Ok(filled)
    }

    /// Room for one message of `bytes` bytes, to be filled in the memory that it is sent from: a record, or in a raw topic plain
    /// bytes. Waits at most `timeout` (`None`: no limit) while the ring is full.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let publisher = rbmq::Publisher::connect("127.0.0.1:7411")?;
    /// let mut frames = publisher.topic("frames")?;
    /// let mut segment = frames.claim(4096, None)?;
    /// segment.bytes_mut().fill(7);
    /// frames.publish_segment(segment, Some(4096))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TopicWriter::publish_timeout`].
    pub fn claim(&mut self, bytes: u64, timeout: Option<Duration>) -> Result<MessageSegment, PublishError> {
        let header = match self.state.framing {
            Framing::Records if bytes > MAX_RECORD_BYTES as u64 => {
                return Err(PublishError::TooLarge { size: bytes, max: MAX_RECORD_BYTES as u64 });
            }
            Framing::Records => RECORD_HEADER_BYTES,
            _ => 0,
        };
        let room = self.room(bytes.saturating_add(header as u64), timeout)?;
        Ok(MessageSegment { room, header })
    }

    /// Publishes the first `bytes` bytes of a segment as a message; with `None` returns the segment, and publishes nothing. Only
    /// the newest open segment can be returned, or published with fewer bytes than it has. Returns the position behind the
    /// message. Never waits.
    ///
    /// # Errors
    /// Not the newest segment, more bytes than it has, or a segment of another topic; in a topic of a space, others have taken the room. The
    /// segment is in the error.
    pub fn publish_segment(
        &mut self,
        mut segment: MessageSegment,
        bytes: Option<u64>,
    ) -> Result<Position, SegmentNotPublished> {
        let header = segment.header;
        let size = match bytes {
            None => 0,
            Some(bytes) if bytes > segment.len() as u64 => {
                let error = PublishError::Buffer(format!(
                    "{bytes} bytes were published of a segment that has {}",
                    segment.len()
                ));
                return Err(SegmentNotPublished { error, segment: Some(segment) });
            }
            Some(bytes) => {
                segment.write_header(bytes as usize);
                bytes + header as u64
            }
        };
        if size > 0
            && let Err(error) = self.is_open()
        {
            return Err(SegmentNotPublished { error, segment: Some(segment) });
        }
        self.publish_room(segment, size)
    }

    fn publish_room(&mut self, segment: MessageSegment, size: u64) -> Result<Position, SegmentNotPublished> {
        let MessageSegment { room, header } = segment;
        match (room, &mut self.output) {
            (Room::Ring(segment), Output::Own(writer)) => {
                writer.deliver(segment, size, None).map_err(|refused| {
                    let error = PublishError::Buffer(refused.to_string());
                    let room = refused.into_segment().map(Room::Ring);
                    SegmentNotPublished { error, segment: room.map(|room| MessageSegment { room, header }) }
                })
            }
            (Room::Memory(_), output) if size == 0 => Ok(output.head()),
            (Room::Memory(bytes), Output::Shared { .. }) => {
                let given = bytes.get(RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES..header);
                let given = Attributes::checked_before(given.unwrap_or_default());
                let record = &bytes[header..size as usize];
                let published = self.publish_attributed(given, record, Some(Duration::ZERO));
                let segment = MessageSegment { room: Room::Memory(bytes), header };
                published.map_err(|error| SegmentNotPublished { error, segment: Some(segment) })
            }
            (room, _) => {
                let error = PublishError::Buffer("the segment is one of another topic".into());
                Err(SegmentNotPublished { error, segment: Some(MessageSegment { room, header }) })
            }
        }
    }

    /// The number of subscribers that have a place in this topic's buffer, as last reported by the broker.
    pub fn subscribers(&self) -> u32 {
        self.state.subscribers()
    }

    /// Waits until the topic has `count` subscribers. They receive everything that is published from then on.
    ///
    /// # Errors
    /// The topic has fewer subscribers after `timeout` (none: no limit), or the broker refuses the topic.
    pub fn wait_subscribers(&self, count: u32, timeout: Option<Duration>) -> Result<(), PublisherWaitError> {
        self.state.wait_subscribers(&self.topic, count, timeout)
    }

    /// The name of the log that this writer's records go to, of which positions count; none after its end. The broker of a topic that it keeps
    /// tells gateways in its process by this name what of it is stored.
    pub fn epoch(&self) -> Option<Epoch> {
        self.output.buffer().info().map(|info| info.epoch)
    }

    /// The position behind the last published record.
    pub fn position(&self) -> Position {
        self.output.head()
    }

    /// How many bytes, with the headers of records, could be published now without waiting for room. There may be more: a publisher
    /// that is refused asks the broker how far it is.
    pub fn free_bytes(&self) -> u64 {
        self.output.free_bytes()
    }

    /// Begins a confirmation of everything below `position`, which [`TopicWriter::publish`] returned. The result is a future that
    /// can also be waited for or polled. Up to [`TopicOptions::max_confirmations`] may wait at a time.
    ///
    /// [`TopicOptions::max_confirmations`]: crate::TopicOptions::max_confirmations
    pub fn confirmation(&self, position: Position, level: ConfirmLevel) -> Confirmation {
        let refusal = match self.state.end() {
            Some(TopicEnd::Refused(_, reason)) => Some(reason),
            _ => None,
        };
        let published = Published { end: self.output.head(), refusal };
        let (asks, topic) = (Arc::downgrade(&self.shared) as Weak<dyn Asks>, self.topic.clone());
        let source = Source { asks, bid: self.state.bid, topic };
        self.state.confirmations.begin(level, position, published, source)
    }

    /// Waits until everything below `position` is confirmed at `level`, at most `timeout` (none: no limit).
    ///
    /// # Errors
    /// [`ConfirmError`](crate::ConfirmError), with the confirmed position.
    pub fn confirm(
        &self,
        position: Position,
        level: ConfirmLevel,
        timeout: Option<Duration>,
    ) -> ConfirmResult {
        let confirmed = self.confirmation(position, level).wait(timeout);
        let missing = || self.state.min_subscribers.saturating_sub(self.state.subscribers());
        confirmed.map_err(|error| error.explained(self.last_error(), missing()))
    }

    /// The position below which everything is confirmed at `level`. This position never decreases.
    pub fn confirmed(&self, level: ConfirmLevel) -> Position {
        self.state.confirmations.confirmed(level)
    }

    /// Why the broker's disk takes nothing of a kept topic at the moment, as far as the broker has said; none if it works. Publishing
    /// waits when the rings are full.
    pub fn disk_failure(&self) -> Option<String> {
        self.state.confirmations.disk_failure()
    }

    /// Whether the topic is at another broker than the one that the publisher is connected to, or on its way there.
    #[doc(hidden)]
    pub fn is_elsewhere(&self) -> bool {
        self.state.place() != HOME
    }

    /// Accepts a loss after [`ConfirmError::Lost`](crate::ConfirmError::Lost) or
    /// [`ConfirmError::TooFew`](crate::ConfirmError::TooFew): confirmations of `level` continue behind the lost range, which is
    /// returned.
    pub fn accept_lost(&self, level: ConfirmLevel) -> Option<(Position, Position)> {
        self.state.confirmations.accept_lost(level)
    }

    /// Waits until the broker has everything that was published, at most `timeout` (none: no limit).
    ///
    /// # Errors
    /// [`PublisherWaitError::NotAccepted`] after `timeout`, with the accepted position, or the broker refuses the topic.
    pub fn flush(&self, timeout: Option<Duration>) -> Result<(), PublisherWaitError> {
        let (topic, end) = (self.topic().clone(), self.output.head());
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(end) = self.state.end() {
                return Err(end.of_wait(topic));
            }
            let over = deadline.has_passed();
            let buffer = self.output.buffer();
            let landed =
                buffer.wait(rocketbufs::ProgressLevel::Landed, end, Some(deadline.left_within(STEP)));
            // The framework counts only connected subscribers. While the broker is away, there is none, and nothing is missing.
            let broker = buffer.subscribers().into_iter().next();
            let accepted = broker.as_ref().map_or(0, |broker| broker.landed);
            match landed {
                Ok(()) if broker.is_some() && accepted >= end => return Ok(()),
                Ok(()) | Err(WaitError::TimedOut { .. }) if over => {
                    let (waited, last_error) = (timeout.unwrap_or_default(), self.last_error());
                    return Err(PublisherWaitError::NotAccepted {
                        topic,
                        confirmed: accepted,
                        end,
                        waited,
                        last_error,
                    });
                }
                Ok(()) => std::thread::sleep(deadline.left_within(RECONNECT_STEP)),
                Err(WaitError::TimedOut { .. }) => {}
                Err(WaitError::ShutDown) => return Err(PublisherWaitError::ShutDown { topic }),
                Err(error) => {
                    return Err(PublisherWaitError::Refused { topic, reason: error.to_string() });
                }
            }
        }
    }

    /// Closes the topic: waits until the broker has everything and the end of the topic, at most 10 s.
    ///
    /// # Errors
    /// As [`TopicWriter::flush`]: the broker is away, or it refuses the topic. The topic is then closed without waiting.
    pub fn close(self) -> Result<(), PublisherWaitError> {
        self.close_timeout(Some(CLOSE_TIMEOUT))
    }

    /// As [`TopicWriter::close`], waiting at most `timeout` (none: no limit).
    ///
    /// # Errors
    /// As [`TopicWriter::close`].
    pub fn close_timeout(self, timeout: Option<Duration>) -> Result<(), PublisherWaitError> {
        let deadline = Deadline::after(timeout);
        self.flush(timeout)?;
        let end = self.output.head();
        let topic = self.topic().clone();
        let Some(buffer) = self.last() else { return Ok(()) };
        buffer.destroy();
        if self.state.wait_ended(deadline.left()) {
            return Ok(());
        }
        if let Some(end) = self.state.end() {
            return Err(end.of_wait(topic));
        }
        let (waited, last_error) = (timeout.unwrap_or_default(), self.last_error());
        Err(PublisherWaitError::NotAccepted { topic, confirmed: end, end, waited, last_error })
    }

    /// The header of a record, if the record may be written without further checks.
    #[inline]
    pub(crate) fn ready(&self, framing: Framing, len: usize) -> Option<[u8; RECORD_HEADER_BYTES]> {
        if self.state.framing != framing || self.state.stopped.load(Ordering::Relaxed) {
            return None;
        }
        record_header(len)
    }

    /// Whether the publisher is there, for a segment that was claimed before. A refused topic still has its log.
    fn is_open(&self) -> Result<(), PublishError> {
        match self.state.stopped.load(Ordering::Relaxed).then(|| self.state.end()).flatten() {
            Some(end @ TopicEnd::Over(_)) => Err(end.of_publish()),
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&self, wanted: Framing) -> Result<(), PublishError> {
        if self.state.framing != wanted {
            return Err(PublishError::WrongFraming { opened: self.state.framing, wanted });
        }
        if self.state.stopped.load(Ordering::Acquire)
            && let Some(end) = self.state.end()
        {
            return Err(end.of_publish());
        }
        Ok(())
    }

    /// The buffer, if no other writer uses it. No other one follows then.
    pub(crate) fn last(&self) -> Option<OutBuffer> {
        let is_last = self.output.log().is_none_or(LogUser::leave);
        is_last.then(|| self.output.buffer().clone())
    }

    #[cold]
    fn publish_slowly(&mut self, record: &[u8], timeout: Option<Duration>) -> Result<Position, PublishError> {
        self.check(Framing::Records)?;
        let size = (RECORD_HEADER_BYTES + record.len()) as u64;
        let too_large = || self.too_large(size, self.largest_delivery_bytes());
        let header = record_header(record.len()).ok_or_else(too_large)?;
        match self.output {
            Output::Own(_) => self.append(&[&header, record], timeout),
            Output::Shared { .. } => {
                self.waiting(size, timeout, |output, wait| output.append_record_blocking(record, wait))
            }
        }
    }

    /// The attributes of a record of this topic: with its name in a space.
    pub(crate) fn named<'a>(
        &self,
        given: Attributes<'a>,
        into: &'a mut AttributesBuf,
    ) -> Result<Attributes<'a>, PublishError> {
        if self.output.attributes().is_empty() {
            return Ok(given);
        }
        let named = into.copy_from(given).topic(self.topic.as_str());
        named.map(|named| named.attributes()).map_err(|error| PublishError::Buffer(error.to_string()))
    }

    pub(crate) fn append(
        &mut self,
        parts: &[&[u8]],
        timeout: Option<Duration>,
    ) -> Result<Position, PublishError> {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        self.waiting(size, timeout, |output, wait| output.append_blocking(parts, wait))
    }

    pub(crate) fn room(&mut self, bytes: u64, timeout: Option<Duration>) -> Result<Room, PublishError> {
        self.waiting(bytes, timeout, |output, wait| output.room(bytes, wait))
    }

    /// Waits for enough subscribers and for room. Checks now and then whether the topic takes nothing more.
    fn waiting<T>(
        &mut self,
        size: u64,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Output, Duration) -> Result<T, SegmentError>,
    ) -> Result<T, PublishError> {
        let deadline = Deadline::after(timeout);
        loop {
            let (over, step) = (deadline.has_passed(), deadline.left_within(STEP));
            if let Some(present) = self.state.too_few(step) {
                if over {
                    let (wanted, last_error) = (self.state.min_subscribers, self.last_error());
                    return Err(PublishError::TooFewSubscribers { present, wanted, last_error });
                }
                continue;
            }
            self.check(self.state.framing)?;
            match attempt(&mut self.output, step) {
                Ok(done) => return Ok(done),
                Err(SegmentError::TimedOut | SegmentError::Full) if over => return Err(self.timed_out()),
                Err(SegmentError::TimedOut | SegmentError::Full) => {}
                Err(SegmentError::TooLarge { max, .. }) => match self.known_largest(step) {
                    Some(largest) => self.grow(size, largest.max(max))?,
                    None if over => return Err(self.timed_out()),
                    None => {}
                },
                Err(error) => return Err(self.refused(&error)),
            }
        }
    }

    /// The largest delivery that the broker takes, in bytes. Waits for the answer of the broker, if that matters. None: no answer yet.
    #[cold]
    fn known_largest(&self, step: Duration) -> Option<u64> {
        if !self.asks_for_largest() {
            return Some(self.max_delivery);
        }
        self.state.wait(Some(step), State::is_answered);
        self.state.answered_largest()
    }

    /// Whether the ring grows if the broker takes larger deliveries.
    pub(crate) fn asks_for_largest(&self) -> bool {
        self.state.grows && matches!(self.output, Output::Own(_))
    }

    /// Lets the ring grow for a delivery of `size` bytes, for which it is too small.
    ///
    /// # Errors
    /// The topic has ended, `size` is larger than `largest` (the largest delivery that the broker takes, in bytes), or the ring cannot grow.
    #[cold]
    pub(crate) fn grow(&mut self, size: u64, largest: u64) -> Result<(), PublishError> {
        if let Some(end) = self.state.end() {
            return Err(end.of_publish());
        }
        let Output::Own(writer) = &mut self.output else { return Err(self.too_large(size, largest)) };
        if size > largest || size <= self.max_delivery {
            return Err(self.too_large(size, largest));
        }
        // No more: subscribers are told so much, and those with little memory leave before it comes.
        match writer.grow(size) {
            Ok(()) => {}
            Err(GrowError::Fixed) => {
                // Others map the ring. What fits is what there may be.
                self.state.largest_bytes.store(0, Ordering::Relaxed);
                return Err(self.too_large(size, self.max_delivery));
            }
            Err(error) => {
                let text = format!("the ring does not grow for a message of {size} bytes: {error}");
                return Err(PublishError::Buffer(text));
            }
        }
        self.max_delivery = size;
        self.state.max_delivery_bytes.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// The error for a delivery of `size` bytes that is larger than `largest`.
    pub(crate) fn too_large(&self, size: u64, largest: u64) -> PublishError {
        let header = if self.state.framing == Framing::Records { RECORD_HEADER_BYTES as u64 } else { 0 };
        let max = largest.saturating_sub(self.attributes_bytes());
        PublishError::TooLarge { size: size.saturating_sub(header), max }
    }

    /// Why the framework gives no segment.
    pub(crate) fn refused(&self, error: &SegmentError) -> PublishError {
        match error {
            SegmentError::Closed if let Some(end) = self.state.end() => end.of_publish(),
            other => PublishError::Buffer(other.to_string()),
        }
    }

    /// The bytes that each record has besides its plain header and its content.
    pub(crate) fn attributes_bytes(&self) -> u64 {
        match self.output.attributes().len() as u64 {
            0 => 0,
            bytes => ATTRIBUTES_HEADER_BYTES as u64 + bytes,
        }
    }

    /// The ring stayed full. Requests an event for the moment at which it has room.
    fn timed_out(&self) -> PublishError {
        if self.shared.events.are_wanted() {
            self.state.names.wait_for_room(self.id, &self.topic);
            self.output.buffer().notify_progress(Progress::Room);
        }
        PublishError::TimedOut { last_error: self.last_error() }
    }

    fn deliver(&mut self, segment: OutSegment, size: u64) -> Result<Position, PublishError> {
        if size > 0 {
            self.is_open()?;
        }
        match &mut self.output {
            Output::Own(writer) => {
                writer.deliver(segment, size, None).map_err(|e| PublishError::Buffer(e.to_string()))
            }
            Output::Shared { .. } => Err(PublishError::Buffer("the segment is one of another topic".into())),
        }
    }
}

impl Drop for TopicWriter {
    fn drop(&mut self) {
        self.state.forget(self.id);
        // The log of a space ends with its last writer.
        if let Output::Own(writer) = &self.output {
            self.state.confirmations.close(Over::Closed);
            // No effect if the topic was closed: the buffer is destroyed then.
            writer.buffer().destroy();
            self.shared.remove(self.state.bid);
        } else {
            self.state.confirmations.change_limit(self.max_confirmations, 0);
        }
    }
}

impl std::fmt::Debug for TopicWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicWriter").field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// A delivery that is filled with records, in the memory that they are sent from. Dropping the batch without
/// [`WriteBatch::deliver`] publishes nothing.
///
/// In a topic of a space the records are copied once more, since several writers share the ring; `deliver` waits if another writer has
/// taken the room, as long as the call that began the batch was allowed to wait.
pub struct WriteBatch<'w> {
    pub(crate) owner: &'w mut TopicWriter,
    filling: Filling,
    filled: usize,
}

enum Filling {
    Ring(Option<OutSegment>),
    Space {
        /// The records with their attributes.
        encoded: Vec<u8>,
        /// The room for records without the attributes that say their topic.
        bytes: usize,
        timeout: Option<Duration>,
    },
}

impl<'w> WriteBatch<'w> {
    pub(crate) fn new(owner: &'w mut TopicWriter, room: Room, timeout: Option<Duration>) -> Self {
        let filling = match room {
            Room::Ring(segment) => Filling::Ring(Some(segment)),
            Room::Memory(mut encoded) => {
                let bytes = encoded.len();
                encoded.clear();
                Filling::Space { encoded, bytes, timeout }
            }
        };
        Self { owner, filling, filled: 0 }
    }

    /// Adds a record. Returns false, and adds nothing, if there is no room.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> bool {
        let Filling::Ring(segment) = &mut self.filling else { return self.push_to_space(None, record) };
        let Some(segment) = segment else { return false };
        let Some(header) = record_header(record.len()) else { return false };
        let Some(room) = segment.bytes_mut().get_mut(self.filled..) else { return false };
        let Some((head, rest)) = room.split_first_chunk_mut::<RECORD_HEADER_BYTES>() else { return false };
        let Some(body) = rest.get_mut(..record.len()) else { return false };
        *head = header;
        body.copy_from_slice(record);
        self.filled += RECORD_HEADER_BYTES + record.len();
        true
    }

    /// Adds any number of encoded records ([`push_record`](crate::wire::push_record)) as one copy. Returns false, and adds
    /// nothing, if there is no room for all. The caller guarantees that the records are whole: they are not checked here, and
    /// malformed ones are errors at the subscribers. In a topic of a space, each record gets the name of the topic, and malformed ones are
    /// not added.
    #[inline]
    pub fn push_encoded(&mut self, records: &[u8]) -> bool {
        let Filling::Ring(segment) = &mut self.filling else { return self.push_encoded_to_space(records) };
        let Some(segment) = segment else { return false };
        let Some(room) = segment.bytes_mut().get_mut(self.filled..) else { return false };
        let Some(to) = room.get_mut(..records.len()) else { return false };
        to.copy_from_slice(records);
        self.filled += records.len();
        true
    }

    #[cold]
    fn push_encoded_to_space(&mut self, records: &[u8]) -> bool {
        let (filled, before) = (self.filled, self.encoded_bytes());
        let mut records = Records::new(records);
        let mut attributes = AttributesBuf::new();
        while let Some(record) = records.next_record() {
            attributes.copy_from(record.attributes);
            if attributes.topic(self.owner.topic.as_str()).is_err()
                || !self.push_to_space(Some(&attributes), record.payload)
            {
                return self.cut(filled, before);
            }
        }
        records.malformed().is_none() || self.cut(filled, before)
    }

    fn encoded_bytes(&self) -> usize {
        match &self.filling {
            Filling::Ring(_) => self.filled,
            Filling::Space { encoded, .. } => encoded.len(),
        }
    }

    /// Adds the parts of one record.
    pub(crate) fn push_parts(&mut self, parts: &[&[u8]]) -> bool {
        let Filling::Ring(Some(segment)) = &mut self.filling else { return false };
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let Some(room) = segment.bytes_mut().get_mut(self.filled..) else { return false };
        let Some(mut to) = room.get_mut(..size) else { return false };
        for part in parts {
            let (here, rest) = to.split_at_mut(part.len());
            here.copy_from_slice(part);
            to = rest;
        }
        self.filled += size;
        true
    }

    /// Whether the batch is of a topic in a space.
    pub(crate) fn is_of_space(&self) -> bool {
        matches!(self.filling, Filling::Space { .. })
    }

    /// Removes what was added since.
    fn cut(&mut self, filled: usize, encoded_bytes: usize) -> bool {
        self.filled = filled;
        if let Filling::Space { encoded, .. } = &mut self.filling {
            encoded.truncate(encoded_bytes);
        }
        false
    }

    /// Adds a record with attributes; none: those of all records of the writer.
    #[cold]
    pub(crate) fn push_to_space(&mut self, attributes: Option<&AttributesBuf>, record: &[u8]) -> bool {
        let Self { owner, filling: Filling::Space { encoded, bytes, .. }, filled } = self else {
            return false;
        };
        let attributes = attributes.map_or(owner.output.attributes(), AttributesBuf::attributes);
        let plain = RECORD_HEADER_BYTES + record.len();
        let total = encoded.len() + plain + ATTRIBUTES_HEADER_BYTES + attributes.len();
        if *filled + plain > *bytes || total as u64 > owner.max_delivery {
            return false;
        }
        push_record_with(encoded, attributes, record);
        *filled += plain;
        true
    }

    /// The number of bytes that were added, including headers.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Publishes the records. Returns the position behind them.
    ///
    /// # Errors
    /// The framework cannot deliver, or in a topic of a space the room is gone and the time of the batch is over
    /// ([`PublishError::TimedOut`]). Nothing was published.
    pub fn deliver(mut self) -> Result<Position, PublishError> {
        self.try_deliver()
    }

    /// As [`WriteBatch::deliver`]. After [`PublishError::TimedOut`] the batch has its records, and can be delivered again; after other
    /// results it has none and takes none.
    ///
    /// # Errors
    /// As [`WriteBatch::deliver`].
    pub fn try_deliver(&mut self) -> Result<Position, PublishError> {
        let filled = std::mem::take(&mut self.filled);
        match &mut self.filling {
            Filling::Ring(segment) => match segment.take() {
                Some(segment) => self.owner.deliver(segment, filled as u64),
                None => Ok(self.owner.output.head()),
            },
            Filling::Space { encoded, bytes, .. } if encoded.is_empty() => {
                *bytes = 0;
                Ok(self.owner.output.head())
            }
            Filling::Space { encoded, bytes, timeout } => {
                let delivered = self.owner.append(&[encoded], *timeout);
                if matches!(delivered, Err(PublishError::TimedOut { .. })) {
                    self.filled = filled;
                } else {
                    encoded.clear();
                    *bytes = 0;
                }
                delivered
            }
        }
    }

    /// The records of a topic in a space, to be delivered in another way.
    pub(crate) fn take_encoded(&mut self) -> Option<Vec<u8>> {
        match &mut self.filling {
            Filling::Space { encoded, .. } if !encoded.is_empty() => Some(std::mem::take(encoded)),
            _ => None,
        }
    }
}

impl Drop for WriteBatch<'_> {
    fn drop(&mut self) {
        if let Filling::Ring(segment) = &mut self.filling
            && let Some(segment) = segment.take()
        {
            // The batch borrows the writer, so its segment is the newest: returning it cannot fail.
            let _ = self.owner.deliver(segment, 0);
        }
    }
}
