//! The client library in an event loop, while its broker is killed and started again.

use rbmq::{Event, Notice, Publisher, PublisherEvent, Subscriber};
use testkit::LONG;

use crate::common::BrokerProcess;
use crate::event_loop::{NO_WAIT, messages, wait_event, wait_publisher_event};

#[test]
fn the_descriptors_follow_a_broker_that_restarts() {
    let broker = BrokerProcess::start();
    let addr = broker.addr.clone();
    let publisher = Publisher::connect(&addr).unwrap();
    assert_eq!(publisher.next_event(NO_WAIT), None);
    let mut topic = publisher.topic("t").unwrap();
    let mut subscriber = Subscriber::connect(&addr).unwrap();
    subscriber.subscribe("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    wait_publisher_event(&publisher, |event| matches!(event, PublisherEvent::Subscribers { count: 1, .. }));
    topic.publish(b"1").unwrap();
    assert_eq!(wait_event(&mut subscriber, messages), [b"1"]);
    broker.process.signal("KILL");
    drop(broker);
    let is = |wanted: Notice| {
        move |event: Event<'_>| matches!(event, Event::Notice(n) if n == wanted).then_some(())
    };
    wait_event(&mut subscriber, |event| {
        matches!(event, Event::Notice(Notice::Disconnected(_))).then_some(())
    });
    wait_publisher_event(&publisher, |event| matches!(event, PublisherEvent::Disconnected(_)));
    let _broker = BrokerProcess::start_at(&addr, &[]);
    wait_event(&mut subscriber, is(Notice::Reconnected));
    wait_publisher_event(&publisher, |event| matches!(event, PublisherEvent::Reconnected));
    // The event about the subscriber comes before this one if the subscriber was faster.
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    topic.publish(b"2").unwrap();
    assert_eq!(wait_event(&mut subscriber, messages), [b"2"]);
}
