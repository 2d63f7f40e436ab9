//! Topics whose publishers share one ring: `ingest = "merge"`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rbmq::wire::{UnpackError, push_record};
use rbmq::{
    Framing, Message, PublishError, Publisher, ReceiveError, SlowPolicy, StartFrom, Subscriber,
    TopicOpenError, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, BrokerConfig, Ingest, NotTaken};
use rocketbufs::{Config, Context};
use testkit::{LONG, Proxy, broker_with, rule, until};

/// A broker on which `m/#` is merged.
fn merging_with(change: impl FnOnce(&mut BrokerConfig)) -> Broker {
    broker_with(|config| {
        config.broker.closed_linger_ms = 300;
        config.broker.topics = vec![rule("m/#", |rule| rule.ingest = Ingest::Merge)].into();
        change(config);
    })
}

fn broker() -> Broker {
    merging_with(|_| {})
}

fn tiny() -> TopicOptions {
    TopicOptions::default().ring_bytes(16 << 10).open_timeout(Some(LONG))
}

/// Publishers in one process, which share its threads.
struct Crowd {
    ctx: Context,
    addr: String,
}

impl Crowd {
    fn of(broker: &Broker) -> Self {
        Self { ctx: Context::new(Config::default()).unwrap(), addr: broker.addr() }
    }

    fn join(&self, topic: &str) -> (Publisher, TopicWriter) {
        let publisher = Publisher::builder().context(&self.ctx).connect(&self.addr).unwrap();
        let writer = publisher.topic_with(topic, tiny()).unwrap();
        (publisher, writer)
    }
}

fn subscriber(addr: &str, topic: &str) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).connect(addr).unwrap();
    subscriber.subscribe_from(topic, StartFrom::Oldest).unwrap();
    subscriber
}

/// Its topic does not end before the subscribers have room for what it has left.
#[test]
fn a_publisher_of_this_process_keeps_its_topic() {
    let broker = broker();
    let gate = broker.gate().unwrap();
    let (_publisher, writer) = Crowd::of(&broker).join("m/1");
    let subscriber = Subscriber::builder().until_ended(true).slow(SlowPolicy::Block);
    let mut subscriber = subscriber.connect(&broker.addr()).unwrap();
    subscriber.subscribe("m/1").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let mut local = gate.local_publisher(writer.topic(), LONG, || {}).unwrap();
    writer.close().unwrap();
    let (mut taken, mut batch) = (0, Vec::new());
    while batch.is_empty() {
        push_record(&mut batch, &[b'x'; 10_000]);
        // The subscriber takes what it has room for, and a topic without publishers would end meanwhile.
        let until = Instant::now() + Duration::from_secs(1);
        while local.publish(&mut batch) == Err(NotTaken::Full) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        taken += usize::from(batch.is_empty());
    }
    drop(local);
    for _ in 0..taken {
        assert_eq!(next(&mut subscriber).bytes.len(), 10_000);
    }
    assert!(subscriber.recv(Some(LONG)).unwrap().is_none(), "the topic ends some time after the last");
    assert!(subscriber.ended());
}

/// A record with its publisher and its number.
fn record(who: u32, which: u32) -> Vec<u8> {
    let mut bytes = [who.to_le_bytes(), which.to_le_bytes()].concat();
    bytes.resize(8 + (who as usize * 7 + which as usize) % 50, 0xaa);
    bytes
}

/// Checks that every publisher's records come in order and once, under one number each.
#[derive(Default)]
struct Seen {
    next: HashMap<u32, u32>,
    numbers: HashMap<u32, u32>,
    total: u32,
}

impl Seen {
    fn take(&mut self, publisher: u32, bytes: &[u8]) {
        let who = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let which = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
        let next = self.next.entry(who).or_default();
        assert_eq!(which, *next, "of publisher {who}");
        assert_eq!(bytes, record(who, which));
        assert_eq!(*self.numbers.entry(publisher).or_insert(who), who, "a number of two publishers");
        *next += 1;
        self.total += 1;
    }

    fn message(&mut self, message: &Message) {
        self.take(message.publisher.expect("merged messages have a publisher"), &message.bytes);
    }
}

fn next(subscriber: &mut Subscriber) -> Message {
    subscriber.recv(Some(LONG)).unwrap().expect("a message")
}

#[test]
fn all_records_of_200_publishers_come_once_and_in_order_to_slow_and_fast_subscribers() {
    const EACH: u32 = 200;
    let broker = merging_with(|config| config.broker.merge_ring_bytes = 256 << 10);
    let crowd = Crowd::of(&broker);
    let mut writers: Vec<_> = (0..200_u32).map(|_| crowd.join("m/many")).collect();
    let receive = |slow: bool| {
        let addr = broker.addr();
        std::thread::spawn(move || {
            let mut subscriber = subscriber(&addr, "m/many");
            let mut seen = Seen::default();
            while seen.total < 200 * EACH {
                let batch = subscriber.next_batch(Some(LONG)).unwrap().expect("more comes");
                assert_eq!(batch.framing(), Framing::Merged);
                let before = seen.total;
                for record in batch.published_records() {
                    let (publisher, record) = record.unwrap();
                    seen.take(publisher, record);
                }
                assert_eq!(batch.records().count() as u32, seen.total - before);
                if slow {
                    drop(batch);
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
            assert!(seen.next.values().all(|next| *next == EACH));
            assert_eq!(seen.numbers.len(), 200);
            subscriber
        })
    };
    let receivers = [receive(true), receive(false)];
    writers[0].1.wait_subscribers(2, Some(LONG)).unwrap();
    for which in 0..EACH {
        for (who, (_, writer)) in writers.iter_mut().enumerate() {
            writer.publish(&record(who as u32, which)).unwrap();
        }
    }
    let mut subscribers = receivers.map(|receiver| receiver.join().unwrap());
    assert_eq!(broker.topics()[0].publishers, 200);
    for (_, writer) in writers {
        writer.close().unwrap();
    }
    for subscriber in &mut subscribers {
        assert!(subscriber.recv(Some(LONG)).unwrap().is_none(), "nothing more comes");
        assert!(subscriber.ended());
    }
    until("the topic is over", || broker.topics().is_empty());
}

#[test]
fn memory_is_a_small_ring_each_and_one_for_the_topic() {
    let broker = broker();
    let crowd = Crowd::of(&broker);
    let mut writers: Vec<_> = (0..50).map(|_| crowd.join("m/x")).collect();
    assert_eq!(broker.memory_in_use(), (4 << 20) + 50 * (32 << 10));
    let mut receiver = subscriber(&broker.addr(), "m/x");
    for (_, writer) in &mut writers {
        writer.publish(b"x").unwrap();
    }
    for _ in 0..50 {
        next(&mut receiver);
    }
    assert_eq!(receiver.context().memory_in_use(), 2 << 20, "one ring of twice the largest delivery");
    for (publisher, writer) in writers {
        writer.close().unwrap();
        publisher.close();
    }
    assert!(receiver.recv(Some(LONG)).unwrap().is_none());
    until("everything is given back", || broker.memory_in_use() == 0);
}

#[test]
fn a_publisher_that_stalls_in_a_delivery_blocks_no_other_and_leaves_nothing() {
    let broker = merging_with(|config| config.framework.session.linger_ms = 200);
    let proxy = Proxy::to(&broker.addr());
    let crowd = Crowd::of(&broker);
    let (_others, mut other) = crowd.join("m/x");
    let (publisher, mut stalled) = {
        let publisher = Publisher::connect(&proxy.addr).unwrap();
        let writer = publisher.topic_with("m/x", tiny()).unwrap();
        (publisher, writer)
    };
    let mut receiver = subscriber(&broker.addr(), "m/x");
    other.wait_subscribers(1, Some(LONG)).unwrap();
    stalled.publish(b"whole").unwrap();
    stalled.flush(Some(LONG)).unwrap();
    assert_eq!(next(&mut receiver).bytes, b"whole");
    proxy.stall_after(1000);
    stalled.publish(&[7; 3000]).unwrap();
    until("the publisher stalls", || proxy.is_stalled());
    for n in 0..1000_u32 {
        other.publish(&n.to_le_bytes()).unwrap();
        assert_eq!(next(&mut receiver).bytes, n.to_le_bytes());
    }
    // The publisher's connection is cut inside the delivery.
    proxy.cut();
    proxy.go_on();
    until("the publisher is gone", || broker.topics()[0].publishers == 1);
    other.publish(b"last").unwrap();
    other.close().unwrap();
    assert_eq!(next(&mut receiver).bytes, b"last");
    assert!(receiver.recv(Some(LONG)).unwrap().is_none());
    drop((publisher, stalled));
}

#[test]
fn a_publisher_with_repeated_cuts_continues_where_it_stopped() {
    const ALL: u32 = 20_000;
    // The linger time is long, so that a publisher that reconnects late still learns that its log has ended.
    let broker = merging_with(|config| config.broker.closed_linger_ms = 5_000);
    let proxy = Proxy::to(&broker.addr());
    let publisher = Publisher::connect(&proxy.addr).unwrap();
    let mut writer = publisher.topic_with("m/x", tiny()).unwrap();
    let mut receiver = subscriber(&broker.addr(), "m/x");
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let publishing = std::thread::spawn(move || {
        for which in 0..ALL {
            writer.publish(&record(1, which)).unwrap();
        }
        writer.close().unwrap();
    });
    let (mut seen, mut cuts) = (Seen::default(), 0);
    while seen.total < ALL {
        seen.message(&next(&mut receiver));
        if seen.total % 4000 == 0 {
            proxy.cut();
            proxy.restore();
            cuts += 1;
        }
    }
    publishing.join().unwrap();
    assert_eq!((cuts, seen.numbers.len()), (5, 1));
    assert!(receiver.recv(Some(LONG)).unwrap().is_none());
}

#[test]
fn a_publisher_that_was_gone_returns_under_its_number_and_continues() {
    let broker = merging_with(|config| config.framework.session.linger_ms = 100);
    let proxy = Proxy::to(&broker.addr());
    let crowd = Crowd::of(&broker);
    let (_others, other) = crowd.join("m/x");
    let publisher = Publisher::connect(&proxy.addr).unwrap();
    let mut writer = publisher.topic_with("m/x", tiny()).unwrap();
    let mut receiver = subscriber(&broker.addr(), "m/x");
    other.wait_subscribers(1, Some(LONG)).unwrap();
    let mut seen = Seen::default();
    for round in 0..3 {
        for which in round * 50..(round + 1) * 50 {
            writer.publish(&record(1, which)).unwrap();
        }
        while seen.total < (round + 1) * 50 {
            seen.message(&next(&mut receiver));
        }
        proxy.cut();
        until("the publisher is gone", || broker.topics()[0].publishers == 1);
        proxy.restore();
        until("the publisher is back", || broker.topics()[0].publishers == 2);
    }
    assert_eq!(seen.numbers.len(), 1);
    writer.close().unwrap();
    other.close().unwrap();
    assert!(receiver.recv(Some(LONG)).unwrap().is_none());
}

#[test]
fn a_full_table_makes_publishers_wait_and_recovers() {
    let broker = merging_with(|config| config.broker.merge_table_entries = 8);
    let crowd = Crowd::of(&broker);
    let (_publisher, mut writer) = crowd.join("m/x");
    let (_other, mut other) = crowd.join("m/x");
    let mut receiver = subscriber(&broker.addr(), "m/x");
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    other.publish(&record(2, 0)).unwrap();
    // The kept batch is not released, so the table of runs is full long before the topic's ring.
    let kept = receiver.next_batch(Some(LONG)).unwrap().unwrap().defer();
    let mut published = 0;
    let full = loop {
        match writer.publish_timeout(&record(1, published), Some(Duration::from_millis(300))) {
            Ok(_) => {
                published += 1;
                if published < 100 {
                    // A run each.
                    let _ = writer.flush(Some(Duration::from_millis(5)));
                }
            }
            Err(error) => break error,
        }
    };
    assert_eq!(full, PublishError::TimedOut { last_error: None });
    assert!(
        u64::from(published) * 60 < 200 << 10,
        "the publisher's ring and the small ring at the broker: {published}"
    );
    kept.consume();
    let publishing = std::thread::spawn(move || {
        for which in published..published + 1000 {
            writer.publish(&record(1, which)).unwrap();
        }
        other.publish(&record(2, 1)).unwrap();
        (writer, other)
    });
    let mut seen = Seen::default();
    seen.take(9, &record(2, 0));
    seen.numbers.clear();
    while seen.total < published + 1002 {
        seen.message(&next(&mut receiver));
    }
    publishing.join().unwrap();
}

#[test]
fn a_slow_subscriber_makes_publishers_wait_and_all_continue_with_it() {
    let broker = merging_with(|config| {
        config.broker.merge_ring_bytes = 64 << 10;
        config.framework.session.block_timeout_ms = 0;
    });
    let crowd = Crowd::of(&broker);
    let mut writers: Vec<_> = (0..4_u32).map(|_| crowd.join("m/x")).collect();
    let mut receiver = subscriber(&broker.addr(), "m/x");
    writers[0].1.wait_subscribers(1, Some(LONG)).unwrap();
    let mut counts = [0_u32; 4];
    for (who, (_, writer)) in writers.iter_mut().enumerate() {
        while writer
            .publish_timeout(&record(who as u32, counts[who]), Some(Duration::from_millis(100)))
            .is_ok()
        {
            counts[who] += 1;
        }
    }
    let publishing = std::thread::spawn(move || {
        for n in 0..2000 {
            for (who, (_, writer)) in writers.iter_mut().enumerate() {
                writer.publish(&record(who as u32, counts[who] + n)).unwrap();
            }
        }
        writers.into_iter().for_each(|(_, writer)| writer.close().unwrap());
    });
    let mut seen = Seen::default();
    while let Some(message) = receiver.recv(Some(LONG)).unwrap() {
        seen.message(&message);
    }
    publishing.join().unwrap();
    assert_eq!(seen.total, counts.iter().sum::<u32>() + 4 * 2000);
}

#[test]
fn garbage_of_one_publisher_is_reported_and_the_others_are_complete() {
    let broker = broker();
    let crowd = Crowd::of(&broker);
    let (_good, mut good) = crowd.join("m/x");
    let (_bad, mut bad) = crowd.join("m/x");
    let mut receiver = subscriber(&broker.addr(), "m/x");
    good.wait_subscribers(1, Some(LONG)).unwrap();
    let mut batch = bad.batch(9).unwrap();
    assert!(batch.push_encoded(&[1, 0, 0, 0, b'x', 0xff, 0xff, 0xff, 0xff]));
    batch.deliver().unwrap();
    let first = next(&mut receiver);
    assert_eq!((first.bytes.as_slice(), first.publisher), (&b"x"[..], Some(1)));
    let error = receiver.recv(Some(LONG)).unwrap_err();
    assert!(
        matches!(&error, ReceiveError::Malformed { error: UnpackError::Publisher { publisher: 1, .. }, .. }),
        "{error}"
    );
    good.publish(b"good").unwrap();
    let message = next(&mut receiver);
    assert_eq!((message.bytes.as_slice(), message.publisher), (&b"good"[..], Some(0)));
}

#[test]
fn unmergeable_topics_are_refused_with_the_reason() {
    let broker = merging_with(|config| {
        config.broker.merge_ring_bytes = 256 << 10;
        config.broker.merge_max_publishers = 2;
        config.broker.max_message_bytes = 200 << 10;
    });
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let refusal = |options: TopicOptions| match publisher.topic_with("m/x", options) {
        Err(TopicOpenError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let raw = refusal(tiny().framing(Framing::Raw));
    assert!(raw.contains("must write records"), "{raw}");
    let merged = refusal(tiny().framing(Framing::Merged));
    assert!(merged.contains("must write records"), "{merged}");
    let large = refusal(tiny().ring_bytes(1 << 20));
    assert!(large.contains("broker.merge_ring_bytes"), "{large}");
    assert!(broker.topics().is_empty(), "a refused publisher opened a topic");
    let two = [publisher.topic_with("m/x", tiny()).unwrap(), publisher.topic_with("m/x", tiny()).unwrap()];
    let many = refusal(tiny());
    assert!(many.contains("broker.merge_max_publishers) is 2"), "{many}");
    drop(two);
    // Topics that are not merged accept other framings, except the framing of brokers.
    let options = tiny().framing(Framing::Merged);
    assert!(matches!(publisher.topic_with("x", options), Err(TopicOpenError::Refused { .. })));
    publisher.topic_with("x", tiny().framing(Framing::Raw)).unwrap();
}

#[test]
fn publishers_that_come_and_go_use_one_log() {
    let mut broker = merging_with(|config| config.broker.closed_linger_ms = 60_000);
    let crowd = Crowd::of(&broker);
    let mut receiver = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    receiver.subscribe("m/x").unwrap();
    let mut epochs = Vec::new();
    for n in 0..20_u32 {
        let (publisher, mut writer) = crowd.join("m/x");
        if n == 0 {
            // The subscription took another connection than the message, and starts at the newest.
            writer.wait_subscribers(1, Some(LONG)).unwrap();
        }
        writer.publish(&n.to_le_bytes()).unwrap();
        if n == 19 {
            // The last one is waited for no longer than needed.
            let mut config = broker.config().clone();
            config.broker.closed_linger_ms = 100;
            broker.reload(&config).unwrap();
        }
        writer.close().unwrap();
        publisher.close();
        let message = next(&mut receiver);
        assert_eq!((message.bytes.as_slice(), message.publisher), (&n.to_le_bytes()[..], Some(n)));
        epochs.push(message.epoch);
    }
    epochs.dedup();
    assert_eq!(epochs.len(), 1);
    let waited = Instant::now();
    assert!(receiver.recv(Some(LONG)).unwrap().is_none(), "the topic ends some time after the last");
    assert!(receiver.ended() && waited.elapsed() < LONG);
}
