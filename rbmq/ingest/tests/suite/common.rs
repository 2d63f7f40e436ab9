//! A broker with ingests, a subscriber that accounts for everything, and senders.

use std::time::{Duration, Instant};

use multimqc::TopicId;
use multimqc::wire::{Header, Kind};
use rbmq::{Event, Notice, StartFrom, Subscriber};
use rbmq_broker::{Broker, BrokerConfig, FeedValues, IngestLevel, IngestSettings};
use rbmq_ingest::Ingest;
pub use testkit::LONG;
use testkit::own_addr;

/// A broker at an address of its own, and its ingests.
pub fn serve(ingests: Vec<IngestSettings>) -> (Broker, Ingest) {
    serve_at(&own_addr(), ingests)
}

pub fn serve_at(listen: &str, ingests: Vec<IngestSettings>) -> (Broker, Ingest) {
    let mut config = BrokerConfig::default();
    config.broker.listen = listen.into();
    config.broker.ingest = ingests;
    config.validate().expect("a valid configuration");
    let broker = Broker::start(config).expect("a broker");
    let ingest = Ingest::start(&broker).expect("the ingests");
    (broker, ingest)
}

/// An ingest of `multimqc:lo/TOPIC` through sockets, or of another interface.
pub fn ingest(source: &str, level: IngestLevel, port: u16) -> IngestSettings {
    let mut settings = IngestSettings::new(source.parse().expect("a source"));
    settings.level = level;
    settings.port = port;
    settings
}

/// The number of a sensor's message, and bytes that follow from it.
pub fn message(number: u32) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(4 + number as usize % 60, number as u8);
    bytes
}

/// A push in the header form.
pub fn push(topic: u16, number: u32, message: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: Kind::Push,
        topic: TopicId(topic),
        status: multimqc::wire::Status::Data,
        cookie: 1,
        sequence: number,
        offset: 0,
        length: message.len() as u32,
        epoch: multimqc::Epoch::ANY,
    };
    [&header.encode()[..], message].concat()
}

/// Messages and losses that a subscriber got.
#[derive(Debug, Default)]
pub struct Got {
    pub numbers: Vec<u32>,
    pub bytes: u64,
    pub lost_bytes: u64,
    pub notices: Vec<Notice>,
}

impl Got {
    /// Whether the messages are these, each once and in order.
    pub fn assert_numbers(&self, numbers: std::ops::Range<u32>) {
        let wrong: Vec<_> = self
            .numbers
            .iter()
            .copied()
            .zip(numbers.clone())
            .filter(|(got, all)| got != all)
            .take(3)
            .collect();
        assert_eq!((self.numbers.len(), &wrong[..]), (numbers.len(), &[][..]), "{:?}", self.notices);
    }

    /// Receives until `done`, and checks each message.
    pub fn until(&mut self, subscriber: &mut Subscriber, done: impl Fn(&Got) -> bool) {
        let deadline = Instant::now() + LONG;
        while !done(self) {
            assert!(Instant::now() < deadline, "{} messages, {:?}", self.numbers.len(), self.notices);
            match subscriber.next_event(Some(Duration::from_millis(100))).expect("a subscription") {
                None => {}
                Some(Event::Batch(batch)) => {
                    for bytes in batch.checked_records() {
                        let bytes = bytes.expect("whole records");
                        let number = u32::from_le_bytes(*bytes.first_chunk().expect("a number"));
                        assert_eq!(bytes, message(number), "whole, and as it was sent");
                        self.numbers.push(number);
                        self.bytes += 4 + bytes.len() as u64;
                    }
                }
                Some(Event::Notice(notice)) => {
                    if let Notice::Lost { from, to, .. } = &notice {
                        self.lost_bytes += to - from;
                    }
                    self.notices.push(notice);
                }
                Some(_) => {}
            }
        }
    }
}

pub fn subscribe(broker: &Broker, topic: &str) -> Subscriber {
    let mut subscriber = Subscriber::connect(&broker.addr()).expect("a connection");
    subscriber.subscribe_from(topic, StartFrom::Oldest).expect("a topic");
    subscriber
}

/// Sends the messages of these numbers, which follow all those that were sent before, some at a time: the next ones when the level has stored
/// them. No buffer of the kernel on the way has to take more, however late its reader is.
pub fn send_stored(broker: &Broker, numbers: std::ops::Range<u32>, mut send: impl FnMut(u32)) {
    /// Fewer than the buffers of a socket and of a device take.
    const AT_ONCE: usize = 100;
    let bytes = |number: u32| 4 + message(number).len() as u64;
    let mut sent: u64 = (0..numbers.start).map(bytes).sum();
    for begin in numbers.clone().step_by(AT_ONCE) {
        for number in begin..numbers.end.min(begin + AT_ONCE as u32) {
            send(number);
            sent += bytes(number);
        }
        let stored = |values: &FeedValues| values.bytes + values.lost_bytes + values.lag_bytes;
        wait_for(broker, |values| stored(values) == sent);
    }
}

/// Waits until the counters of the only feed are as wanted.
pub fn wait_for(broker: &Broker, wanted: impl Fn(&FeedValues) -> bool) -> FeedValues {
    let deadline = Instant::now() + LONG;
    loop {
        let values = broker.watch().feeds().pop().expect("a feed");
        if wanted(&values) {
            return values;
        }
        assert!(Instant::now() < deadline, "{values:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
