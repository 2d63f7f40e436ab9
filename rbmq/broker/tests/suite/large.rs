//! Messages that are larger than the rings were made for: rings grow on all sides, and nothing else changes.

use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::Duration;

use rbmq::wire::{Control, Framing, Hello, Role};
use rbmq::{
    AttributesBuf, ConfirmLevel, Event, Notice, PublishError, Publisher, PublisherEvent, ReceiveError,
    SlowPolicy, StartFrom, Subscriber, SubscriberBuilder, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, BrokerConfig, Ingest, UpstreamSettings};
use rocketbufs::Epoch;
use rocketbufs::config::TransportKind;
use rocketbufs::proto::{Message, Subscribed};
use testkit::{LONG, Proxy, Raw, broker_with, own_addr, rule, until};

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);

/// The byte of a message at a place.
fn byte(message: usize, at: usize) -> u8 {
    (message.wrapping_mul(31) ^ at ^ at >> 8 ^ at >> 16) as u8
}

fn message(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| byte(number, at)).collect()
}

fn topic(at: &str, name: &str) -> TopicWriter {
    Publisher::connect(at).unwrap().topic(name).unwrap()
}

fn subscriber(at: &str, builder: SubscriberBuilder, topics: &str) -> Subscriber {
    let mut subscriber = builder.connect(at).unwrap();
    subscriber.subscribe(topics).unwrap();
    subscriber
}

/// Nobody is too slow for the broker, however long the machine or another reader lets it wait.
fn patient(config: &mut BrokerConfig) {
    config.framework.session.block_timeout_ms = 0;
}

fn expect(subscriber: &mut Subscriber, sizes: &[usize]) {
    for (number, size) in sizes.iter().enumerate() {
        let got = subscriber.recv(Some(LONG)).unwrap().unwrap_or_else(|| panic!("no message {number}"));
        assert!(got.bytes == message(number, *size), "message {number} of {size}: {} bytes", got.bytes.len());
    }
}

fn publish(topic: &mut TopicWriter, sizes: &[usize]) {
    for (number, size) in sizes.iter().enumerate() {
        topic.publish_timeout(&message(number, *size), Some(LONG)).unwrap();
    }
}

/// With the default settings on all sides, among small ones and up to the limit of the broker.
#[test]
fn messages_of_all_sizes_come_in_order() {
    let broker = broker_with(|_| {});
    let sizes = [0, 1, 300 << 10, 5, MIB, 100, 3 * MIB + 1, 1000, 64 * MIB, 7, 300 << 10, 40 * MIB, 1];
    let mut topic = topic(&broker.addr(), "t");
    let mut all = subscriber(&broker.addr(), Subscriber::builder().until_ended(true), "t");
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let publishing = std::thread::spawn(move || {
        publish(&mut topic, &sizes);
        let end = topic.position();
        let confirmed = topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).unwrap();
        assert_eq!((confirmed.position, confirmed.subscribers), (end, 1));
        let too_large = topic.publish(&vec![0; 64 * MIB + 1]).unwrap_err();
        let max = 64 * MIB as u64 + 4;
        assert_eq!(too_large, PublishError::TooLarge { size: 64 * MIB as u64 + 1, max });
        assert!(too_large.to_string().contains("broker.max_message_bytes"), "{too_large}");
        topic.close().unwrap();
    });
    expect(&mut all, &sizes);
    publishing.join().unwrap();
    assert!(all.recv(Some(LONG)).unwrap().is_none() && all.ended());
}

/// A message that is filled in place, one with attributes, and a batch, each larger than any before.
#[test]
fn all_ways_of_publishing_let_rings_grow() {
    let broker = broker_with(|_| {});
    let mut topic = topic(&broker.addr(), "t");
    let mut all = subscriber(&broker.addr(), Subscriber::builder(), "t");
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let mut segment = topic.claim(MIB as u64, Some(LONG)).unwrap();
    let again = topic.claim(8 * MIB as u64, Some(LONG)).unwrap_err();
    assert!(again.to_string().contains("open claims"), "{again}");
    segment.bytes_mut().copy_from_slice(&message(0, MIB));
    topic.publish_segment(segment, Some(MIB as u64)).unwrap();
    let mut attributes = AttributesBuf::new();
    attributes.property("a", "b").unwrap();
    topic.publish_with_timeout(&attributes, &message(1, 3 * MIB), Some(LONG)).unwrap();
    let mut batch = topic.batch_timeout(9 * MIB as u64, Some(LONG)).unwrap();
    assert!(batch.push(&message(2, 4 * MIB)) && batch.push(&message(3, 4 * MIB)));
    batch.deliver().unwrap();
    expect(&mut all, &[MIB, 3 * MIB, 4 * MIB, 4 * MIB]);
}

/// Chains grow from broker to broker; who comes later finds the last message, whose end and beginning are known.
#[test]
fn rings_grow_through_chains() {
    let first = broker_with(patient);
    let of = |upstream: &Broker| {
        let upstream = UpstreamSettings::new(&upstream.addr());
        broker_with(|config| {
            patient(config);
            config.broker.upstream = vec![upstream];
        })
    };
    let second = of(&first);
    let third = of(&second);
    let sizes = [10, 2 * MIB, 20, 9 * MIB, 5];
    let mut topic = topic(&first.addr(), "t");
    let mut ends: Vec<_> =
        [&first, &second, &third].map(|at| subscriber(&at.addr(), Subscriber::builder(), "t")).into();
    topic.wait_subscribers(3, Some(LONG)).unwrap();
    let publishing = std::thread::spawn(move || {
        publish(&mut topic, &sizes);
        let end = topic.position();
        let confirmed = topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).unwrap();
        assert_eq!(confirmed.subscribers, 3);
        topic.publish_timeout(&message(0, 12 * MIB), Some(LONG)).unwrap();
        let end = topic.position();
        topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).unwrap();
        topic
    });
    ends.iter_mut().for_each(|end| expect(end, &sizes));
    ends.iter_mut().for_each(|end| expect(end, &[12 * MIB]));
    let topic = publishing.join().unwrap();
    for at in [&first, &third] {
        let mut late = Subscriber::connect(&at.addr()).unwrap();
        late.subscribe_from("t", StartFrom::Last).unwrap();
        expect(&mut late, &[12 * MIB]);
    }
    drop(topic);
}

/// A broker whose rings do not grow, behind one whose rings do: it cannot have the topic any more, and has all others.
#[test]
fn a_chain_with_rings_that_do_not_grow_goes_on_without_the_topic() {
    let first = broker_with(|_| {});
    let second = broker_with(|config| {
        config.framework.transport = TransportKind::Auto;
        config.broker.upstream = vec![UpstreamSettings::new(&first.addr())];
    });
    let [mut large, mut small] = ["t", "u"].map(|name| topic(&first.addr(), name));
    let mut near = subscriber(&first.addr(), Subscriber::builder(), "t");
    let mut far = subscriber(&second.addr(), Subscriber::builder(), "t");
    let mut other = subscriber(&second.addr(), Subscriber::builder(), "u");
    large.wait_subscribers(2, Some(LONG)).unwrap();
    small.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut large, &[10, MIB]);
    expect(&mut near, &[10, MIB]);
    expect(&mut far, &[10]);
    publish(&mut small, &[10]);
    expect(&mut other, &[10]);
    // The publisher waits for nobody who cannot have it.
    for _ in 0..10 {
        publish(&mut large, &[8 * MIB]);
        expect(&mut near, &[8 * MIB]);
    }
    publish(&mut small, &[10]);
    expect(&mut other, &[10]);
}

/// A subscriber that drops loses whole messages only, and holds up nobody.
#[test]
fn policies_act_on_whole_messages() {
    let broker = broker_with(|_| {});
    let mut topic = topic(&broker.addr(), "t");
    let slow = Subscriber::builder().until_ended(true).slow(SlowPolicy::Drop { max_lag_bytes: None });
    let mut slow = subscriber(&broker.addr(), slow, "t");
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut topic, &[2 * MIB; 40]);
    topic.close().unwrap();
    let mut last = None;
    loop {
        match slow.next_event(Some(LONG)).unwrap() {
            Some(Event::Batch(batch)) => {
                for record in batch.records() {
                    let number =
                        (last.map_or(0, |last| last + 1)..40).find(|n| record[..64] == message(*n, 64)[..]);
                    let number = number.expect("a message that was published, after the last one");
                    assert!(record == message(number, 2 * MIB), "message {number}: {} bytes", record.len());
                    last = Some(number);
                }
            }
            Some(Event::Notice(Notice::Closed { .. })) | None => break,
            Some(_) => {}
        }
    }
    assert_eq!(last, Some(39), "the newest delivery is no lag");
}

/// A subscriber that would be disconnected for its lag is not behind while a large message is on its way.
#[test]
fn a_large_message_is_no_lag() {
    let broker = broker_with(|_| {});
    let mut topic = topic(&broker.addr(), "t");
    let policies = [
        SlowPolicy::Disconnect { max_lag_bytes: None },
        SlowPolicy::Drop { max_lag_bytes: None },
        SlowPolicy::Block,
    ];
    let mut ends: Vec<_> = policies
        .into_iter()
        .map(|policy| subscriber(&broker.addr(), Subscriber::builder().slow(policy), "t"))
        .collect();
    topic.wait_subscribers(3, Some(LONG)).unwrap();
    let sizes = [4 * MIB, 1, 4 * MIB, 9 * MIB, MIB];
    for (number, size) in sizes.iter().enumerate() {
        topic.publish_timeout(&message(number, *size), Some(LONG)).unwrap();
        let end = topic.position();
        let confirmed = topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).unwrap();
        assert_eq!((confirmed.subscribers, confirmed.lost), (3, 0), "message {number}");
    }
    ends.iter_mut().for_each(|end| expect(end, &sizes));
}

/// A subscriber with little memory is told what to set, and the others go on.
#[test]
fn a_subscriber_with_little_memory_gets_an_error() {
    let broker = broker_with(|_| {});
    let mut topic = topic(&broker.addr(), "t");
    let builder = || Subscriber::builder().until_ended(true);
    let mut small = subscriber(&broker.addr(), builder().max_message_bytes(MIB as u64), "t");
    let mut large = subscriber(&broker.addr(), builder(), "t");
    topic.wait_subscribers(2, Some(LONG)).unwrap();
    publish(&mut topic, &[MIB, 3, 4 * MIB, 4]);
    expect(&mut small, &[MIB, 3]);
    let error = small.recv(Some(LONG)).unwrap_err();
    assert!(matches!(error, ReceiveError::Refused { topic: Some(_), .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("max_message_bytes"), "{text}");
    expect(&mut large, &[MIB, 3, 4 * MIB, 4]);
    // Who comes later with as little is told the same.
    let mut small = subscriber(&broker.addr(), builder().max_message_bytes(MIB as u64), "t");
    let error = small.recv(Some(LONG)).unwrap_err();
    assert!(matches!(error, ReceiveError::Refused { topic: Some(_), .. }), "{error:?}");
}

/// A ring that has grown announces what is published, and not the room that it has.
#[test]
fn a_subscriber_is_not_refused_for_room_that_nobody_uses() {
    let broker = broker_with(|_| {});
    let mut topic = topic(&broker.addr(), "t");
    let builder = Subscriber::builder().until_ended(true).max_message_bytes(MIB as u64 - 4);
    let mut small = subscriber(&broker.addr(), builder, "t");
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let sizes = [600 << 10, 700 << 10, 5, MIB - 4, 6];
    publish(&mut topic, &sizes);
    expect(&mut small, &sizes);
}

/// Connections that are lost at any byte while rings grow lose nothing.
#[test]
fn lost_connections_lose_nothing() {
    let broker = broker_with(|config| config.framework.session.linger_ms = 600_000);
    let (upward, downward) = (Proxy::to(&broker.addr()), Proxy::to(&broker.addr()));
    let mut topic = topic(&upward.addr, "t");
    let named = Subscriber::builder().until_ended(true).durable("s", HOUR);
    let mut reader = subscriber(&downward.addr, named, "t");
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let sizes: Vec<usize> = (0..24).map(|n| if n % 3 == 0 { (n + 1) * 400_000 } else { n * 1000 }).collect();
    let published = sizes.clone();
    let publishing = std::thread::spawn(move || {
        publish(&mut topic, &published);
        topic.flush(Some(LONG)).unwrap();
        topic
    });
    for (number, size) in sizes.iter().enumerate() {
        if number % 4 == 1 {
            upward.interrupt();
        } else if number % 4 == 3 {
            downward.interrupt();
        }
        let got = reader.recv(Some(LONG)).unwrap().expect("a message");
        assert!(got.bytes == message(number, *size), "message {number} of {size}: {} bytes", got.bytes.len());
    }
    publishing.join().unwrap().close().unwrap();
}

/// A broker that is started again gets a log with a ring that has grown, and a subscriber that was away gets all of it.
#[test]
fn a_grown_log_goes_on_at_a_broker_that_was_restarted() {
    let addr = own_addr();
    let start = |addr: &str| broker_with(|config| config.broker.listen = addr.into());
    let broker = start(&addr);
    let options = TopicOptions::default().keep_until_delivered(true).min_subscribers(1);
    let mut topic = Publisher::connect(&addr).unwrap().topic_with("t", options).unwrap();
    let mut reader = subscriber(&addr, Subscriber::builder().durable("s", HOUR), "t");
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut topic, &[100, 5 * MIB]);
    expect(&mut reader, &[100, 5 * MIB]);
    drop(broker);
    let _broker = start(&addr);
    // The subscriber moves to the new broker with its next call.
    let publishing = std::thread::spawn(move || {
        publish(&mut topic, &[6 * MIB, 11 * MIB]);
        topic
    });
    expect(&mut reader, &[6 * MIB, 11 * MIB]);
    drop(publishing.join().unwrap());
}

/// A publisher asks each broker anew how large its messages may be, and waits while there is none.
#[test]
fn a_broker_that_takes_less_refuses_the_message_alone() {
    let addr = own_addr();
    let start = |max: u64| {
        broker_with(|config| {
            config.broker.listen.clone_from(&addr);
            config.broker.max_message_bytes = max;
        })
    };
    let broker = start(64 << 20);
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topic = publisher.topic("t").unwrap();
    assert_eq!(topic.largest_delivery_bytes(), (64 << 20) + 4);
    // Events are collected from here on.
    publisher.next_event(Some(Duration::ZERO));
    drop(broker);
    while !matches!(publisher.next_event(Some(LONG)).unwrap(), PublisherEvent::Disconnected(_)) {}
    topic.publish(b"small").unwrap();
    let error = topic.publish_timeout(&message(0, 4 * MIB), Some(Duration::ZERO)).unwrap_err();
    assert!(matches!(error, PublishError::TimedOut { .. }), "{error}");
    let _broker = start(1 << 20);
    let error = topic.publish_timeout(&message(0, 4 * MIB), Some(LONG)).unwrap_err();
    assert_eq!(error, PublishError::TooLarge { size: 4 * MIB as u64, max: MIB as u64 + 4 });
    publish(&mut topic, &[MIB]);
    topic.flush(Some(LONG)).unwrap();
}

/// A message that waits for the answer of a broker gets this answer, also if the broker does not take the topic at all.
#[test]
fn a_message_that_waits_for_a_broker_hears_that_the_topic_is_refused() {
    let addr = own_addr();
    let start = |max_ring_bytes: u64| {
        broker_with(|config| {
            config.broker.listen.clone_from(&addr);
            config.broker.max_ring_bytes = max_ring_bytes;
        })
    };
    let broker = start(64 << 20);
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topic = publisher.topic("t").unwrap();
    publisher.next_event(Some(Duration::ZERO));
    drop(broker);
    while !matches!(publisher.next_event(Some(LONG)).unwrap(), PublisherEvent::Disconnected(_)) {}
    std::thread::scope(|both| {
        let publishing = both.spawn(|| topic.publish_timeout(&message(0, 4 * MIB), Some(LONG)).unwrap_err());
        let _broker = start(512 << 10);
        let error = publishing.join().unwrap();
        assert!(matches!(error, PublishError::Refused { .. }), "{error}");
    });
}

/// Topics whose rings do not grow refuse as before.
#[test]
fn spaces_and_other_transports_refuse_large_messages() {
    let space =
        broker_with(|config| config.broker.topics = vec![rule("s/#", |rule| rule.space = true)].into());
    let mapped = broker_with(|config| config.framework.transport = TransportKind::Auto);
    for (at, name) in [(&space, "s/t"), (&mapped, "t")] {
        let mut topic = topic(&at.addr(), name);
        let error = topic.publish(&vec![0; MIB]).unwrap_err();
        assert!(matches!(error, PublishError::TooLarge { .. }), "{name}: {error}");
        topic.publish(&vec![0; 100 << 10]).unwrap();
        topic.flush(Some(LONG)).unwrap();
    }
    let broker = broker_with(|config| config.broker.max_message_bytes = 4 << 20);
    let mut topic = topic(&broker.addr(), "t");
    let error = topic.publish(&vec![0; 4 * MIB + 1]).unwrap_err();
    assert_eq!(error, PublishError::TooLarge { size: 4 * MIB as u64 + 1, max: 4 * MIB as u64 + 4 });
    topic.publish(&vec![0; 4 * MIB]).unwrap();
}

/// The messages of one publisher, among those of others: each says whose it is.
fn expect_of_all(subscriber: &mut Subscriber, sizes: &[usize], publishers: usize) {
    let mut next = vec![0; publishers];
    for _ in 0..sizes.len() * publishers {
        let got = subscriber.recv(Some(LONG)).unwrap().expect("a message");
        let of = usize::from(got.bytes[0]);
        let number = next[of];
        next[of] += 1;
        let (whose, rest) = got.bytes.split_at(1);
        assert!(
            rest == message(number + 7 * of, sizes[number]),
            "message {number} of {whose:?}: {} bytes",
            rest.len()
        );
    }
}

fn publish_as(topic: &mut TopicWriter, who: usize, sizes: &[usize]) {
    for (number, size) in sizes.iter().enumerate() {
        let bytes = [vec![who as u8], message(number + 7 * who, *size)].concat();
        topic.publish_timeout(&bytes, Some(LONG)).unwrap();
    }
}

/// Publishers whose rings have grown are merged as others are, also behind a chain.
#[test]
fn merged_topics_take_large_messages() {
    let first = broker_with(|config| {
        patient(config);
        config.broker.topics = vec![rule("m", |rule| rule.ingest = Ingest::Merge)].into();
    });
    let upstream = UpstreamSettings::new(&first.addr());
    let second = broker_with(|config| {
        patient(config);
        config.broker.upstream = vec![upstream];
    });
    let sizes = [10, MIB, 300, 100, 3 * MIB, 1, 9 * MIB, 50_000, 20, 2 * MIB];
    let writers: Vec<_> = (0..3).map(|_| topic(&first.addr(), "m")).collect();
    let ends = [&first, &second].map(|at| subscriber(&at.addr(), Subscriber::builder(), "m"));
    for writer in &writers {
        writer.wait_subscribers(2, Some(LONG)).unwrap();
    }
    let reading = ends.map(|mut end| {
        std::thread::spawn(move || {
            expect_of_all(&mut end, &sizes, 3);
            end
        })
    });
    let publishing: Vec<_> = writers
        .into_iter()
        .enumerate()
        .map(|(who, mut topic)| {
            std::thread::spawn(move || {
                publish_as(&mut topic, who, &sizes);
                let end = topic.position();
                let confirmed = topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).unwrap();
                assert_eq!((confirmed.position, confirmed.subscribers), (end, 2));
                topic
            })
        })
        .collect();
    // All stay until everything is confirmed.
    let _ends = reading.map(|thread| thread.join().unwrap());
    let _writers: Vec<_> = publishing.into_iter().map(|thread| thread.join().unwrap()).collect();
}

fn keeping(dir: &Path, addr: &str) -> Broker {
    broker_with(|config| {
        config.broker.listen = addr.into();
        config.broker.keep_dir = dir.to_str().unwrap().into();
        config.broker.topics = vec![rule("k/#", |rule| rule.keep = true)].into();
    })
}

fn replayed(at: &str, builder: SubscriberBuilder, name: &str) -> Subscriber {
    let mut subscriber = builder.connect(at).unwrap();
    subscriber.subscribe_from(name, StartFrom::Oldest).unwrap();
    subscriber
}

/// Kept topics have large messages on the disk, before and after a restart, and so has a subscriber that comes late.
#[test]
fn kept_topics_and_replays_have_large_messages() {
    let dir = tempfile::tempdir().unwrap();
    let addr = own_addr();
    let broker = keeping(dir.path(), &addr);
    let sizes = [100, 5 * MIB, 3, 64 * MIB, 7, 9 * MIB];
    let mut topic = topic(&addr, "k/t");
    publish(&mut topic, &sizes);
    let end = topic.position();
    topic.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    let too_large = topic.publish(&vec![0; 64 * MIB + 1]).unwrap_err();
    assert!(matches!(too_large, PublishError::TooLarge { .. }), "{too_large}");
    expect(&mut replayed(&addr, Subscriber::builder(), "k/t"), &sizes);
    drop(broker);
    let _broker = keeping(dir.path(), &addr);
    // Of the disk alone, with rings that begin small; and then of the publisher, which goes on as it was.
    let mut late = replayed(&addr, Subscriber::builder(), "k/t");
    expect(&mut late, &sizes);
    let again = [6 * MIB, 2, 11 * MIB];
    publish(&mut topic, &again);
    let end = topic.position();
    topic.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    expect(&mut late, &again);
    // A subscriber with little memory is told so by the replay, too.
    let mut small = replayed(&addr, Subscriber::builder().max_message_bytes(MIB as u64), "k/t");
    expect(&mut small, &[100]);
    let error = small.recv(Some(LONG)).unwrap_err();
    assert!(matches!(error, ReceiveError::Refused { topic: Some(_), .. }), "{error:?}");
    assert!(error.to_string().contains("max_message_bytes"), "{error}");
}

/// A merged topic whose ring has no memory to grow refuses the publisher that needs it, and goes on with the others.
#[test]
fn a_merged_topic_without_memory_refuses_one_publisher() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("m", |rule| rule.ingest = Ingest::Merge)].into();
        config.framework.buffers.max_ring_bytes = 96 << 20;
    });
    let mut other = topic(&broker.addr(), "m");
    let mut all = subscriber(&broker.addr(), Subscriber::builder(), "m");
    other.wait_subscribers(1, Some(LONG)).unwrap();
    publish(&mut other, &[10]);
    let mut large = topic(&broker.addr(), "m");
    // The ring of the publisher here, of 64 MiB, is all that rings may grow to.
    let _ = large.publish_timeout(&message(0, 20 * MIB), Some(LONG));
    let error = large.flush(Some(LONG)).unwrap_err().to_string();
    assert!(error.contains("buffers.max_ring_bytes"), "{error}");
    publish(&mut other, &[11, 3 * MIB]);
    expect(&mut all, &[10]);
    expect(&mut all, &[11, 3 * MIB]);
}

/// A message for which there is no memory ends its log there: subscribers get what came before, and others go on.
#[test]
fn what_came_before_a_refused_message_is_delivered() {
    let broker = broker_with(|config| config.framework.buffers.max_ring_bytes = 64 << 20);
    let [mut large, mut small] = ["t", "u"].map(|name| topic(&broker.addr(), name));
    let of_one_ring = || Subscriber::builder().until_ended(true).ring_bytes(512 << 10);
    let mut late = subscriber(&broker.addr(), of_one_ring(), "t");
    let mut other = subscriber(&broker.addr(), of_one_ring(), "u");
    large.wait_subscribers(1, Some(LONG)).unwrap();
    small.wait_subscribers(1, Some(LONG)).unwrap();
    // More than the ring of the subscriber, and less than the one of the broker.
    let sizes = [100 << 10; 9];
    publish(&mut large, &sizes);
    large.flush(Some(LONG)).unwrap();
    let _ = large.publish_timeout(&message(0, 20 * MIB), Some(LONG));
    let error = large.flush(Some(LONG)).unwrap_err().to_string();
    assert!(error.contains("buffers.max_ring_bytes"), "{error}");
    expect(&mut late, &sizes);
    let error = late.recv(Some(LONG)).unwrap_err();
    assert!(matches!(error, ReceiveError::Gone { .. }), "{error:?}");
    publish(&mut small, &[10]);
    expect(&mut other, &[10]);
    // The topic has a log again when there is a smaller message in it.
    drop(large);
    publish(&mut topic(&broker.addr(), "t"), &[11]);
}

/// A replay whose subscriber may never have the memory for a message says that the message is lost, and goes on behind it.
#[test]
fn a_replay_beyond_the_whole_quota_goes_on_behind() {
    let dir = tempfile::tempdir().unwrap();
    let addr = own_addr();
    let start = |most: Option<u64>| {
        broker_with(|config| {
            config.broker.listen.clone_from(&addr);
            config.broker.keep_dir = dir.path().to_str().unwrap().into();
            config.broker.topics = vec![rule("k/#", |rule| rule.keep = true)].into();
            config.quotas.address_ring_bytes = most;
        })
    };
    let broker = start(None);
    let mut kept = topic(&addr, "k/t");
    // Three runs of the log. The ring of the replay grows for the first one, and has no room beside that for the second one.
    for size in [3 * MIB, 10 * MIB, 100] {
        publish(&mut kept, &[size]);
        let end = kept.position();
        kept.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    }
    drop((kept, broker));
    let _broker = start(Some(32 << 20));
    let mut late = Subscriber::connect(&addr).unwrap();
    late.subscribe_from("k/t", StartFrom::Oldest).unwrap();
    let (mut lost, mut all) = (0, Vec::new());
    while all.last() != Some(&100) {
        match late.next_event(Some(LONG)).unwrap().expect("the message behind") {
            Event::Notice(Notice::Lost { from, to, .. }) => lost += to - from,
            Event::Batch(batch) => all.extend(batch.records().map(<[u8]>::len)),
            _ => {}
        }
    }
    assert_eq!(all, [3 * MIB, 100]);
    assert!(lost >= 10 * MIB as u64, "{lost}");
}

/// A replay for which there is no memory waits, and the other topics of its subscriber go on.
#[test]
fn a_replay_without_memory_waits_alone() {
    let dir = tempfile::tempdir().unwrap();
    let addr = own_addr();
    let start = || {
        broker_with(|config| {
            config.broker.listen.clone_from(&addr);
            config.broker.keep_dir = dir.path().to_str().unwrap().into();
            config.broker.topics = vec![rule("k/#", |rule| rule.keep = true)].into();
            config.broker.closed_linger_ms = 1;
            config.framework.buffers.max_ring_bytes = 256 << 20;
        })
    };
    let broker = start();
    let mut kept = topic(&addr, "k/t");
    publish(&mut kept, &[20 * MIB]);
    let end = kept.position();
    kept.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    drop((kept, broker));
    let _broker = start();
    let large = ["a", "b"].map(|name| {
        let mut topic = topic(&addr, name);
        publish(&mut topic, &[20 * MIB]);
        topic.flush(Some(LONG)).unwrap();
        topic
    });
    let mut other = topic(&addr, "other");
    let mut both = subscriber(&addr, Subscriber::builder(), "other");
    both.subscribe_from("k/t", StartFrom::Oldest).unwrap();
    other.wait_subscribers(1, Some(LONG)).unwrap();
    for _ in 0..20 {
        publish(&mut other, &[10]);
        expect(&mut both, &[10]);
    }
    drop(large);
    loop {
        match both.next_event(Some(LONG)).unwrap().expect("the kept message") {
            Event::Batch(batch) => {
                let all: Vec<_> = batch.records().map(<[u8]>::len).collect();
                assert_eq!(all, [20 * MIB]);
                break;
            }
            Event::Notice(Notice::Disconnected(why)) => panic!("{why}"),
            _ => {}
        }
    }
}

/// A publisher with many large topics takes a part of the memory for rings, and leaves the rest.
#[test]
fn many_large_topics_leave_room_for_small_ones() {
    let broker = broker_with(|config| config.framework.buffers.max_ring_bytes = 256 << 20);
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    // They stay open.
    let mut open = ManuallyDrop::new(Vec::new());
    let mut refused = 0;
    for n in 0..24 {
        let mut topic = publisher.topic(&format!("large/{n}")).unwrap();
        // The broker's ring, of 32 MiB, or the refusal: the message itself is in the ring of the publisher.
        let _ = topic.publish_timeout(&vec![0; 9 * MIB], Some(LONG));
        if let Err(error) = topic.flush(Some(LONG)) {
            assert!(error.to_string().contains("buffers.max_ring_bytes"), "{error}");
            refused += 1;
        }
        open.push(topic);
    }
    assert!((16..24).contains(&refused), "{refused} were refused");
    let mut small = topic(&broker.addr(), "small");
    small.publish(b"x").unwrap();
    small.flush(Some(LONG)).unwrap();
}

/// Rings of grown topics that a new broker makes anew leave the rest as those do that grow.
#[test]
fn grown_topics_at_a_new_broker_leave_room_for_small_ones() {
    let addr = own_addr();
    let start = |max: u64| {
        broker_with(|config| {
            config.broker.listen.clone_from(&addr);
            config.framework.buffers.max_ring_bytes = max;
            config.broker.topics = vec![rule("m/#", |rule| rule.ingest = Ingest::Merge)].into();
        })
    };
    let broker = start(1 << 30);
    let publisher = Publisher::connect(&addr).unwrap();
    // A ring of 32 MiB each, and merged topics have one of their own besides.
    let names = ["a", "b", "c", "d", "m/e", "m/f", "m/g", "m/h", "m/i"];
    let mut open: Vec<_> = names.iter().map(|name| publisher.topic(name).unwrap()).collect();
    for topic in &mut open {
        publish(topic, &[9 * MIB]);
        topic.flush(Some(LONG)).unwrap();
    }
    drop(broker);
    let _broker = start(256 << 20);
    let mut refused = 0;
    for topic in &mut open {
        let _ = topic.publish_timeout(b"x", Some(LONG));
        if let Err(error) = topic.flush(Some(LONG)) {
            assert!(error.to_string().contains("buffers.max_ring_bytes"), "{error}");
            refused += 1;
        }
    }
    assert!((3..9).contains(&refused), "{refused} were refused");
    // One that has its size at first, as all others.
    let options = TopicOptions::default().ring_bytes(32 << 20);
    let mut small = publisher.topic_with("small", options).unwrap();
    small.publish(b"x").unwrap();
    small.flush(Some(LONG)).unwrap();
}

/// A message that the quota never takes is refused at once, and a smaller one comes.
#[test]
fn a_quota_says_how_large_messages_may_be() {
    let broker = broker_with(|config| config.quotas.address_ring_bytes = Some(64 << 20));
    let mut topic = topic(&broker.addr(), "t");
    let error = topic.publish(&vec![0; 17 * MIB]).unwrap_err();
    assert!(matches!(error, PublishError::TooLarge { .. }), "{error}");
    publish(&mut topic, &[MIB, 10 * MIB]);
    topic.flush(Some(LONG)).unwrap();
}

/// Growth counts for the quotas of its publisher, until the topic is gone.
#[test]
fn quotas_count_what_grows() {
    let broker = broker_with(|config| {
        config.quotas.address_ring_bytes = Some(136 << 20);
        config.broker.closed_linger_ms = 1;
        config.broker.topics = vec![rule("m/#", |rule| rule.ingest = Ingest::Merge)].into();
    });
    let addr = broker.addr();
    let mut first = topic(&addr, "t");
    publish(&mut first, &[10 * MIB, 20 * MIB]);
    first.flush(Some(LONG)).unwrap();
    let open = |name: &str, size: usize| {
        let mut topic = topic(&addr, name);
        let _ = topic.publish_timeout(&message(0, size), Some(LONG));
        let end = topic.position();
        let flushed =
            topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).map_err(|error| error.to_string());
        (topic, flushed)
    };
    let (second, flushed) = open("u", 20 * MIB);
    let error = flushed.unwrap_err();
    assert!(error.contains("quotas.address_ring_bytes"), "{error}");
    // The ring of the publisher and the one of the topic.
    first.close().unwrap();
    until("the quota is free", || broker.topics().is_empty());
    let (third, flushed) = open("m/t", 10 * MIB);
    flushed.unwrap();
    let (fourth, flushed) = open("m/u", 10 * MIB);
    flushed.unwrap();
    let error = open("m/v", 10 * MIB).1.unwrap_err();
    assert!(error.contains("quotas"), "{error}");
    drop((second, third, fourth));
    until("the quota is free", || broker.topics().is_empty());
    open("w", 10 * MIB).1.unwrap();
}

/// Replays count for the quotas of their subscriber when they grow, and wait.
#[test]
fn quotas_count_replays_that_grow() {
    let dir = tempfile::tempdir().unwrap();
    let addr = own_addr();
    let broker = keeping(dir.path(), &addr);
    let mut kept = topic(&addr, "k/t");
    publish(&mut kept, &[20 * MIB]);
    let end = kept.position();
    kept.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
    drop((kept, broker));
    let _broker = broker_with(|config| {
        config.broker.listen.clone_from(&addr);
        config.broker.keep_dir = dir.path().to_str().unwrap().into();
        config.broker.topics = vec![rule("k/#", |rule| rule.keep = true)].into();
        config.broker.closed_linger_ms = 1;
        config.quotas.address_ring_bytes = Some(100 << 20);
    });
    let mut large = topic(&addr, "large");
    publish(&mut large, &[20 * MIB]);
    large.flush(Some(LONG)).unwrap();
    let mut other = topic(&addr, "other");
    let mut both = subscriber(&addr, Subscriber::builder(), "other");
    both.subscribe_from("k/t", StartFrom::Oldest).unwrap();
    other.wait_subscribers(1, Some(LONG)).unwrap();
    // The quota has no room for another ring of 64 MiB.
    for _ in 0..100 {
        publish(&mut other, &[10]);
        expect(&mut both, &[10]);
    }
    drop(large);
    expect(&mut both, &[20 * MIB]);
}

/// A publisher of before is told nothing that it does not know.
#[test]
fn a_publisher_of_before_gets_what_it_got() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("m", |rule| rule.ingest = Ingest::Merge)].into();
    });
    for (client, name) in [(1, "t"), (2, "m")] {
        let hello = Hello { role: Role::Publisher, client, name: "old".into() }.encode();
        let mut raw = Raw::connect(&broker.addr(), client, hello);
        raw.say(&Message::App(create(name).encode()));
        let wire = raw.until("SUBSCRIBE", |message| match message {
            Message::Subscribe(subscribe) => Some(subscribe.wire),
            _ => None,
        });
        raw.say(&Message::Subscribed(subscribed(wire)));
        let first = raw.until("an answer", |message| match message {
            Message::App(bytes) => Control::decode(&bytes).ok(),
            _ => None,
        });
        assert_eq!(first, Control::Created { bid: 1 }, "{name}");
    }
}

fn create(name: &str) -> Control {
    Control::Create {
        bid: 1,
        framing: Framing::Records,
        ring_bytes: 1 << 16,
        max_delivery_bytes: 1 << 14,
        min_subscribers: 0,
        topic: name.parse().unwrap(),
    }
}

fn subscribed(wire: u32) -> Subscribed {
    Subscribed {
        wire,
        epoch: Epoch(5),
        start: 0,
        flow_control: true,
        restarted: true,
        without_slot: false,
        capacity: 1 << 16,
        max_delivery: 1 << 14,
    }
}

/// A publisher whose framework lies about what follows.
#[test]
fn an_announcement_beyond_the_limit_ends_the_topic_alone() {
    let broker = broker_with(|config| config.broker.closed_linger_ms = 1);
    let mut other = topic(&broker.addr(), "other");
    for max_delivery in [u64::MAX, 1 << 63, (128 << 20) + 1] {
        let hello = Hello { role: Role::Publisher, client: 1, name: "liar".into() }.encode();
        let mut raw = Raw::connect(&broker.addr(), u128::from(max_delivery), hello);
        raw.say(&Message::App(create("lies").encode()));
        let wire = raw.until("SUBSCRIBE", |message| match message {
            Message::Subscribe(subscribe) => Some(subscribe.wire),
            _ => None,
        });
        raw.say(&Message::Subscribed(subscribed(wire)));
        raw.say(&Message::Grown { wire, max_delivery });
        let reason = raw.until("the refusal", |message| match message {
            Message::App(bytes) => match Control::decode(&bytes) {
                Ok(Control::Refused { reason, .. }) => Some(reason),
                _ => None,
            },
            _ => None,
        });
        assert!(reason.contains("need a ring of") || reason.contains("deliveries of"), "{reason}");
        until("the topic is gone", || broker.topics().iter().all(|topic| topic.topic.as_str() != "lies"));
    }
    other.publish(b"x").unwrap();
    other.flush(Some(LONG)).unwrap();
}
