//! The rights of clients: refused requests name what was refused, patterns give what may be read and no more, and a reload
//! cuts off the clients that lost a right while the others lose nothing.

use std::time::Duration;

use access::{AccessRule, Policy};
use rbmq::wire::RefuseCode;
use rbmq::{
    Observer, PublishError, Publisher, PublisherEvent, ReceiveError, SlowPolicy, StartFrom, Subscriber,
    TopicOpenError, TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, BrokerConfig, Ingest, Rule, UpstreamSettings};
use rocketbufs::{Config, Conn, Context, InEvent, RIn};
use testkit::own_addr;

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(60);

/// A rule for every client.
fn everybody(publish: &[&str], subscribe: &[&str]) -> AccessRule {
    let mut rule = AccessRule::for_user("*");
    rule.publish = publish.iter().map(|pattern| pattern.parse().unwrap()).collect();
    rule.subscribe = subscribe.iter().map(|pattern| pattern.parse().unwrap()).collect();
    rule
}

fn config(rules: Vec<AccessRule>) -> BrokerConfig {
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    config.access.rules = rules;
    config.validate().unwrap();
    config
}

fn broker(rules: Vec<AccessRule>) -> Broker {
    Broker::start(config(rules)).unwrap()
}

fn open(broker: &Broker, topic: &str) -> Result<TopicWriter, TopicOpenError> {
    let options = TopicOptions::default().ring_bytes(64 << 10);
    Publisher::connect(&broker.addr()).unwrap().topic_with(topic, options)
}

fn subscriber(broker: &Broker, topics: &str) -> Subscriber {
    let mut subscriber = Subscriber::builder().ring_bytes(64 << 10).connect(&broker.addr()).unwrap();
    subscriber.subscribe_from(topics, StartFrom::Oldest).unwrap();
    subscriber
}

/// The topic and bytes of the next message; the refusals before it.
fn next(subscriber: &mut Subscriber) -> (Vec<String>, String, Vec<u8>) {
    let mut refusals = Vec::new();
    loop {
        match subscriber.recv(Some(LONG)) {
            Ok(Some(message)) => return (refusals, message.topic.to_string(), message.bytes),
            Err(ReceiveError::Refused { reason, .. }) => refusals.push(reason),
            other => panic!("{other:?}"),
        }
    }
}

/// The next refusal, and its topic.
fn refusal(subscriber: &mut Subscriber) -> (Option<String>, String) {
    match subscriber.recv(Some(LONG)) {
        Err(ReceiveError::Refused { topic, reason }) => (topic.map(|topic| topic.to_string()), reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_create_names_the_topic_and_the_operation() {
    for merged in [false, true] {
        let mut config = config(vec![everybody(&["mine/#"], &[])]);
        let mut rule = Rule::new("#".parse().unwrap());
        rule.ingest = if merged { Ingest::Merge } else { Ingest::Splice };
        config.broker.topics = vec![rule].into();
        let broker = Broker::start(config).unwrap();
        match open(&broker, "yours/x").unwrap_err() {
            TopicOpenError::Refused { code, reason, .. } => {
                assert_eq!(code, RefuseCode::NotAllowed);
                assert!(reason.contains("may not publish topic 'yours/x' (access.rules"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
        let mut writer = open(&broker, "mine/x").unwrap();
        writer.publish(b"x").unwrap();
    }
}

#[test]
fn a_name_is_refused_and_a_pattern_gives_what_may_be_read() {
    let broker = broker(vec![everybody(&["#"], &["open/#"])]);
    let mut writers: Vec<_> =
        ["open/a", "secret/a"].map(|topic| open(&broker, topic).unwrap()).into_iter().collect();
    let mut all = subscriber(&broker, "#");
    let mut named = subscriber(&broker, "secret/a");
    let (_, why) = refusal(&mut named);
    assert!(why.contains("may not subscribe to topic 'secret/a'"), "{why}");
    // Topics that appear later are the same.
    writers.push(open(&broker, "secret/b").unwrap());
    writers.push(open(&broker, "open/b").unwrap());
    for (n, writer) in writers.iter_mut().enumerate() {
        writer.publish(&[n as u8]).unwrap();
    }
    let mut got: Vec<_> = (0..2).map(|_| next(&mut all)).collect();
    got.sort();
    assert_eq!(got, [(vec![], "open/a".into(), vec![0]), (vec![], "open/b".into(), vec![3])]);
    // A publisher may learn of a subscriber after the subscriber has its message.
    for open in [0, 3] {
        writers[open].wait_subscribers(1, Some(LONG)).unwrap();
    }
    assert_eq!(writers.iter().map(TopicWriter::subscribers).collect::<Vec<_>>(), [1, 0, 0, 1]);
}

#[test]
fn the_id_of_a_buffer_opens_nothing() {
    let broker = broker(vec![everybody(&["#"], &["open/#"])]);
    let writer = open(&broker, "secret/a").unwrap();
    // A subscriber that skips the announcements and tries every id.
    let ctx = Context::new(Config::default()).unwrap();
    let hello = rbmq::wire::Hello { role: rbmq::wire::Role::Subscriber, client: 1, name: String::new() };
    let input = RIn::new(&Conn::connect(&ctx, &broker.addr(), &hello.encode()).unwrap());
    for bid in 0..20 {
        input.subscribe(bid, 1 << 20).unwrap();
        match input.recv(Some(LONG)).unwrap() {
            Some(InEvent::Refused { error, .. }) => {
                assert_eq!(error.to_string(), "the peer has no such buffer")
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(writer.subscribers(), 0);
}

#[test]
fn a_rule_may_withhold_the_policy_that_holds_publishers() {
    let mut rule = everybody(&["#"], &["a"]);
    rule.policies = vec![Policy::Drop];
    let broker = broker(vec![rule]);
    let mut writer = open(&broker, "a").unwrap();
    let (topic, why) = refusal(&mut subscriber(&broker, "a"));
    assert!(topic.as_deref() == Some("a") && why.ends_with("allowed: drop"), "{why}");
    let drops = Subscriber::builder().slow(SlowPolicy::Drop { max_lag_bytes: None }).ring_bytes(64 << 10);
    let mut drops = drops.connect(&broker.addr()).unwrap();
    drops.subscribe("a").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    writer.publish(b"x").unwrap();
    assert_eq!(next(&mut drops).2, b"x");
}

#[test]
fn observers_and_brokers_need_their_rights() {
    let broker = broker(vec![everybody(&["#"], &["#"])]);
    let error = Observer::connect(&broker.addr()).unwrap_err();
    let why = error.to_string();
    assert!(why.contains("may not observe the broker: it needs a rule with observe = true"), "{why}");
    // A broker without the right receives nothing; with it, it gets what it may read.
    let mut rules = vec![everybody(&["#"], &["open/#"])];
    let (mut first, mut second) = (self::broker(rules.clone()), BrokerConfig::default());
    second.broker.listen = own_addr();
    second.broker.upstream = vec![UpstreamSettings::new(&first.addr())];
    let second = Broker::start(second).unwrap();
    let mut writers = ["open/a", "secret/a"].map(|topic| open(&first, topic).unwrap());
    let mut all = subscriber(&second, "#");
    rules[0].chain = true;
    rules[0].observe = true;
    first.reload(&config(rules)).unwrap();
    Observer::connect(&first.addr()).unwrap().summary().unwrap();
    for writer in &mut writers {
        writer.publish(b"x").unwrap();
    }
    assert_eq!(next(&mut all).1, "open/a");
    assert_eq!(writers[1].subscribers(), 0);
}

#[test]
fn a_reload_cuts_off_who_lost_a_right_and_the_others_lose_nothing() {
    for merged in [false, true] {
        let mut before = config(vec![everybody(&["#"], &["#"])]);
        let mut rule = Rule::new("#".parse().unwrap());
        rule.ingest = if merged { Ingest::Merge } else { Ingest::Splice };
        before.broker.topics = vec![rule].into();
        let mut broker = Broker::start(before.clone()).unwrap();
        let mut writer = open(&broker, "stays").unwrap();
        let mut cut = open(&broker, "goes").unwrap();
        let (mut both, mut named) = (subscriber(&broker, "#"), subscriber(&broker, "goes"));
        for writer in [&mut writer, &mut cut] {
            writer.wait_subscribers(1, Some(LONG)).unwrap();
        }
        cut.wait_subscribers(2, Some(LONG)).unwrap();
        // Messages flow while the rules change.
        let flow = std::thread::spawn(move || {
            for n in 0..20_000_u32 {
                writer.publish_timeout(&n.to_le_bytes(), Some(LONG)).unwrap();
            }
            writer
        });
        let read = std::thread::spawn(move || {
            let mut refused = Vec::new();
            for n in 0..20_000_u32 {
                let (refusals, topic, bytes) = next(&mut both);
                refused.extend(refusals);
                assert_eq!((topic.as_str(), bytes), ("stays", n.to_le_bytes().to_vec()));
            }
            (both, refused)
        });
        let after = BrokerConfig {
            access: config(vec![everybody(&["#"], &["stays", "new"])]).access,
            ..before.clone()
        };
        broker.reload(&after).unwrap();
        let why = [refusal(&mut named).1, refusal(&mut named).1].join("\n");
        assert!(why.contains("does not let this end read the buffer"), "{why}");
        assert!(why.contains("may not subscribe to topic 'goes'"), "{why}");
        let _writer = flow.join().unwrap();
        let (mut both, _) = read.join().unwrap();
        // A right that is given later shows topics that exist already.
        cut.publish(b"again").unwrap();
        broker.reload(&before).unwrap();
        assert_eq!(next(&mut both).1, "goes");
        assert_eq!(next(&mut named).1, "goes");
    }
}

#[test]
fn a_publisher_that_loses_its_right_is_told_and_its_other_topics_go_on() {
    for merged in [false, true] {
        let mut before = config(vec![everybody(&["#"], &["#"])]);
        let mut rule = Rule::new("#".parse().unwrap());
        rule.ingest = if merged { Ingest::Merge } else { Ingest::Splice };
        before.broker.topics = vec![rule].into();
        let mut broker = Broker::start(before.clone()).unwrap();
        let publisher = Publisher::connect(&broker.addr()).unwrap();
        assert_eq!(publisher.next_event(Some(Duration::ZERO)), None, "events are wanted from here on");
        let options = || TopicOptions::default().ring_bytes(64 << 10);
        let mut goes = publisher.topic_with("goes", options()).unwrap();
        let mut stays = publisher.topic_with("stays", options()).unwrap();
        let mut reader = subscriber(&broker, "#");
        for (topic, bytes) in [(&mut goes, b"0"), (&mut stays, b"1")] {
            topic.publish(bytes).unwrap();
            assert_eq!(next(&mut reader).2, bytes);
        }
        let after = BrokerConfig { access: config(vec![everybody(&["stays"], &["#"])]).access, ..before };
        broker.reload(&after).unwrap();
        let refused = std::iter::from_fn(|| publisher.next_event(Some(LONG)))
            .find(|event| matches!(event, PublisherEvent::TopicRefused { .. }));
        let Some(PublisherEvent::TopicRefused { topic, code, reason }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((topic.as_str(), code), ("goes", RefuseCode::NotAllowed));
        assert!(reason.contains("may not publish topic 'goes'"), "{reason}");
        assert!(matches!(goes.publish(b"x"), Err(PublishError::Refused { .. })));
        stays.publish(b"2").unwrap();
        // The reader has lost no right, and is told of none.
        let (refusals, _, bytes) = next(&mut reader);
        assert_eq!((refusals, bytes), (Vec::new(), b"2".to_vec()));
    }
}
