//! The writer of a space: publishes to any of its topics.

use std::time::Duration;

use rocketbufs::Position;

use crate::api::writer::{TopicWriter, WriteBatch};
use crate::connection::lock;
use crate::ground::error::{PublishError, PublisherWaitError};
use crate::ground::level::ConfirmLevel;
use crate::state::confirm::{ConfirmResult, Confirmation};
use crate::wire::{Attributes, AttributesBuf, Space, TopicFilter, TopicName};

/// Publishes to the topics of a space ([`Publisher::space`](crate::Publisher::space)). A writer may be moved to another thread, and one
/// thread uses it at a time.
///
/// Its buffer is the log of the space, which all writers of a publisher share: positions, confirmations and room are those of the log, and
/// the events of the publisher name it `$space/PREFIX`. A writer costs nothing for each topic.
pub struct SpaceWriter {
    log: TopicWriter,
    /// The attributes of the record that is being published.
    attributes: AttributesBuf,
}

impl SpaceWriter {
    pub(crate) fn new(log: TopicWriter) -> Self {
        Self { log, attributes: AttributesBuf::new() }
    }

    /// The space.
    pub fn space(&self) -> &Space {
        match self.log.output.log() {
            Some(log) => &log.space,
            None => unreachable!("a space has a log"),
        }
    }

    /// As [`TopicWriter::has_ended`].
    pub fn has_ended(&self) -> bool {
        self.log.has_ended()
    }

    /// Whether a topic is in the space: the pattern matches it, and no earlier rule of the broker does.
    pub fn contains(&self, topic: &TopicName) -> bool {
        contains(&self.log, topic)
    }

    /// Whether every topic that a filter matches is in the space.
    pub fn covers(&self, filter: &TopicFilter) -> bool {
        lock(&self.log.state.in_space).in_space.as_ref().is_some_and(|in_space| in_space.covers(filter))
    }

    /// Publishes one record to a topic of the space. Waits without a limit while the ring is full. Returns the position behind the
    /// record, in the log of the space.
    ///
    /// # Errors
    /// As [`TopicWriter::publish`], [`PublishError::NotInSpace`] and [`PublishError::TopicInAttributes`]. Nothing was published.
    pub fn publish_to<'a>(
        &mut self,
        topic: &TopicName,
        attributes: impl Into<Attributes<'a>>,
        payload: &[u8],
    ) -> Result<Position, PublishError> {
        self.publish_to_timeout(topic, attributes, payload, None)
    }

    /// As [`SpaceWriter::publish_to`], waiting at most `timeout`. After [`PublishError::TimedOut`] the event
    /// [`PublisherEvent::Room`](crate::PublisherEvent::Room) says when there is room.
    ///
    /// # Errors
    /// As [`SpaceWriter::publish_to`], and [`PublishError::TimedOut`].
    pub fn publish_to_timeout<'a>(
        &mut self,
        topic: &TopicName,
        attributes: impl Into<Attributes<'a>>,
        payload: &[u8],
        timeout: Option<Duration>,
    ) -> Result<Position, PublishError> {
        name(&self.log, topic, attributes.into(), &mut self.attributes)?;
        self.log.publish_attributed(self.attributes.attributes(), payload, timeout)
    }

    /// As [`TopicWriter::push`], for a topic of the space.
    ///
    /// # Errors
    /// As [`SpaceWriter::publish_to`]. The record is not kept.
    #[doc(hidden)]
    pub fn push<'a>(
        &mut self,
        topic: &TopicName,
        attributes: impl Into<Attributes<'a>>,
        payload: &[u8],
    ) -> Result<bool, PublishError> {
        name(&self.log, topic, attributes.into(), &mut self.attributes)?;
        self.log.push(&self.attributes, payload)
    }

    /// The writer of the log of the space, with the records that are kept.
    #[doc(hidden)]
    pub fn log(&self) -> &TopicWriter {
        &self.log
    }

    /// The same, to publish the records that are kept ([`TopicWriter::publish_pushed`]).
    #[doc(hidden)]
    pub fn log_mut(&mut self) -> &mut TopicWriter {
        &mut self.log
    }

    /// Begins a delivery of many records. `bytes` is the room for records with their headers of 4 bytes. With the names of their topics
    /// they have at most [`SpaceWriter::max_delivery_bytes`]. Waits at most `timeout` while the ring is full.
    ///
    /// # Errors
    /// As [`TopicWriter::batch_timeout`].
    pub fn batch(&mut self, bytes: u64, timeout: Option<Duration>) -> Result<SpaceBatch<'_>, PublishError> {
        let Self { log, attributes, .. } = self;
        Ok(SpaceBatch { batch: log.batch_timeout(bytes, timeout)?, attributes })
    }

    /// The largest delivery in bytes, with headers and attributes.
    pub fn max_delivery_bytes(&self) -> u64 {
        self.log.max_delivery_bytes()
    }

    /// The number of subscribers of the log, as [`TopicWriter::subscribers`].
    pub fn subscribers(&self) -> u32 {
        self.log.subscribers()
    }

    /// As [`TopicWriter::wait_subscribers`].
    ///
    /// # Errors
    /// As [`TopicWriter::wait_subscribers`].
    pub fn wait_subscribers(&self, count: u32, timeout: Option<Duration>) -> Result<(), PublisherWaitError> {
        self.log.wait_subscribers(count, timeout)
    }

    /// The end of the log of this publisher.
    pub fn position(&self) -> Position {
        self.log.position()
    }

    /// As [`TopicWriter::free_bytes`]; other writers of the log may take them.
    pub fn free_bytes(&self) -> u64 {
        self.log.free_bytes()
    }

    /// As [`TopicWriter::confirmation`].
    pub fn confirmation(&self, position: Position, level: ConfirmLevel) -> Confirmation {
        self.log.confirmation(position, level)
    }

    /// As [`TopicWriter::confirm`].
    ///
    /// # Errors
    /// As [`TopicWriter::confirm`].
    pub fn confirm(
        &self,
        position: Position,
        level: ConfirmLevel,
        timeout: Option<Duration>,
    ) -> ConfirmResult {
        self.log.confirm(position, level, timeout)
    }

    /// As [`TopicWriter::confirmed`].
    pub fn confirmed(&self, level: ConfirmLevel) -> Position {
        self.log.confirmed(level)
    }

    /// As [`TopicWriter::disk_failure`].
    pub fn disk_failure(&self) -> Option<String> {
        self.log.disk_failure()
    }

    /// As [`TopicWriter::accept_lost`], for all writers of the log.
    pub fn accept_lost(&self, level: ConfirmLevel) -> Option<(Position, Position)> {
        self.log.accept_lost(level)
    }

    /// As [`TopicWriter::flush`].
    ///
    /// # Errors
    /// As [`TopicWriter::flush`].
    pub fn flush(&self, timeout: Option<Duration>) -> Result<(), PublisherWaitError> {
        self.log.flush(timeout)
    }

    /// As [`TopicWriter::close`]. Other writers of the log stay open.
    ///
    /// # Errors
    /// As [`TopicWriter::close`].
    pub fn close(self) -> Result<(), PublisherWaitError> {
        self.log.close()
    }

    /// As [`TopicWriter::close_timeout`]. Other writers of the log stay open.
    ///
    /// # Errors
    /// As [`TopicWriter::close_timeout`].
    pub fn close_timeout(self, timeout: Option<Duration>) -> Result<(), PublisherWaitError> {
        self.log.close_timeout(timeout)
    }
}

impl std::fmt::Debug for SpaceWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpaceWriter").field("log", self.log.topic()).finish_non_exhaustive()
    }
}

/// A delivery with records of several topics of a space, as [`WriteBatch`]. Dropping the batch without [`SpaceBatch::deliver`] publishes
/// nothing.
pub struct SpaceBatch<'w> {
    batch: WriteBatch<'w>,
    attributes: &'w mut AttributesBuf,
}

impl SpaceBatch<'_> {
    /// Adds a record of a topic. Returns false, and adds nothing, if there is no room.
    ///
    /// # Errors
    /// [`PublishError::NotInSpace`] and [`PublishError::TopicInAttributes`]. Nothing was added.
    pub fn push<'a>(
        &mut self,
        topic: &TopicName,
        attributes: impl Into<Attributes<'a>>,
        payload: &[u8],
    ) -> Result<bool, PublishError> {
        name(self.batch.owner, topic, attributes.into(), self.attributes)?;
        Ok(self.batch.push_to_space(Some(self.attributes), payload))
    }

    /// The number of bytes that were added, with headers of 4 bytes.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Publishes the records. Returns the position behind them. If another writer of the log has taken the room, the call waits as long as
    /// the one that began the batch was allowed to.
    ///
    /// # Errors
    /// As [`WriteBatch::deliver`].
    pub fn deliver(self) -> Result<Position, PublishError> {
        self.batch.deliver()
    }

    /// As [`WriteBatch::try_deliver`].
    ///
    /// # Errors
    /// As [`WriteBatch::deliver`].
    pub fn try_deliver(&mut self) -> Result<Position, PublishError> {
        self.batch.try_deliver()
    }
}

/// Whether the log has the topic.
fn contains(log: &TopicWriter, topic: &TopicName) -> bool {
    let answer = lock(&log.state.in_space);
    answer.in_space.as_ref().is_some_and(|in_space| in_space.contains(topic))
}

/// Makes the attributes of a record of a topic.
fn name(
    log: &TopicWriter,
    topic: &TopicName,
    given: Attributes<'_>,
    attributes: &mut AttributesBuf,
) -> Result<(), PublishError> {
    if !contains(log, topic) {
        let space = log.output.log().map_or_else(TopicFilter::all, |log| log.space.pattern().clone());
        return Err(PublishError::NotInSpace { topic: topic.clone(), space });
    }
    if let Some(topic) = given.topic() {
        return Err(PublishError::TopicInAttributes { topic: topic.to_owned() });
    }
    let named = attributes.copy_from(given).topic(topic.as_str());
    named.map(drop).map_err(|error| PublishError::Buffer(error.to_string()))
}

#[cfg(test)]
mod tests {
    use rbmq_broker::{Broker, BrokerConfig, Rule};

    use super::*;
    use crate::wire::Framing;
    use crate::{Publisher, Subscriber};

    /// Both are still there when they close. The second one ends the log and waits for its end, and the next writer begins another.
    #[test]
    fn of_writers_that_close_at_the_same_time_one_is_the_last() {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let mut rule = Rule::new("d/#".parse().unwrap());
        rule.space = true;
        config.broker.topics = vec![rule].into();
        let broker = Broker::start(config).unwrap();
        let publisher = Publisher::connect(&broker.addr()).unwrap();
        let mut writers = ["d/1", "d/2", "d/3"].map(|name| publisher.topic(name).unwrap());
        writers[0].publish(b"1").unwrap();
        assert!(writers[0].last().is_none());
        let joined = publisher.topic("d/4").unwrap();
        assert_ne!(joined.position(), 0);
        assert!(writers[1].last().is_none());
        drop(joined);
        assert!(writers[2].last().is_some());
        assert_eq!(publisher.topic("d/1").unwrap().position(), 0);
    }

    /// Before other publications, and only of topics of the space.
    #[test]
    fn records_that_are_kept_are_published_as_one_delivery() {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let mut rule = Rule::new("d/#".parse().unwrap());
        rule.space = true;
        config.broker.topics = vec![rule].into();
        let broker = Broker::start(config).unwrap();
        let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
        subscriber.subscribe("d/#").unwrap();
        let publisher = Publisher::connect(&broker.addr()).unwrap();
        let mut space = publisher.space("d/#").unwrap();
        space.wait_subscribers(1, Some(Duration::from_secs(60))).unwrap();
        let [one, two, other] = ["d/1", "d/2", "e"].map(|name| name.parse::<TopicName>().unwrap());
        let (most, before) = (usize::try_from(space.max_delivery_bytes()).unwrap(), space.position());
        assert_eq!(space.push(&one, Attributes::EMPTY, b"first"), Ok(true));
        assert_eq!(space.push(&two, Attributes::EMPTY, b"second"), Ok(true));
        assert!(matches!(space.push(&other, Attributes::EMPTY, b""), Err(PublishError::NotInSpace { .. })));
        let kept = space.log().pushed_bytes();
        assert_eq!(space.push(&one, Attributes::EMPTY, &vec![0; most - kept]), Ok(false));
        assert_eq!((space.log().pushed_bytes(), space.position()), (kept, before));
        assert_eq!(space.log_mut().publish_pushed(None), Ok(before + kept as u64));
        let again = space.log_mut().publish_pushed(None);
        assert_eq!((space.log().pushed_bytes(), again), (0, Ok(before + kept as u64)));
        for (topic, payload) in [(&one, &b"first"[..]), (&two, b"second")] {
            let message = subscriber.recv_ref(Some(Duration::from_secs(60))).unwrap().unwrap();
            assert_eq!((message.topic, message.bytes, message.framing), (topic, payload, Framing::Merged));
        }
    }

    /// Also by the writer of one topic, which names it.
    #[test]
    fn records_that_a_writer_of_a_topic_keeps_are_one_delivery() {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let mut rule = Rule::new("d/#".parse().unwrap());
        rule.space = true;
        config.broker.topics = vec![rule].into();
        let broker = Broker::start(config).unwrap();
        let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
        let publisher = Publisher::connect(&broker.addr()).unwrap();
        let mut attributes = AttributesBuf::new();
        attributes.content_type("text/plain").unwrap();
        for topic in ["d/1", "own"] {
            subscriber.subscribe(topic).unwrap();
            let mut writer = publisher.topic(topic).unwrap();
            writer.wait_subscribers(1, Some(Duration::from_secs(60))).unwrap();
            let before = writer.position();
            assert_eq!(writer.push(Attributes::EMPTY, b"plain"), Ok(true));
            assert_eq!(writer.push(&attributes, b"attributed"), Ok(true));
            let most = usize::try_from(writer.max_delivery_bytes()).unwrap();
            assert_eq!(writer.push(Attributes::EMPTY, &vec![0; most]), Ok(false));
            let kept = writer.pushed_bytes() as u64;
            assert_eq!((writer.publish_pushed(None), writer.pushed_bytes()), (Ok(before + kept), 0));
            for (content_type, payload) in [(None, &b"plain"[..]), (Some("text/plain"), b"attributed")] {
                let message = subscriber.recv_ref(Some(Duration::from_secs(60))).unwrap().unwrap();
                assert_eq!((message.topic.as_str(), message.bytes), (topic, payload));
                assert_eq!(message.attributes.content_type(), content_type);
            }
        }
    }
}
