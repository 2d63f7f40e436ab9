//! What a gateway publishes to a log: a space, or a topic with a log of its own.
//!
//! Small messages are gathered until [`Way::flush`] and published together, since a delivery costs wake-ups of threads, however small it is. Into the
//! log of a broker in this process they are copied by the gateway's own thread; otherwise they go over its connection.

use std::time::Duration;

use rbmq::{PublishError, SpaceWriter, TopicWriter};
use rbmq_broker::{LocalPublisher, NotTaken};
use rbmq_wire::{Attributes, TopicName};
use rocketbufs::Position;

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

/// A writer, and what it has gathered.
pub(super) struct Way<W> {
    pub(super) writer: W,
    pub(super) local: Option<LocalPublisher>,
    /// Messages were lost, of which nobody was told yet.
    pub(super) has_lost: bool,
}

impl<W: Gatherer> Way<W> {
    /// Over the connection of a writer.
    pub(super) fn new(writer: W) -> Self {
        Self { writer, local: None, has_lost: false }
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
        self.writer.log().position() + self.gathered() as Position
    }

    /// Whether nothing is gathered, or on its way into the log of a broker in this process.
    pub(super) fn is_flushed(&self) -> bool {
        self.gathered() == 0 && self.local.as_ref().is_none_or(LocalPublisher::is_merged)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rbmq::{Publisher, SlowPolicy, Subscriber};
    use rbmq_broker::{Broker, BrokerConfig, Rule};
    use rbmq_wire::Space;

    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(60));
    const COUNT: u64 = 2000;
    /// The most bytes behind a number.
    const MOST: u64 = 6000;

    fn broker() -> Broker {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let mut rule = Rule::new("d/#".parse().expect("a filter"));
        rule.space = true;
        rule.ring_bytes = Some(4 << 20);
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
    #[test]
    fn publishers_of_this_process_share_a_log_with_others() {
        let broker = broker();
        let (mut subscriber, publisher, mut far) = clients(&broker);
        let (gate, space) =
            (broker.gate().expect("a gate"), Space::new(far.space().pattern()).expect("a space"));
        let [a, b, c] = ["d/a", "d/b", "d/c"].map(|name| name.parse::<TopicName>().expect("a name"));
        std::thread::scope(|scope| {
            for topic in [&a, &b] {
                let (gate, space, publisher) = (&gate, &space, &publisher);
                scope.spawn(move || {
                    let (rung, bell) = mpsc::sync_channel(1);
                    let wake = move || _ = rung.try_send(());
                    let writer = publisher.space("d/#").expect("there is a space");
                    let local = gate.local_publisher(space, wake).expect("it is not on disk");
                    let mut way = Way { writer, local: Some(local), has_lost: false };
                    publish(|message| {
                        while let Err(error) = way.put(topic, Attributes::EMPTY, message) {
                            assert_eq!(error, PublishError::TimedOut { last_error: None });
                            bell.recv_timeout(Duration::from_secs(60)).expect("there is room one day");
                        }
                    });
                    while way.flush().is_err() || !way.local.as_ref().is_some_and(LocalPublisher::is_merged) {
                        bell.recv_timeout(Duration::from_secs(60)).expect("there is room one day");
                    }
                });
            }
            scope.spawn(|| {
                publish(|message| _ = far.publish_to(&c, Attributes::EMPTY, message).expect("it fits"));
            });
            let mut next = [0; 3];
            while next != [COUNT; 3] {
                let message = subscriber.recv_ref(LONG).expect("nothing is lost").expect("a message");
                let at =
                    [&a, &b, &c].iter().position(|topic| **topic == *message.topic).expect("one of them");
                let (number, rest) = message.bytes.split_first_chunk().expect("a number");
                assert_eq!(u64::from_le_bytes(*number), next[at]);
                assert_eq!(rest.len() as u64, next[at] * 7919 % MOST);
                next[at] += 1;
            }
        });
    }

    /// Its batch waits for a subscriber, and for nobody else.
    #[test]
    fn what_a_publisher_of_this_process_leaves_behind_is_published() {
        let broker = broker();
        let (mut subscriber, _publisher, mut writer) = clients(&broker);
        let gate = broker.gate().expect("a gate");
        let mut local = gate.local_publisher(writer.space(), || {}).expect("it is not on disk");
        assert!(matches!(local.publish(&mut vec![0; 16 << 20]), Err(NotTaken::TooLarge(_))));
        let topic: TopicName = "d/a".parse().expect("a name");
        let mut taken = 0;
        loop {
            writer.push(&topic, Attributes::EMPTY, &vec![b'x'; 100_000]).expect("the topic is in the space");
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

    #[test]
    fn a_publisher_of_this_process_learns_that_its_broker_has_stopped() {
        let broker = broker();
        let space = Space::new(&"d/#".parse().expect("a filter")).expect("a space");
        let gate = broker.gate().expect("a gate");
        let (rung, bell) = mpsc::sync_channel(1);
        let mut local =
            gate.local_publisher(&space, move || _ = rung.try_send(())).expect("it is not on disk");
        assert_eq!(local.publish(&mut vec![0; 100]), Ok(()));
        assert!(
            gate.local_publisher(&Space::new(&"e/#".parse().expect("a filter")).expect("a space"), || {})
                .is_none()
        );
        drop(broker);
        bell.recv_timeout(Duration::from_secs(60)).expect("it is told");
        assert_eq!(local.publish(&mut vec![0; 100]), Err(NotTaken::Ended));
        assert!(gate.local_publisher(&space, || {}).is_none());
    }
}
