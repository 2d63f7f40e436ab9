//! Durable subscribers that were away for less than their hold get topics that appeared in between from their beginning.

use rbmq::wire::{Control, Hello, Role};
use rbmq::{Event, Notice, Observer, Publisher, ReceiveError, StartFrom, Subscriber, TopicWriter};
use rbmq_broker::Ingest;
use rocketbufs::proto::Message;
use testkit::{LONG, Proxy, Raw, broker_with, rule, until};

/// A topic that the broker has, with a message in it.
fn published(publisher: &Publisher, topic: &str, message: &str) -> TopicWriter {
    let mut writer = publisher.topic(topic).unwrap();
    writer.publish(message.as_bytes()).unwrap();
    writer.flush(Some(LONG)).unwrap();
    writer
}

fn named(addr: &str, filters: &[&str]) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).durable("n", LONG).connect(addr).unwrap();
    for filter in filters {
        subscriber.subscribe(filter).unwrap();
    }
    subscriber
}

/// The next message, as "topic message".
fn next(subscriber: &mut Subscriber) -> String {
    let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
    format!("{} {}", message.topic, String::from_utf8(message.bytes).unwrap())
}

/// The notices of lowered options, which come before the first message.
fn lowered(subscriber: &mut Subscriber) -> Vec<String> {
    let mut told = Vec::new();
    loop {
        match subscriber.next_event(Some(LONG)).unwrap().expect("a message") {
            Event::Notice(Notice::OptionClamped(text)) => told.push(text),
            Event::Batch(_) => return told,
            _ => {}
        }
    }
}

fn leave(subscriber: Subscriber, observer: &mut Observer) {
    subscriber.close_timeout(Some(LONG));
    until("the subscriber is gone", || observer.summary().unwrap().subscribers == 0);
}

#[test]
fn topics_that_appeared_in_between_begin_at_their_first_byte() {
    let broker = broker_with(|_| {});
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let _before = published(&publisher, "y/before", "not asked for");
    // Nothing but its name and its filters is there to remember.
    leave(named(&broker.addr(), &["y/#", "z"]), &mut observer);
    let mut new = published(&publisher, "y/new", "1");
    published(&publisher, "z", "1").close().unwrap();
    let _other = published(&publisher, "other", "1");
    let mut subscriber = named(&broker.addr(), &["y/#", "z", "other"]);
    let mut received = [next(&mut subscriber), next(&mut subscriber)];
    received.sort_unstable();
    assert_eq!(received, ["y/new 1", "z 1"], "and no message of a filter that it did not have then");
    leave(subscriber, &mut observer);
    new.publish(b"2").unwrap();
    let mut again = named(&broker.addr(), &["y/#", "z"]);
    // Of places that were kept a little may come again.
    loop {
        match next(&mut again).as_str() {
            "y/new 2" => break,
            "y/new 1" | "z 1" => {}
            other => panic!("{other}"),
        }
    }
    leave(again, &mut observer);
    let told = asked(&mut raw(&broker.addr(), 1, 60_000), "y/#");
    assert_eq!(
        told,
        ["y/before", "y/new"].map(|topic| (topic.to_owned(), false)),
        "the subscriber has had both"
    );
}

/// Publishes numbers in a ring that is larger than the default.
fn numbered(publisher: &Publisher, topic: &str, count: usize) -> TopicWriter {
    let mut writer = publisher.topic(topic).unwrap();
    for n in 0..count {
        writer.publish(format!("{n:01000}").as_bytes()).unwrap();
    }
    writer.flush(Some(LONG)).unwrap();
    writer
}

#[test]
fn missing_bytes_of_a_topic_that_appeared_in_between_are_reported_as_lost() {
    let rules = vec![rule("y/#", |rule| rule.ring_bytes = Some(65_536))];
    let broker = broker_with(|config| config.broker.topics = rules.into());
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    leave(named(&broker.addr(), &["y/#"]), &mut observer);
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let _writer = numbered(&publisher, "y/new", 500);
    let mut subscriber = named(&broker.addr(), &["y/#"]);
    let mut gone = None;
    while gone.is_none() {
        match subscriber.next_event(Some(LONG)).unwrap().expect("what is lost") {
            Event::Notice(Notice::Lost { from, to, .. }) => gone = Some((from, to)),
            Event::Notice(_) => {}
            _ => panic!("a message came before the notice of the loss"),
        }
    }
    let first: usize = next(&mut subscriber).trim_start_matches("y/new ").parse().unwrap();
    assert!(first > 0);
    assert_eq!(gone, Some((0, first as u64 * 1004)));
    (first + 1..500).for_each(|n| assert_eq!(next(&mut subscriber), format!("y/new {n:01000}")));
}

#[test]
fn a_subscription_after_a_reconnect_begins_at_the_requested_position() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let proxy = Proxy::to(&broker.addr());
    let _known = published(&publisher, "known", "1");
    let mut other = published(&publisher, "other", "old");
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&proxy.addr).unwrap();
    subscriber.subscribe_from("known", StartFrom::Oldest).unwrap();
    assert_eq!(next(&mut subscriber), "known 1");
    proxy.cut();
    proxy.restore();
    while !matches!(subscriber.next_event(Some(LONG)).unwrap(), Some(Event::Notice(Notice::Reconnected))) {}
    subscriber.subscribe("other").unwrap();
    other.wait_subscribers(1, Some(LONG)).unwrap();
    other.publish(b"new").unwrap();
    assert_eq!(next(&mut subscriber), "other new");
}

#[test]
fn logs_that_ended_and_were_removed_in_between_are_reported_as_incomplete() {
    let broker = broker_with(|config| {
        config.broker.closed_linger_ms = 1;
        config.broker.topics = vec![rule("merged", |rule| rule.ingest = Ingest::Merge)].into();
        config.framework.session.linger_ms = 10;
    });
    for topic in ["plain", "merged"] {
        let publisher = Publisher::connect(&broker.addr()).unwrap();
        let mut writer = published(&publisher, topic, "1");
        let proxy = Proxy::to(&broker.addr());
        let mut subscriber = Subscriber::builder().until_ended(true).connect(&proxy.addr).unwrap();
        subscriber.subscribe_from(topic, StartFrom::Oldest).unwrap();
        assert_eq!(next(&mut subscriber), format!("{topic} 1"));
        proxy.cut();
        writer.publish(b"2").unwrap();
        writer.close().unwrap();
        until("the topic is removed", || broker.topics().is_empty());
        proxy.restore();
        let end = subscriber.recv(Some(LONG));
        assert!(matches!(end, Err(ReceiveError::Gone { .. })), "{topic}: {end:?}");
        assert_eq!(subscriber.recv(Some(LONG)).unwrap(), None);
    }
}

#[test]
fn a_missing_durable_slot_is_reported_once_and_a_returning_subscriber_has_its_slot() {
    let broker = broker_with(|config| config.framework.limits.max_held_subscriptions = 1);
    let mut observer = Observer::connect(&broker.addr()).unwrap();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut writers = ["a", "b", "c"].map(|topic| published(&publisher, topic, "1"));
    let from = |filter: &str| {
        let mut subscriber =
            Subscriber::builder().until_ended(true).durable("n", LONG).connect(&broker.addr()).unwrap();
        subscriber.subscribe_from(filter, StartFrom::Oldest).unwrap();
        subscriber
    };
    for _ in 0..2 {
        let mut first = from("a");
        assert_eq!(lowered(&mut first), [""; 0]);
        leave(first, &mut observer);
        writers[0].publish(b"2").unwrap();
    }
    let mut other =
        Subscriber::builder().until_ended(true).durable("m", LONG).connect(&broker.addr()).unwrap();
    other.subscribe_from("#", StartFrom::Oldest).unwrap();
    let mut told = Vec::new();
    (0..3).for_each(|_| told.extend(lowered(&mut other)));
    assert!(matches!(&told[..], [text] if text.contains("limits.max_held_subscriptions")), "{told:?}");
}

/// A raw subscriber with any instance, name and hold.
fn raw(addr: &str, instance: u128, hold_ms: u32) -> Raw {
    let hello = Hello { role: Role::Subscriber, client: instance, name: "n".into() };
    let mut raw = Raw::connect(addr, instance, hello.encode());
    if hold_ms > 0 {
        raw.say(&Message::App(Control::Hold { hold_ms }.encode()));
    }
    raw
}

/// Subscribes to a filter. Returns the announced topics, and which of them are new to the subscriber.
fn asked(raw: &mut Raw, filter: &str) -> Vec<(String, bool)> {
    raw.say(&Message::App(Control::Topics { filters: vec![filter.parse().unwrap()] }.encode()));
    let mut told = Vec::new();
    loop {
        match hear(raw) {
            Control::Topic(topic) => told.push((topic.topic.to_string(), topic.fresh)),
            Control::TopicsDone => return told,
            _ => {}
        }
    }
}

fn hear(raw: &mut Raw) -> Control {
    raw.until("a word of the broker", |message| match message {
        Message::App(bytes) => Some(Control::decode(&bytes).unwrap()),
        _ => None,
    })
}

/// Topics were announced, but the connection or process was lost before the subscription. The old connection is still up when
/// the next subscriber with this name connects.
#[test]
fn announced_topics_without_a_subscription_are_announced_again() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let _before = published(&publisher, "a/before", "1");
    let mut first = raw(&broker.addr(), 1, 60_000);
    assert_eq!(asked(&mut first, "a/#"), [("a/before".into(), false)]);
    let _new = published(&publisher, "a/new", "1");
    while !matches!(hear(&mut first), Control::Topic(topic) if topic.topic.as_str() == "a/new") {}
    let told = [("a/before".to_owned(), false), ("a/new".to_owned(), true)];
    for instance in 2..4 {
        assert_eq!(asked(&mut raw(&broker.addr(), instance, 60_000), "a/#"), told);
    }
    let nobody = asked(&mut raw(&broker.addr(), 4, 0), "a/#");
    assert!(nobody.iter().all(|(_, fresh)| !fresh), "{nobody:?}");
}

#[test]
fn existing_topics_are_announced_in_the_order_of_their_creation() {
    let broker = broker_with(|_| {});
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let writers: Vec<_> = (1..=20).rev().map(|n| published(&publisher, &format!("v/{n}"), "1")).collect();
    let told = asked(&mut raw(&broker.addr(), 1, 0), "v/#");
    let expected = writers.iter().map(|writer| (writer.topic().to_string(), false));
    assert_eq!(told, expected.collect::<Vec<_>>());
}
