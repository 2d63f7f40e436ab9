//! Rules of topics, and subscriptions by pattern.

use std::collections::BTreeSet;
use std::time::Duration;

use rbmq::{ConnectError, Publisher, ReceiveError, StartFrom, SubscribeTopicError, Subscriber, TopicOptions};
use rbmq_broker::Broker;
use testkit::{LONG, broker_with, own_addr, rule};

/// Fills a topic with messages of 1,000 bytes. Returns how many of them a later subscriber gets.
fn kept(broker: &Broker, topic: &str) -> usize {
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let options = TopicOptions::default().ring_bytes(64 << 10);
    let mut writer = publisher.topic_with(topic, options).unwrap();
    for _ in 0..1000 {
        writer.publish(&[1; 1000]).unwrap();
    }
    writer.close().unwrap();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    subscriber.subscribe_from(topic, StartFrom::Oldest).unwrap();
    subscriber.into_iter().map(Result::unwrap).count()
}

#[test]
fn a_rule_sets_the_size_and_the_history_of_a_ring() {
    let broker = broker_with(|config| {
        let large = rule("large/#", |rule| rule.ring_bytes = Some(512 << 10));
        let short = rule("short/+", |rule| {
            rule.ring_bytes = Some(512 << 10);
            rule.retain_bytes = Some(4096);
        });
        config.broker.topics = vec![large, short].into();
    });
    let before = broker.memory_in_use();
    let large = kept(&broker, "large/a");
    assert_eq!(broker.memory_in_use() - before, 512 << 10, "the rule counts, not the requested size");
    // Half of the ring; of it, as of any, the last few kilobytes more or less, as credit goes in steps.
    assert!((200..350).contains(&large), "{large}");
    let short = kept(&broker, "short/a");
    assert!(short < 100, "{short}");
    let other = kept(&broker, "other");
    assert!(other < 66, "{other}");
    assert_eq!(broker.memory_in_use() - before, 2 * (512 << 10) + (64 << 10));
}

#[test]
fn large_deliveries_get_a_larger_ring_than_the_rule() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("#", |rule| rule.ring_bytes = Some(64 << 10))].into();
    });
    let before = broker.memory_in_use();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    // A quarter of a ring of 1 MiB is the largest delivery.
    let mut writer = publisher.topic("t").unwrap();
    writer.publish(&vec![7; 200 << 10]).unwrap();
    assert_eq!(broker.memory_in_use() - before, 512 << 10);
}

/// All messages that a subscriber receives until all topics have ended, as "topic message", sorted.
fn all(subscriber: Subscriber) -> Vec<String> {
    let text = |m: rbmq::Message| format!("{} {}", m.topic, String::from_utf8(m.bytes).unwrap());
    let mut all: Vec<String> = subscriber.into_iter().map(|m| text(m.unwrap())).collect();
    all.sort_unstable();
    all
}

fn publish(publisher: &Publisher, topic: &str, message: &str) {
    let mut writer = publisher.topic(topic).unwrap();
    writer.publish(message.as_bytes()).unwrap();
    writer.close().unwrap();
}

/// A filter whose topics were all announced for another filter does not wait for more topics.
#[test]
fn a_filter_that_adds_nothing_ends_with_the_others() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    publish(&publisher, "a/b", "x");
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    subscriber.subscribe_from("+/b", StartFrom::Oldest).unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"x");
    subscriber.subscribe_from("a/+", StartFrom::Oldest).unwrap();
    assert!(subscriber.recv(Some(LONG)).unwrap().is_none());
    assert!(subscriber.ended());
}

#[test]
fn filters_that_overlap_deliver_each_topic_once() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    for topic in ["a", "a/b", "a/b/c", "b/b", "$a/b"] {
        publish(&publisher, topic, "x");
    }
    let received = |filters: &[&str]| {
        let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
        for filter in filters {
            subscriber.subscribe_from(filter, StartFrom::Oldest).unwrap();
        }
        all(subscriber)
    };
    assert_eq!(received(&["a/#"]), ["a x", "a/b x", "a/b/c x"]);
    assert_eq!(received(&["+/b", "a/+", "a/b", "#"]), ["a x", "a/b x", "a/b/c x", "b/b x"]);
    assert_eq!(received(&["$a/+", "b/b"]), ["$a/b x", "b/b x"]);
}

#[test]
fn later_topics_are_received_from_their_first_byte() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut old = publisher.topic("a/old").unwrap();
    old.publish(b"before").unwrap();
    old.flush(Some(LONG)).unwrap();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    subscriber.subscribe("a/+").unwrap();
    old.wait_subscribers(1, Some(LONG)).unwrap();
    // The first is long written when the subscriber hears of the second.
    let mut first = publisher.topic("a/first").unwrap();
    for n in 0..100 {
        first.publish(format!("{n}").as_bytes()).unwrap();
    }
    first.flush(Some(LONG)).unwrap();
    let mut next = |expected: &str| {
        let message = subscriber.recv(Some(LONG)).unwrap().unwrap();
        assert_eq!(format!("{} {}", message.topic, String::from_utf8(message.bytes).unwrap()), expected);
    };
    (0..100).for_each(|n| next(&format!("a/first {n}")));
    publish(&publisher, "a/second", "x");
    next("a/second x");
    old.publish(b"after").unwrap();
    next("a/old after");
    publish(&publisher, "b/other", "x");
    first.close().unwrap();
    old.close().unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap(), None);
    assert!(subscriber.ended());
}

#[test]
fn every_filter_must_have_matched_before_the_end() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    publish(&publisher, "a/b", "x");
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    assert!(!subscriber.ended());
    subscriber.subscribe_from("a/+", StartFrom::Oldest).unwrap();
    subscriber.subscribe_from("c/#", StartFrom::Oldest).unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().topic.as_str(), "a/b");
    assert_eq!(subscriber.recv(Some(Duration::from_millis(50))).unwrap(), None);
    assert!(!subscriber.ended(), "nothing matched c/# yet");
    publish(&publisher, "c", "x");
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().topic.as_str(), "c");
    assert_eq!(subscriber.recv(Some(LONG)).unwrap(), None);
    assert!(subscriber.ended());
}

#[test]
fn wrong_filters_and_too_many_of_them_are_refused() {
    let broker = broker_with(|config| config.broker.max_topics_per_subscriber = 2);
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    let error = subscriber.subscribe("a/#/b").unwrap_err();
    assert!(matches!(error, SubscribeTopicError::Filter(_)), "{error}");
    let held = Subscriber::builder().until_ended(true).durable("", LONG);
    let error = held.connect(&broker.addr()).unwrap_err();
    assert!(matches!(error, ConnectError::DurableName { bytes: 0, .. }), "{error}");
    for filter in ["a/+", "a/+", "b/#", "c"] {
        subscriber.subscribe(filter).unwrap();
    }
    match subscriber.recv(Some(LONG)).unwrap_err() {
        ReceiveError::Refused { reason, .. } => {
            assert!(reason.contains("3 topics and filters were requested"), "{reason}")
        }
        other => panic!("{other}"),
    }
}

#[test]
fn too_many_patterns_are_refused_though_names_would_be_taken() {
    let broker = broker_with(|config| config.broker.max_patterns_per_subscriber = 2);
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    for filter in ["a", "b", "c", "a/+", "b/#", "c/+"] {
        subscriber.subscribe(filter).unwrap();
    }
    match subscriber.recv(Some(LONG)).unwrap_err() {
        ReceiveError::Refused { reason, .. } => {
            assert!(reason.contains("(broker.max_patterns_per_subscriber) is 2"), "{reason}")
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_same_patterns_are_requested_from_a_replaced_broker() {
    let addr = own_addr();
    let broker = broker_with(|config| config.broker.listen.clone_from(&addr));
    let publisher = Publisher::connect(&addr).unwrap();
    let mut writers: Vec<_> = (0..3).map(|n| publisher.topic(&format!("t/{n}")).unwrap()).collect();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&addr).unwrap();
    subscriber.subscribe("t/#").unwrap();
    for writer in &mut writers {
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        writer.publish(b"1").unwrap();
    }
    for _ in 0..3 {
        subscriber.recv(Some(LONG)).unwrap().unwrap();
    }
    drop(broker);
    let _broker = broker_with(|config| config.broker.listen.clone_from(&addr));
    for mut writer in writers {
        writer.publish(b"2").unwrap();
        writer.close().unwrap();
    }
    let mut left = BTreeSet::new();
    while let Some(message) = subscriber.recv(Some(LONG)).unwrap() {
        assert_eq!(message.bytes, b"2");
        assert!(left.insert(message.topic.to_string()), "each once");
    }
    assert_eq!(left.len(), 3);
}

/// More topics than fit into a connection's queue of control messages, with names as long as they can be.
#[test]
fn more_topics_than_fit_a_connection_are_all_announced() {
    const TOPICS: usize = 4000;
    let broker = broker_with(|config| {
        // Also where it takes minutes until all of them were made.
        config.broker.closed_linger_ms = 3_600_000;
        config.broker.max_buffers_per_publisher = TOPICS;
        config.broker.min_ring_bytes = 4096;
        config.broker.topics = vec![rule("#", |rule| rule.ring_bytes = Some(4096))].into();
    });
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let name = |n: usize| format!("t/{n:0>250}");
    let options = TopicOptions::default().ring_bytes(4096);
    let mut writers: Vec<_> =
        (0..TOPICS).map(|n| publisher.topic_with(&name(n), options.clone()).unwrap()).collect();
    for (n, writer) in writers.iter_mut().enumerate() {
        writer.publish(format!("{n}").as_bytes()).unwrap();
    }
    writers.into_iter().for_each(|writer| writer.close().unwrap());
    let mut subscriber =
        Subscriber::builder().until_ended(true).ring_bytes(4096).connect(&broker.addr()).unwrap();
    subscriber.subscribe_from("t/+", StartFrom::Oldest).unwrap();
    let mut numbers = BTreeSet::new();
    while let Some(message) = subscriber.recv(Some(LONG)).unwrap() {
        let n: usize = String::from_utf8(message.bytes).unwrap().parse().unwrap();
        assert_eq!(message.topic.as_str(), name(n));
        numbers.insert(n);
    }
    assert_eq!(numbers.len(), TOPICS);
}
