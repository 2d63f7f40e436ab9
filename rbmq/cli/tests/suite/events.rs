//! The client library in an event loop, while its broker is killed and started again.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rbmq::{Event, Notice, Publisher, PublisherEvent, Subscriber};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::LONG;

use crate::common::BrokerProcess;

const NO_WAIT: Option<Duration> = Some(Duration::ZERO);

/// Whether the descriptor is readable, waiting at most `timeout`.
fn is_readable(descriptor: BorrowedFd<'_>, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&timeout)).unwrap() == 1
}

/// The next event that `find` selects, as an event loop takes it.
fn wait_event<T>(subscriber: &mut Subscriber, find: impl Fn(Event<'_>) -> Option<T>) -> T {
    loop {
        while let Some(event) = subscriber.next_event(NO_WAIT).unwrap() {
            if let Some(found) = find(event) {
                return found;
            }
        }
        assert!(is_readable(subscriber.pollable().unwrap(), LONG), "no event came");
    }
}

fn messages(event: Event<'_>) -> Option<Vec<Vec<u8>>> {
    match event {
        Event::Batch(batch) => Some(batch.records().map(<[u8]>::to_vec).collect()),
        _ => None,
    }
}

fn wait_publisher_event(publisher: &Publisher, wanted: impl Fn(&PublisherEvent) -> bool) {
    loop {
        while let Some(event) = publisher.next_event(NO_WAIT) {
            if wanted(&event) {
                return;
            }
        }
        assert!(is_readable(publisher.pollable().unwrap(), LONG), "no event came");
    }
}

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
