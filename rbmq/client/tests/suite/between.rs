//! A subscriber between two publishers of its topic waits for the next one.

use std::mem::ManuallyDrop;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rbmq::{Event, Notice, Publisher, ReceiveError, Subscriber, SubscriberBuilder, TopicWriter};
use rbmq_broker::Broker;
use testkit::{LONG, Proxy, broker_with, until};

fn broker() -> Broker {
    // The broker gives up a publisher without a connection after this time.
    broker_with(|config| config.framework.session.linger_ms = 200)
}

/// How the first publisher of a topic ends.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Closes,
    Dies,
}

/// A publisher that connects by way of a proxy.
struct First {
    writer: TopicWriter,
    proxy: Proxy,
}

impl First {
    fn end(self, ends: Ends) {
        match ends {
            Ends::Closes => self.writer.close().unwrap(),
            Ends::Dies => {
                self.proxy.cut();
                // The publisher cannot come back, and closes nothing.
                let _stays = ManuallyDrop::new(self);
            }
        }
    }
}

/// A publisher, and a subscriber that has its only message.
fn first(addr: &str, builder: SubscriberBuilder) -> (First, Subscriber) {
    let proxy = Proxy::to(addr);
    let publisher = Publisher::connect(&proxy.addr).unwrap();
    let mut writer = publisher.topic("news").unwrap();
    let mut subscriber = builder.connect(addr).unwrap();
    subscriber.subscribe("news").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    writer.publish(b"first").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"first");
    (First { writer, proxy }, subscriber)
}

/// A second publisher, which waits for the subscriber.
fn publish_second(addr: &str) {
    let publisher = Publisher::connect(addr).unwrap();
    let mut second = publisher.topic("news").unwrap();
    second.wait_subscribers(1, Some(LONG)).unwrap();
    second.publish(b"second").unwrap();
    second.close().unwrap();
}

/// The calls that wait for a message.
#[derive(Debug, Clone, Copy)]
enum Call {
    Recv,
    RecvRef,
    NextBatch,
    Iterator,
}

const CALLS: [Call; 4] = [Call::Recv, Call::RecvRef, Call::NextBatch, Call::Iterator];

impl Call {
    /// The next message.
    fn wait(self, mut subscriber: Subscriber) -> Vec<u8> {
        match self {
            Self::Recv => subscriber.recv(Some(LONG)).unwrap().expect("a message").bytes,
            Self::RecvRef => subscriber.recv_ref(Some(LONG)).unwrap().expect("a message").bytes.to_vec(),
            Self::NextBatch => {
                let batch = subscriber.next_batch(Some(LONG)).unwrap().expect("a batch");
                batch.records().next().expect("a record").to_vec()
            }
            Self::Iterator => subscriber.into_iter().next().expect("the topic continues").unwrap().bytes,
        }
    }

    fn begin(self, subscriber: Subscriber) -> JoinHandle<Vec<u8>> {
        std::thread::spawn(move || self.wait(subscriber))
    }
}

/// Waits until the broker knows that the topic's publisher has ended.
fn until_ended(broker: &Broker) {
    until("the publisher has ended", || broker.topics().iter().all(|topic| topic.publishers == 0));
}

#[test]
fn each_call_waits_for_the_next_publisher() {
    for ends in [Ends::Closes, Ends::Dies] {
        for call in CALLS {
            let broker = broker();
            let (first, subscriber) = first(&broker.addr(), Subscriber::builder());
            first.end(ends);
            until_ended(&broker);
            let waits = call.begin(subscriber);
            // The end reaches the subscriber, which waits on.
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waits.is_finished(), "{ends:?}, {call:?}");
            publish_second(&broker.addr());
            assert_eq!(waits.join().unwrap(), b"second", "{ends:?}, {call:?}");
        }
    }
}

#[test]
fn a_publisher_that_ends_during_a_wait_does_not_end_the_wait() {
    for ends in [Ends::Closes, Ends::Dies] {
        for call in CALLS {
            let broker = broker();
            let (first, subscriber) = first(&broker.addr(), Subscriber::builder());
            let waits = call.begin(subscriber);
            std::thread::sleep(Duration::from_millis(50));
            first.end(ends);
            until_ended(&broker);
            publish_second(&broker.addr());
            assert_eq!(waits.join().unwrap(), b"second", "{ends:?}, {call:?}");
        }
    }
}

#[test]
fn a_time_out_is_used_in_full() {
    let broker = broker();
    let (first, mut subscriber) = first(&broker.addr(), Subscriber::builder());
    first.end(Ends::Closes);
    until_ended(&broker);
    let began = Instant::now();
    assert_eq!(subscriber.recv(Some(Duration::from_millis(700))).unwrap(), None);
    assert!(began.elapsed() >= Duration::from_millis(700), "the call did not wait");
}

#[test]
fn until_ended_returns_the_end() {
    let builder = || Subscriber::builder().until_ended(true);
    let broker = broker();
    let (publisher, mut subscriber) = first(&broker.addr(), builder());
    publisher.end(Ends::Closes);
    assert_eq!(subscriber.recv(None).unwrap(), None);
    let broker = self::broker();
    let (publisher, mut subscriber) = first(&broker.addr(), builder());
    publisher.end(Ends::Dies);
    let error = subscriber.recv(None).unwrap_err();
    assert!(matches!(&error, ReceiveError::Gone { .. }) && !error.is_final(), "{error}");
    assert_eq!(subscriber.recv(None).unwrap(), None);
}

#[test]
fn ends_are_notices() {
    let broker = broker();
    let (first, mut subscriber) = first(&broker.addr(), Subscriber::builder());
    first.end(Ends::Closes);
    loop {
        match subscriber.next_event(Some(LONG)).unwrap().expect("a notice") {
            Event::Notice(Notice::Closed { topic, .. }) => break assert_eq!(topic.as_str(), "news"),
            Event::Notice(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
