//! Losses between the arrival of bytes and their hand-over.

use rbmq_broker::{Broker, BrokerConfig};
use rocketbufs::Config;
use rocketbufs::config::TransportKind;

use super::*;
use crate::{ConfirmLevel, Publisher, TopicOptions};

const WAIT: Option<Duration> = Some(Duration::from_secs(60));
const RING_BYTES: u64 = 64 << 10;

/// The publisher's memory is overwritten after the subscriber's rIn returned a view of it, and before the subscriber copied it.
#[test]
fn bytes_that_are_overwritten_before_their_copy_are_reported_as_lost() {
    let framework = Config { transport: TransportKind::Shm, ..Config::default() };
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    config.framework = framework.clone();
    let broker = Broker::start(config).unwrap();
    let publisher = Publisher::builder().config(framework.clone()).connect(&broker.addr()).unwrap();
    let mut topic = publisher.topic_with("a", TopicOptions::default().ring_bytes(RING_BYTES)).unwrap();
    let mut subscriber =
        Subscriber::builder().config(framework).ring_bytes(RING_BYTES).connect(&broker.addr()).unwrap();
    subscriber.subscribe("a").unwrap();
    topic.wait_subscribers(1, WAIT).unwrap();
    topic.publish(&[1; 10_000]).unwrap();
    let view = loop {
        match subscriber.rin.recv(WAIT).unwrap().expect("an event") {
            InEvent::Data(view) => break view,
            event => subscriber.driver.on_event(event),
        }
    };
    let (epoch, from, to) = (view.epoch(), view.position(), view.end());
    // The subscription is not durable: without its connection nothing is kept for it.
    subscriber.connection.conn().close("lost");
    for _ in 0..50 {
        topic.publish(&[2; 10_000]).unwrap();
    }
    let end = topic.publish(&[3; 10_000]).unwrap();
    topic.confirm(end, ConfirmLevel::Accepted, WAIT).unwrap();
    let Some(Taken::Notice(lost)) = subscriber.take(view) else { panic!("the bytes are something else now") };
    assert_eq!(lost, Notice::Lost { topic: "a".parse().unwrap(), epoch, from, to });
}
