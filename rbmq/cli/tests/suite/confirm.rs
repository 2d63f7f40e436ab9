//! Confirmations with the client library: what each level promises, futures, brokers that die.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rbmq::{ConfirmError, ConfirmLevel, Publisher, StartFrom, Subscriber, TopicOptions, TopicWriter};
use rbmq_broker::Broker;
use testkit::{LONG, Process, broker_with, own_addr, until};

use crate::common::{BrokerProcess, client, piped, random};

const SHORT: Duration = Duration::from_millis(40);

fn broker() -> Broker {
    broker_with(|_| {})
}

fn subscriber(addr: &str) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).connect(addr).unwrap();
    subscriber.subscribe("t").unwrap();
    subscriber
}

fn topic(addr: &str, options: TopicOptions) -> TopicWriter {
    Publisher::connect(addr).unwrap().topic_with("t", options).unwrap()
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park_timeout(LONG);
    }
}

#[test]
fn each_level_is_confirmed_as_documented() {
    let broker = broker();
    let mut topic = topic(&broker.addr(), TopicOptions::default());
    // Without a subscriber a message is confirmed at once.
    let first = topic.publish(b"for nobody").unwrap();
    let confirmed = topic.confirm(first, ConfirmLevel::Consumed, Some(LONG)).unwrap();
    assert_eq!((confirmed.position, confirmed.subscribers, confirmed.left), (first, 0, 0));
    let mut subscribers = [subscriber(&broker.addr()), subscriber(&broker.addr())];
    topic.wait_subscribers(2, Some(LONG)).unwrap();
    let position = topic.publish(b"for two").unwrap();
    assert!(topic.confirm(position, ConfirmLevel::Accepted, Some(LONG)).unwrap().position >= position);
    // The message lands at the subscribers whether or not they read.
    let delivered = topic.confirm(position, ConfirmLevel::Delivered, Some(LONG)).unwrap();
    assert_eq!((delivered.subscribers, delivered.left, delivered.lost), (2, 0, 0));
    assert_eq!(subscribers[0].recv(Some(LONG)).unwrap().unwrap().bytes, b"for two");
    let error = topic.confirm(position, ConfirmLevel::Consumed, Some(SHORT)).unwrap_err();
    assert!(matches!(error, ConfirmError::TimedOut { confirmed, .. } if confirmed == first), "{error}");
    let consumed = topic.confirmation(position, ConfirmLevel::Consumed);
    assert_eq!(subscribers[1].recv(Some(LONG)).unwrap().unwrap().bytes, b"for two");
    // A received message is released when the next one is requested.
    for subscriber in &mut subscribers {
        assert!(subscriber.recv(Some(SHORT)).unwrap().is_none());
    }
    assert_eq!(consumed.wait(Some(LONG)).unwrap().subscribers, 2);
    // A subscriber that leaves with unread messages no longer counts.
    let [stays, leaves] = subscribers;
    let last = topic.publish(b"for one").unwrap();
    let waiting = topic.confirmation(last, ConfirmLevel::Consumed);
    leaves.close_timeout(Some(LONG));
    assert_eq!(waiting.try_get(), None);
    let mut stays = stays;
    assert_eq!(stays.recv(Some(LONG)).unwrap().unwrap().bytes, b"for one");
    assert!(stays.recv(Some(SHORT)).unwrap().is_none());
    let confirmed = waiting.wait(Some(LONG)).unwrap();
    assert_eq!((confirmed.position, confirmed.left), (last, confirmed.left.max(1)));
    assert_eq!(topic.confirmed(ConfirmLevel::Consumed), last);
}

/// The subscriber has released too few bytes for a CREDIT, and reports them when it closes.
#[test]
fn a_subscriber_that_closes_reports_its_consumed_position() {
    let broker = broker();
    let mut topic = topic(&broker.addr(), TopicOptions::default());
    for _ in 0..20 {
        let mut leaves = subscriber(&broker.addr());
        until("the subscriber is there", || broker.topics()[0].subscribers == 1);
        let position = topic.publish(b"read").unwrap();
        assert_eq!(leaves.recv(Some(LONG)).unwrap().unwrap().bytes, b"read");
        let consumed = topic.confirmation(position, ConfirmLevel::Consumed);
        leaves.close_timeout(Some(LONG));
        let confirmed = consumed.wait(Some(LONG)).unwrap();
        assert_eq!((confirmed.position, confirmed.subscribers), (position, 1), "{confirmed:?}");
        until("the subscriber is gone", || broker.topics()[0].subscribers == 0);
    }
}

/// The subscriber reads three of five deliveries that landed together. The subscriber has released too few bytes for a
/// CREDIT, and still continues behind the three.
#[test]
fn a_durable_subscriber_continues_behind_its_consumed_position() {
    let broker = broker();
    let connect =
        || Subscriber::builder().until_ended(true).durable("me", LONG).connect(&broker.addr()).unwrap();
    let mut first = connect();
    first.subscribe("t").unwrap();
    let mut topic = topic(&broker.addr(), TopicOptions::default());
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    // The broker knows where a delivery ended in each 4 KiB of a ring, and these one by one.
    let message = |n: u8| [n; 5000];
    for n in 0..5 {
        let position = topic.publish(&message(n)).unwrap();
        topic.confirm(position, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    }
    for n in 0..3 {
        assert_eq!(first.recv(Some(LONG)).unwrap().unwrap().bytes, message(n));
    }
    first.close_timeout(Some(LONG));
    let mut second = connect();
    second.subscribe("t").unwrap();
    for n in 3..5 {
        assert_eq!(second.recv(Some(LONG)).unwrap().unwrap().bytes, message(n));
    }
}

#[test]
fn a_later_subscriber_does_not_count_for_earlier_positions() {
    let broker = broker();
    let mut topic = topic(&broker.addr(), TopicOptions::default());
    let mut early = subscriber(&broker.addr());
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let before = topic.publish(b"for one").unwrap();
    topic.confirm(before, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    let mut late = subscriber(&broker.addr());
    topic.wait_subscribers(2, Some(LONG)).unwrap();
    let after = topic.publish(b"for two").unwrap();
    for expected in ["for one", "for two"] {
        assert_eq!(early.recv(Some(LONG)).unwrap().unwrap().bytes, expected.as_bytes());
    }
    assert_eq!(late.recv(Some(LONG)).unwrap().unwrap().bytes, b"for two");
    for subscriber in [&mut early, &mut late] {
        assert!(subscriber.recv(Some(SHORT)).unwrap().is_none());
    }
    for (position, subscribers) in [(after, 2), (before, 1)] {
        let confirmed = topic.confirm(position, ConfirmLevel::Consumed, Some(LONG)).unwrap();
        assert_eq!((confirmed.subscribers, confirmed.left, confirmed.lost), (subscribers, 0, 0));
    }
}

#[test]
fn futures_need_no_runtime_and_complete_in_order() {
    let broker = broker();
    let mut topic = topic(&broker.addr(), TopicOptions::default());
    let reader = subscriber(&broker.addr());
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let reading = std::thread::spawn(move || reader.into_iter().map(Result::unwrap).count());
    let mut waiting = Vec::new();
    for n in 0..20_000_u32 {
        let position = topic.publish(&n.to_le_bytes()).unwrap();
        waiting.push(topic.confirmation(position, ConfirmLevel::ALL[n as usize % 3]));
    }
    for confirmation in waiting {
        let position = confirmation.position();
        assert!(block_on(confirmation).unwrap().position >= position);
    }
    topic.close().unwrap();
    assert_eq!(reading.join().unwrap(), 20_000);
}

#[test]
fn limits_and_misuse_are_errors() {
    let broker = broker();
    let mut topic = topic(&broker.addr(), TopicOptions::default().max_confirmations(3));
    let _reader = subscriber(&broker.addr());
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let position = topic.publish(b"unread").unwrap();
    let error = topic.confirm(position + 1, ConfirmLevel::Accepted, Some(LONG)).unwrap_err();
    assert!(matches!(error, ConfirmError::NotPublished { end, .. } if end == position), "{error}");
    let mut waiting: Vec<_> = (0..3).map(|_| topic.confirmation(position, ConfirmLevel::Consumed)).collect();
    let error = topic.confirm(position, ConfirmLevel::Consumed, Some(LONG)).unwrap_err();
    assert!(matches!(error, ConfirmError::TooMany { waiting: 3, limit: 3, .. }), "{error}");
    // A dropped confirmation makes room.
    waiting.pop();
    let error = topic.confirm(position, ConfirmLevel::Consumed, Some(SHORT)).unwrap_err();
    assert!(matches!(error, ConfirmError::TimedOut { .. }), "{error}");
    drop(topic);
    let error = waiting.remove(0).wait(Some(LONG)).unwrap_err();
    assert!(matches!(error, ConfirmError::Closed { confirmed: 0, .. }), "{error}");
}

/// A publisher whose broker accepts many messages that the subscriber does not read, and then dies.
fn dies(keep_until_delivered: bool) -> (TopicWriter, Subscriber, BrokerProcess, u64) {
    let first = BrokerProcess::start();
    let addr = first.addr.clone();
    let small = TopicOptions::default().ring_bytes(64 << 10).keep_until_delivered(keep_until_delivered);
    let mut topic = topic(&addr, small);
    let mut reader = Subscriber::builder()
        .until_ended(true)
        .durable("slow", LONG)
        .ring_bytes(64 << 10)
        .connect(&addr)
        .unwrap();
    reader.subscribe_from("t", StartFrom::Oldest).unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    // The publisher's ring, and the broker's too, unless the publisher keeps undelivered messages.
    let full: u64 = if keep_until_delivered { 64 << 10 } else { 128 << 10 };
    until("the rings are full", || {
        let _ = topic.publish_timeout(&[7; 1000], Some(SHORT));
        topic.position() + 1004 > full
    });
    let end = topic.position();
    topic
        .confirm(if keep_until_delivered { 1004 } else { end / 2 }, ConfirmLevel::Accepted, Some(LONG))
        .unwrap();
    assert!(topic.confirmed(ConfirmLevel::Delivered) < end / 2);
    let (accepted, waiting) =
        (topic.confirmed(ConfirmLevel::Accepted), topic.confirmation(end, ConfirmLevel::Delivered));
    first.process.signal("KILL");
    first.process.finish();
    let second = BrokerProcess::start_at(&addr, &[]);
    assert!(topic.confirmed(ConfirmLevel::Accepted) >= accepted, "a position goes back");
    if !keep_until_delivered {
        let error = waiting.wait(Some(LONG)).unwrap_err();
        assert!(matches!(error, ConfirmError::Lost { level: ConfirmLevel::Delivered, .. }), "{error}");
    }
    (topic, reader, second, end)
}

#[test]
fn data_lost_with_a_broker_is_reported() {
    let (mut topic, reader, _broker, end) = dies(false);
    drop(reader);
    // The next broker has all remaining messages, and has confirmed them, before the application knows the loss.
    topic.flush(Some(LONG)).unwrap();
    let (from, to) = topic.accept_lost(ConfirmLevel::Delivered).unwrap();
    assert!(from < to && to < end, "{from} to {to} of {end}");
    // Each level reports the loss separately: the rest of a delivery whose first half is lost is useless.
    topic.accept_lost(ConfirmLevel::Accepted);
    topic.confirm(end, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    let more = topic.publish(b"more").unwrap();
    topic.confirm(more, ConfirmLevel::Delivered, Some(LONG)).unwrap();
}

#[test]
fn data_kept_until_delivered_survives_its_broker() {
    let (mut topic, mut reader, _broker, end) = dies(true);
    let reading = std::thread::spawn(move || {
        let mut count = 0_u64;
        while reader.recv(Some(LONG)).unwrap().is_some() {
            count += 1;
        }
        count
    });
    topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).unwrap();
    assert_eq!(topic.accept_lost(ConfirmLevel::Delivered), None);
    until("the subscriber is back", || topic.subscribers() == 1);
    let last = topic.publish(b"last").unwrap();
    topic.confirm(last, ConfirmLevel::Consumed, Some(LONG)).unwrap();
    topic.close().unwrap();
    assert_eq!(reading.join().unwrap(), end / 1004 + 1);
}

/// Over shared memory the broker's history is a part of the publisher's ring: with the largest delivery before it and small
/// ones about its beginning there is still room for the largest.
#[test]
fn a_publisher_with_keep_until_delivered_gets_room_in_a_mapped_ring() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    let mut lines = Vec::new();
    for drawn in random(4, 2000).chunks_exact(2) {
        let drawn = usize::from(u16::from_le_bytes([drawn[0], drawn[1]]));
        let size = [16_380, (drawn / 5 * 5 / 4).min(16_380), 100, 0, 1][drawn % 5];
        lines.resize(lines.len() + size, b'y');
        lines.push(b'\n');
    }
    std::fs::write(&file, &lines).unwrap();
    let variables = [("ROCKETBUFS_TRANSPORT", "shm")];
    let broker = BrokerProcess::start_in(&own_addr(), &[], &variables);
    let mut publisher = client("pub", &broker.addr, "t --ring-bytes 65536 --confirm accepted --file");
    publisher.arg(&file).envs(variables);
    Process::start(piped(publisher)).finish().good();
}
