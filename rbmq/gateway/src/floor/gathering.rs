//! What a gateway publishes to a log: a space, or a topic with a log of its own.
//!
//! Small messages are gathered until [`Way::flush`] and published together, since a delivery costs wake-ups of threads, however small it is. Into the
//! log of a broker in this process they are copied by the gateway's own thread; otherwise they go over its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rbmq::{PublishError, SpaceWriter, TopicWriter};
use rbmq_broker::{Gate, LocalPublisher, NotTaken};
use rbmq_wire::{Attributes, TopicName};
use rocketbufs::Position;
use tracing::warn;

use super::wake::Bell;

/// So many bytes are published together, and a message more; over the connection one of at most so many.
const MAX_KEPT: usize = 128 << 10;
const MAX_KEPT_MESSAGE: usize = 4 << 10;

pub(super) const ENDED: &str = "the log has ended";

/// Without waiting.
pub(super) const NOW: Option<Duration> = Some(Duration::ZERO);

/// A writer that gathers records.
pub(super) trait Gatherer {
    /// Whether it may gather.
    fn may_gather(&self) -> bool;
    /// The writer of its log.
    fn log(&self) -> &TopicWriter;
    /// The same.
    fn log_mut(&mut self) -> &mut TopicWriter;
    /// Gathers a record. False: it does not fit into one delivery with the others.
    fn push(
        &mut self,
        topic: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<bool, PublishError>;
    /// Publishes a record alone, without waiting.
    fn publish(
        &mut self,
        topic: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<Position, PublishError>;
}

impl Gatherer for SpaceWriter {
    fn may_gather(&self) -> bool {
        true
    }

    fn log(&self) -> &TopicWriter {
        SpaceWriter::log(self)
    }

    fn log_mut(&mut self) -> &mut TopicWriter {
        SpaceWriter::log_mut(self)
    }

    fn push(
        &mut self,
        topic: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<bool, PublishError> {
        SpaceWriter::push(self, topic, attributes, payload)
    }

    fn publish(
        &mut self,
        topic: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<Position, PublishError> {
        self.publish_to_timeout(topic, attributes, payload, NOW)
    }
}

impl Gatherer for TopicWriter {
    fn may_gather(&self) -> bool {
        // Others write the log of a space too, and would come between.
        self.space().is_none()
    }

    fn log(&self) -> &TopicWriter {
        self
    }

    fn log_mut(&mut self) -> &mut TopicWriter {
        self
    }

    fn push(
        &mut self,
        _: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<bool, PublishError> {
        TopicWriter::push(self, attributes, payload)
    }

    fn publish(
        &mut self,
        _: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<Position, PublishError> {
        self.publish_with_timeout(attributes, payload, NOW)
    }
}

/// The way into the logs of a broker in this process.
pub(super) struct Inside {
    gate: Gate,
    bell: Bell,
    /// A log has taken what it had no room for before.
    has_room: Arc<AtomicBool>,
}

impl Inside {
    /// Through the broker's gate. The bell is rung when there is room again.
    pub(super) fn new(gate: Gate, bell: Bell) -> Self {
        Self { gate, bell, has_room: Arc::default() }
    }

    /// A publisher into a log. None: the connection is the way.
    pub(super) fn publisher(&self, log: &TopicName, timeout: Duration) -> Option<LocalPublisher> {
        let (flag, bell) = (self.has_room.clone(), self.bell.clone());
        self.gate.local_publisher(log, timeout, move || {
            // Release: pairs with the acquire of `take_has_room`.
            flag.store(true, Ordering::Release);
            bell.ring();
        })
    }

    /// Whether there is room since the last call, where there was none.
    pub(super) fn take_has_room(&self) -> bool {
        self.has_room.load(Ordering::Acquire) && self.has_room.swap(false, Ordering::AcqRel)
    }
}

/// A writer, and what it has gathered.
pub(super) struct Way<W> {
    pub(super) writer: W,
    pub(super) local: Option<LocalPublisher>,
    /// Messages were lost, of which nobody was told yet.
    pub(super) has_lost: bool,
}

impl<W: Gatherer> Way<W> {
    /// Over the connection of a writer, or into its log itself.
    pub(super) fn new(writer: W, local: Option<LocalPublisher>) -> Self {
        Self { writer, local, has_lost: false }
    }

    /// Publishes without waiting.
    pub(super) fn put(
        &mut self,
        topic: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<(), PublishError> {
        // The connection takes large messages as they are, and this thread copies them into the log with the others of the round.
        let is_small = self.local.is_some() || payload.len() <= MAX_KEPT_MESSAGE;
        let is_gathered = is_small && self.writer.may_gather();
        if is_gathered && self.gathered() < MAX_KEPT && self.writer.push(topic, attributes, payload)? {
            return Ok(());
        }
        self.flush()?;
        if is_gathered && self.writer.push(topic, attributes, payload)? {
            return Ok(());
        }
        self.writer.publish(topic, attributes, payload).map(drop)
    }

    /// Publishes what is gathered. What finds no room stays.
    pub(super) fn flush(&mut self) -> Result<(), PublishError> {
        let log = self.writer.log_mut();
        let Some(local) = &mut self.local else { return log.publish_pushed(NOW).map(drop) };
        match local.publish(log.pushed_mut()) {
            Ok(()) => Ok(()),
            Err(NotTaken::Full) => Err(PublishError::TimedOut { last_error: None }),
            Err(NotTaken::Ended) => {
                // The connection knows whether there is another log.
                (self.local, self.has_lost) = (None, true);
                log.pushed_mut().clear();
                Err(PublishError::Buffer(ENDED.to_owned()))
            }
            // Each record has found room in a delivery with the others.
            Err(NotTaken::TooLarge(max)) => {
                let (size, max) = (log.pushed_bytes() as u64, max as u64);
                self.has_lost = true;
                log.pushed_mut().clear();
                Err(PublishError::TooLarge { size, max })
            }
        }
    }

    /// The bytes that are gathered.
    pub(super) fn gathered(&self) -> usize {
        self.writer.log().pushed_bytes()
    }

    /// The position behind the last message, also of those that are gathered.
    pub(super) fn end(&self) -> Position {
        let published = self.local.as_ref().map(LocalPublisher::position);
        published.unwrap_or_else(|| self.writer.log().position()) + self.gathered() as Position
    }

    /// The bytes that are gathered, or on their way into the log of a broker in this process.
    pub(super) fn held(&self) -> usize {
        self.gathered() + self.local.as_ref().map_or(0, LocalPublisher::unmerged)
    }

    /// The way is closed: what is gathered is lost.
    pub(super) fn warn_of_lost(&self, log: &TopicName, why: &str) {
        if self.has_lost || self.gathered() > 0 {
            warn!("topic '{log}': messages of clients are lost: {why}");
        }
    }

    /// Whether nothing is gathered, or on its way into the log of a broker in this process.
    pub(super) fn is_flushed(&self) -> bool {
        self.gathered() == 0 && self.local.as_ref().is_none_or(LocalPublisher::is_merged)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use rbmq::{Publisher, SlowPolicy, StartFrom, Subscriber};
    use rbmq_broker::{Broker, BrokerConfig, Rule};
    use rbmq_wire::Space;
    use tempfile::TempDir;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const LONG: Option<Duration> = Some(PATIENCE);
    const COUNT: u64 = 2000;
    /// The most bytes behind a number.
    const MOST: u64 = 6000;

    /// A broker with a space, which it keeps in a folder.
    fn broker(keep: Option<&TempDir>) -> Broker {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let mut rule = Rule::new("d/#".parse().expect("a filter"));
        rule.space = true;
        rule.ring_bytes = Some(4 << 20);
        if let Some(dir) = keep {
            rule.keep = true;
            config.broker.keep_dir = dir.path().to_str().expect("a text").into();
        }
        config.broker.topics = vec![rule].into();
        Broker::start(config).expect("a broker starts")
    }

    /// A subscriber that publishers wait for, a publisher, and its space.
    fn clients(broker: &Broker) -> (Subscriber, Publisher, SpaceWriter) {
        let subscriber = Subscriber::builder().slow(SlowPolicy::Block).connect(&broker.addr());
        let mut subscriber = subscriber.expect("the broker listens");
        subscriber.subscribe("d/#").expect("a filter");
        let publisher = Publisher::connect(&broker.addr()).expect("the broker listens");
        let writer = publisher.space("d/#").expect("there is a space");
        writer.wait_subscribers(1, LONG).expect("there is one");
        (subscriber, publisher, writer)
    }

    /// Publishes messages that begin with their number.
    fn publish(mut put: impl FnMut(&[u8])) {
        for number in 0..COUNT {
            let mut message = number.to_le_bytes().to_vec();
            message.resize(8 + (number * 7919 % MOST) as usize, b'x');
            put(&message);
        }
    }

    /// Two that share the log with one that has a connection, and with a subscriber that all wait for: nothing is lost, and each has its order.
    fn share_a_log(broker: &Broker) {
        let (mut subscriber, publisher, mut far) = clients(broker);
        let (gate, space) = (broker.gate().expect("a gate"), far.space().clone());
        let [a, b, c] = ["d/a", "d/b", "d/c"].map(|name| name.parse::<TopicName>().expect("a name"));
        std::thread::scope(|scope| {
            for topic in [&a, &b] {
                let (gate, space, publisher) = (&gate, &space, &publisher);
                scope.spawn(move || {
                    let (rung, bell) = mpsc::sync_channel(1);
                    let wake = move || _ = rung.try_send(());
                    let writer = publisher.space("d/#").expect("there is a space");
                    let local = gate.local_publisher(space.log(), PATIENCE, wake).expect("there is a log");
                    let mut way = Way::new(writer, Some(local));
                    publish(|message| {
                        while let Err(error) = way.put(topic, Attributes::EMPTY, message) {
                            assert_eq!(error, PublishError::TimedOut { last_error: None });
                            bell.recv_timeout(PATIENCE).expect("there is room one day");
                        }
                    });
                    while way.flush().is_err() || !way.is_flushed() {
                        bell.recv_timeout(PATIENCE).expect("there is room one day");
                    }
                });
            }
            scope.spawn(|| {
                publish(|message| _ = far.publish_to(&c, Attributes::EMPTY, message).expect("it fits"));
            });
            expect_all(&mut subscriber, [&a, &b, &c]);
        });
    }

    /// Each topic has what was published, in its order, and nothing else.
    fn expect_all(subscriber: &mut Subscriber, topics: [&TopicName; 3]) {
        let mut next = [0; 3];
        while next != [COUNT; 3] {
            let message = subscriber.recv_ref(LONG).expect("nothing is lost").expect("a message");
            let at = topics.iter().position(|topic| **topic == *message.topic).expect("one of them");
            let (number, rest) = message.bytes.split_first_chunk().expect("a number");
            assert_eq!(u64::from_le_bytes(*number), next[at]);
            assert_eq!(rest.len() as u64, next[at] * 7919 % MOST);
            next[at] += 1;
        }
    }

    #[test]
    fn publishers_of_this_process_share_a_log_with_others() {
        share_a_log(&broker(None));
    }

    /// The broker is killed: what it leaves is the same log, and the next publishers write behind it.
    #[test]
    fn publishers_of_this_process_share_a_log_on_disk_with_others() {
        let (dir, copy) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let killed = broker(Some(&dir));
        share_a_log(&killed);
        copy_folder(dir.path(), copy.path());
        let broker = broker(Some(&copy));
        share_a_log(&broker);
        let mut subscriber = Subscriber::connect(&broker.addr()).expect("the broker listens");
        subscriber.subscribe_from("d/#", StartFrom::Oldest).expect("a filter");
        for _ in 0..2 {
            expect_all(
                &mut subscriber,
                ["d/a", "d/b", "d/c"].map(|name| name.parse().expect("a name")).each_ref(),
            );
        }
    }

    fn copy_folder(from: &Path, to: &Path) {
        for entry in std::fs::read_dir(from).expect("a folder") {
            let (entry, to) = (entry.expect("an entry"), to.to_owned());
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                std::fs::create_dir(&target).expect("a folder");
                copy_folder(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).expect("a file");
            }
        }
    }

    /// Its batch waits for a subscriber, and for nobody else.
    #[test]
    fn what_a_publisher_of_this_process_leaves_behind_is_published() {
        let dir = tempfile::tempdir().expect("a folder");
        for keep in [None, Some(&dir)] {
            let broker = broker(keep);
            let (mut subscriber, _publisher, mut writer) = clients(&broker);
            let gate = broker.gate().expect("a gate");
            let local = gate.local_publisher(writer.space().log(), PATIENCE, || {});
            let mut local = local.expect("there is a log");
            assert!(matches!(local.publish(&mut vec![0; 16 << 20]), Err(NotTaken::TooLarge(_))));
            let topic: TopicName = "d/a".parse().expect("a name");
            let mut taken = 0;
            loop {
                let pushed = writer.push(&topic, Attributes::EMPTY, &vec![b'x'; 100_000]);
                pushed.expect("the topic is in the space");
                match local.publish(writer.log_mut().pushed_mut()) {
                    Ok(()) => taken += 1,
                    Err(full) => break assert_eq!(full, NotTaken::Full),
                }
            }
            drop(local);
            for _ in 0..taken {
                let message = subscriber.recv_ref(LONG).expect("nothing is lost").expect("a message");
                assert_eq!((message.topic, message.bytes.len()), (&topic, 100_000));
            }
        }
    }

    #[test]
    fn a_publisher_of_this_process_learns_that_its_broker_has_stopped() {
        let dir = tempfile::tempdir().expect("a folder");
        for keep in [None, Some(&dir)] {
            let broker = broker(keep);
            let [space, other] = ["d/#", "e/#"].map(|pattern| pattern.parse().expect("a filter"));
            let [space, other] = [space, other].map(|pattern| Space::new(&pattern).expect("a space"));
            let gate = broker.gate().expect("a gate");
            let (rung, bell) = mpsc::sync_channel(1);
            let local = gate.local_publisher(space.log(), PATIENCE, move || _ = rung.try_send(()));
            let mut local = local.expect("there is a log");
            assert_eq!(local.publish(&mut vec![0; 100]), Ok(()));
            assert!(gate.local_publisher(other.log(), PATIENCE, || {}).is_none());
            drop(broker);
            bell.recv_timeout(PATIENCE).expect("it is told");
            assert_eq!(local.publish(&mut vec![0; 100]), Err(NotTaken::Ended));
            assert!(gate.local_publisher(space.log(), PATIENCE, || {}).is_none());
        }
    }
}
