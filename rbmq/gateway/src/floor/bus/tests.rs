//! Topics that are open at a broker.

use rbmq::{SlowPolicy, Subscriber};
use rbmq_broker::{Broker, BrokerConfig, Ingest, Rule};

use super::super::openings::Receiving;
use super::super::wake::Bell;
use super::*;
use crate::protocol::{ConnId, Logs as _, Ticket};

struct Site {
    topics: Topics,
    broker: Broker,
}

impl Site {
    /// A gateway beside the broker.
    fn new() -> Self {
        Self::with(Vec::new(), 1000, |_, bell| Side::Beside(bell, Receiving::default()))
    }

    fn with(rules: Vec<Rule>, max_message_bytes: u64, side: impl FnOnce(&Broker, Bell) -> Side) -> Self {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        config.broker.topics = rules.into();
        let broker = Broker::start(config).expect("a broker starts");
        let publisher = Publisher::connect(&broker.addr()).expect("the broker listens");
        let side = side(&broker, Bell::new().expect("a descriptor"));
        let topics = Topics::open(publisher, &[], Vec::new(), max_message_bytes, side).expect("no space");
        Self { topics, broker }
    }

    /// A gateway in the process of the broker, which merges all topics.
    fn inside() -> Self {
        let mut rule = Rule::new(TopicFilter::all());
        rule.ingest = Ingest::Merge;
        rule.ring_bytes = Some(64 << 10);
        Self::with(vec![rule], 1000, |broker, bell| {
            let gate = broker.gate().expect("a gate");
            Side::Inside { kept: gate.kept_topics(|| {}), gate, bell }
        })
    }

    /// Publishes until the log of a topic is full, and what a client has of it too. Returns how many messages were taken.
    fn fill(&mut self, topic: &TopicName) -> usize {
        let mut taken = 0;
        loop {
            let full = self.topics.publish(topic, &[], &[b'x'; 1000]);
            self.topics.flush();
            match full {
                Ok(()) => taken += 1,
                Err(error) => {
                    assert_eq!(error, PublishError::Full);
                    // The subscriber takes what it has room for.
                    std::thread::sleep(Duration::from_millis(100));
                    if self.topics.publish(topic, &[], &[b'x'; 1000]).is_err() {
                        return taken;
                    }
                    taken += 1;
                }
            }
        }
    }

    /// Publishes, in rounds of its own while the broker has not taken the topic.
    fn until_taken(&mut self, mut publish: impl FnMut(&mut Topics) -> Result<(), PublishError>) {
        let until = Instant::now() + Duration::from_secs(60);
        while let Err(error) = publish(&mut self.topics) {
            assert_eq!(error, PublishError::Full);
            assert!(Instant::now() < until, "the broker takes it one day");
            self.topics.take_missing();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn publish(&mut self, topic: &str) {
        let topic = name(topic);
        self.until_taken(|topics| topics.publish(&topic, &[], b"x"));
    }
}

fn name(topic: &str) -> TopicName {
    topic.parse().expect("a name")
}

/// Half of the topics cannot be closed, as clients wait for confirmations, and those were used first.
#[test]
fn topics_that_cannot_be_closed_leave_room_for_new_ones() {
    let mut site = Site::new();
    for number in 0..MAX_OPEN / 2 {
        let (topic, ticket) = (name(&format!("stuck/{number}")), Ticket { conn: ConnId(7), number: 0 });
        site.until_taken(|topics| topics.append(&topic, &[], b"x", ticket));
    }
    for number in 0..MAX_OPEN / 2 {
        site.publish(&format!("idle/{number}"));
    }
    site.topics.flush();
    site.publish("new");
    let is_stuck = |topic: &&TopicName| topic.as_str().starts_with("stuck/");
    assert_eq!(site.topics.open.keys().filter(is_stuck).count(), MAX_OPEN / 2);
    assert!(
        site.topics.open.contains_key(&name(&format!("idle/{}", MAX_OPEN / 2 - 1))),
        "it was used lately"
    );
}

/// What is gathered in a round is published before it keeps others out.
#[test]
fn more_topics_than_can_be_open_are_published_to_in_a_round() {
    let mut site = Site::new();
    for number in 0..=MAX_OPEN {
        site.publish(&format!("t/{number}"));
    }
    site.topics.flush();
    assert!(site.topics.is_flushed());
}

/// A topic whose subscriber lets everybody wait holds what the gateway has room for. Then others wait, too, and are told of nothing that is not published.
#[test]
fn what_topics_have_no_room_for_is_bounded_and_published_in_the_end() {
    let mut site = Site::inside();
    let mut subscriber = Subscriber::builder().slow(SlowPolicy::Block).connect(&site.broker.addr());
    let subscriber = subscriber.as_mut().expect("the broker listens");
    subscriber.subscribe("stuck").expect("a filter");
    let (stuck, other) = (name("stuck"), name("other"));
    let mut first = None;
    while first.is_none() {
        // Until the log waits for the subscriber.
        site.publish("stuck");
        site.topics.flush();
        first = subscriber.recv(Some(Duration::from_millis(10))).expect("the broker is there");
    }
    let taken = site.fill(&stuck);
    assert!(site.topics.held > 1000, "{}", site.topics.held);
    site.topics.max_held = site.topics.held;
    assert_eq!(site.topics.publish(&other, &[], b"x"), Err(PublishError::Full));
    assert!(site.topics.take_missing(), "it is tried again");
    site.topics.close_oldest();
    assert!(site.topics.open.contains_key(&stuck), "it is not closed before it is empty");
    let mut received = 0;
    while received < taken {
        site.topics.take_events();
        site.topics.flush();
        let message = subscriber.recv(Some(Duration::from_secs(60)));
        let message = message.expect("nothing is lost").expect("a message");
        received += usize::from(message.bytes.len() == 1000);
    }
    site.until_taken(|topics| topics.publish(&other, &[], b"x"));
    site.topics.flush();
    assert_eq!(site.topics.held, 0);
}
