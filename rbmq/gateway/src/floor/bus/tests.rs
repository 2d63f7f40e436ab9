//! Topics that are open at a broker in another process.

use rbmq_broker::{Broker, BrokerConfig};

use super::super::openings::Receiving;
use super::super::wake::Bell;
use super::*;
use crate::protocol::{ConnId, Logs as _, Ticket};

struct Site {
    topics: Topics,
    _broker: Broker,
}

impl Site {
    fn new() -> Self {
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        let broker = Broker::start(config).expect("a broker starts");
        let publisher = Publisher::connect(&broker.addr()).expect("the broker listens");
        let side = Side::Beside(Bell::new().expect("a descriptor"), Receiving::default());
        let topics = Topics::open(publisher, &[], Vec::new(), 1000, side).expect("no space");
        Self { topics, _broker: broker }
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
    assert!(site.topics.open.contains_key(&name(&format!("idle/{}", MAX_OPEN / 2 - 1))), "it was used lately");
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
