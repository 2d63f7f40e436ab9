//! What of a space counts as consumed, and when its room returns: as in any other topic.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rbmq::wire::Attributes;
use rbmq::{
    ConfirmLevel, OwnedBatch, PublishError, Publisher, SpaceWriter, StartFrom, Subscriber, TopicName,
    TopicOptions, TopicWriter, WriteBatch,
};
use rbmq_broker::Broker;
use testkit::{LONG, Proxy, broker_with, rule, until};

fn broker() -> Broker {
    broker_with(|config| config.broker.topics = vec![rule("d/#", |rule| rule.space = true)].into())
}

/// A durable subscriber of `d/a`.
fn durable(addr: &str) -> Subscriber {
    let builder = Subscriber::builder().durable("reader", Duration::from_secs(3600));
    let mut subscriber = builder.connect(addr).unwrap();
    subscriber.subscribe_from("d/a", StartFrom::Oldest).unwrap();
    subscriber
}

/// Publishes one run: numbers in `d/a`, and a record that nobody wants.
fn publish(space: &mut SpaceWriter, numbers: std::ops::Range<u8>) -> u64 {
    let [wanted, other] = ["d/a", "d/x"].map(|name| name.parse::<TopicName>().unwrap());
    let mut batch = space.batch(4096, None).unwrap();
    for number in numbers {
        assert!(batch.push(&wanted, Attributes::EMPTY, &[number]).unwrap());
    }
    assert!(batch.push(&other, Attributes::EMPTY, b"-").unwrap());
    let end = batch.deliver().unwrap();
    // What follows is another run.
    space.confirm(end, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    end
}

/// Publishes a run of which nothing is wanted.
fn publish_unwanted(space: &mut SpaceWriter) -> u64 {
    publish(space, 0..0)
}

fn batch(subscriber: &mut Subscriber) -> OwnedBatch {
    subscriber.next_batch(Some(LONG)).unwrap().expect("a batch").into_owned()
}

fn numbers(batch: &OwnedBatch) -> Vec<u8> {
    rbmq::wire::Unpack::records(batch.as_slice()).flatten().copied().collect()
}

/// The batch that begins with a number. Batches before it may come again: a subscriber resumes at the start of a delivery.
fn batch_of(subscriber: &mut Subscriber, first: u8) -> OwnedBatch {
    loop {
        let batch = batch(subscriber);
        match numbers(&batch)[0] {
            number if number == first => return batch,
            number => assert!(number < first, "{number} is not {first}"),
        }
    }
}

/// Takes what has come, so that the subscriber has seen that nothing more of it is wanted.
fn nothing_more(subscriber: &mut Subscriber) {
    assert!(subscriber.next_batch(Some(Duration::from_millis(20))).unwrap().is_none());
}

#[test]
fn a_durable_subscriber_of_a_space_gets_again_what_it_has_not_consumed() {
    let broker = broker();
    let addr = broker.addr();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut space = publisher.space("d/#").unwrap();
    let mut reader = durable(&addr);
    space.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut space, 0..3);
    publish(&mut space, 3..6);
    publish_unwanted(&mut space);
    // Only a part of the first run is consumed: it comes again as a whole.
    let first = batch(&mut reader);
    assert_eq!(numbers(&first), [0, 1, 2]);
    let begin = first.position();
    first.consume_up_to(begin);
    reader.close();
    let mut reader = durable(&addr);
    let first = batch(&mut reader);
    assert_eq!((numbers(&first), first.position()), (vec![0, 1, 2], begin));
    // A batch that is deferred and dropped is not consumed, whatever follows that is not wanted.
    drop(first);
    let second = batch(&mut reader).defer();
    nothing_more(&mut reader);
    drop(second);
    publish_unwanted(&mut space);
    nothing_more(&mut reader);
    reader.close();
    let mut reader = durable(&addr);
    let second = batch_of(&mut reader, 3);
    assert_eq!(numbers(&second), [3, 4, 5]);
    // What is open when the subscriber closes is not consumed either.
    nothing_more(&mut reader);
    reader.close();
    drop(second);
    let mut reader = durable(&addr);
    let second = batch_of(&mut reader, 3);
    // A batch that was given up is consumed with a later one.
    drop(second.defer());
    let end = publish(&mut space, 6..7);
    drop(batch_of(&mut reader, 6));
    space.confirm(end, ConfirmLevel::Consumed, Some(LONG)).unwrap();
}

#[test]
fn the_last_drop_of_a_batch_consumes_on_its_own_thread() {
    let broker = broker();
    let addr = broker.addr();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut space = publisher.space("d/#").unwrap();
    let mut reader = Subscriber::builder().confirm_consumed(true).connect(&addr).unwrap();
    reader.subscribe("d/a").unwrap();
    space.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut space, 0..3);
    let end = publish(&mut space, 3..6);
    let mut batches = vec![batch(&mut reader)];
    batches.push(batch(&mut reader));
    std::thread::spawn(move || drop(batches)).join().unwrap();
    // The subscriber is not called any more.
    space.confirm(end, ConfirmLevel::Consumed, Some(LONG)).unwrap();
    let end = publish(&mut space, 6..7);
    drop(batch(&mut reader));
    space.confirm(end, ConfirmLevel::Consumed, Some(LONG)).unwrap();
}

/// Fills the log up to a rest, and begins a batch that fits into it only without the name of the topic. Returns how many messages the
/// two have.
fn overfull(topic: &mut TopicWriter) -> (usize, WriteBatch<'_>, usize) {
    let mut before = 0;
    while topic.free_bytes() > 1000 {
        topic.publish(&[7; 500]).unwrap();
        before += 1;
    }
    let mut batch = topic.batch_timeout(topic.free_bytes().min(500), Some(Duration::ZERO)).unwrap();
    let mut added = 0;
    while batch.push(&[9]) {
        added += 1;
    }
    (before, batch, added)
}

fn receive(reader: &mut Subscriber, before: usize, added: usize) {
    for n in 0..before + added {
        let message = reader.recv(Some(LONG)).unwrap().expect("a message");
        assert_eq!(message.bytes[0], if n < before { 7 } else { 9 });
    }
}

#[test]
fn a_batch_that_finds_no_room_keeps_its_records() {
    let broker = broker();
    let addr = broker.addr();
    let proxy = Proxy::to(&addr);
    let publisher = Publisher::connect(&proxy.addr).unwrap();
    let options = TopicOptions::default().ring_bytes(64 << 10);
    let mut topic = publisher.topic_with("d/a", options).unwrap();
    let mut reader = Subscriber::connect(&addr).unwrap();
    reader.subscribe("d/a").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let whole = topic.free_bytes();
    proxy.cut();
    let (before, mut batch, added) = overfull(&mut topic);
    let full = batch.try_deliver().unwrap_err();
    assert!(matches!(full, PublishError::TimedOut { .. }), "{full}");
    assert_eq!(batch.len(), added * 5);
    proxy.restore();
    while let Err(error) = batch.try_deliver() {
        assert!(matches!(error, PublishError::TimedOut { .. }), "{error}");
        std::thread::yield_now();
    }
    assert!(batch.is_empty() && !batch.push(b""));
    drop(batch);
    receive(&mut reader, before, added);
    // A task waits. No room is on its way when the connection is cut.
    until("the whole ring", || topic.free_bytes() == whole);
    proxy.cut();
    until("the loss", || !publisher.is_connected());
    let (before, batch, added) = overfull(&mut topic);
    let (mut delivering, mut task) = (pin!(batch.deliver_async()), Context::from_waker(Waker::noop()));
    assert!(delivering.as_mut().poll(&mut task).is_pending());
    proxy.restore();
    until("room", || match delivering.as_mut().poll(&mut task) {
        Poll::Ready(delivered) => delivered.is_ok(),
        Poll::Pending => false,
    });
    receive(&mut reader, before, added);
}
