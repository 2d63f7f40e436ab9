//! How much an address may have: a request beyond a quota is refused with the setting, resources that end are given back,
//! and the audit log has it.

use std::time::{Duration, Instant};

use access::AccessRule;
use rbmq::wire::RefuseCode;
use rbmq::{Publisher, ReceiveError, Subscriber, TopicOpenError, TopicOptions, TopicWriter};
use rbmq_broker::{Broker, BrokerConfig, Ingest, Rule};
use testkit::own_addr;

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(60);

fn config(merged: bool) -> BrokerConfig {
    let mut config = BrokerConfig::default();
    config.broker.listen = own_addr();
    config.broker.closed_linger_ms = 10;
    let mut rule = Rule::new("#".parse().unwrap());
    rule.ingest = if merged { Ingest::Merge } else { Ingest::Splice };
    config.broker.topics = vec![rule].into();
    config
}

fn open(publisher: &Publisher, topic: &str) -> Result<TopicWriter, TopicOpenError> {
    publisher.topic_with(topic, TopicOptions::default().ring_bytes(64 << 10))
}

fn refusal<T>(opened: Result<T, TopicOpenError>) -> String {
    match opened.err().expect("it is refused") {
        TopicOpenError::Refused { code: RefuseCode::Limit, reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// Tries until it is no refusal.
fn until_open(publisher: &Publisher, topic: &str) -> TopicWriter {
    let begin = Instant::now();
    loop {
        match open(publisher, topic) {
            Ok(writer) => return writer,
            Err(error) => assert!(begin.elapsed() < LONG, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn topics_beyond_the_quota_are_refused_and_ended_ones_are_given_back() {
    for merged in [false, true] {
        let mut config = config(merged);
        config.quotas.address_topics = Some(2);
        let mut broker = Broker::start(config.clone()).unwrap();
        let publishers = [0, 1].map(|_| Publisher::connect(&broker.addr()).unwrap());
        let first = open(&publishers[0], "a").unwrap();
        let _second = open(&publishers[1], "b").unwrap();
        let why = refusal(open(&publishers[1], "c"));
        assert_eq!(why, "address 127.0.0.1 has 2 topics; the limit (quotas.address_topics) is 2");
        first.close().unwrap();
        let _third = until_open(&publishers[0], "c");
        // A reload changes the limits for later requests, and takes nothing away.
        config.quotas.address_topics = Some(1);
        let reload = broker.reload(&config).unwrap();
        assert_eq!(reload.applied[0].name, "quotas.address_topics");
        assert!(refusal(open(&publishers[0], "d")).ends_with("(quotas.address_topics) is 1"));
        // Publishers that are gone have nothing.
        config.quotas.address_topics = Some(3);
        broker.reload(&config).unwrap();
        let _fourth = until_open(&publishers[0], "d");
        assert_eq!(broker.topics().len(), 3);
    }
}

#[test]
fn rings_filters_and_connections_have_quotas() {
    let mut config = config(false);
    config.quotas.address_ring_bytes = Some(100_000);
    config.quotas.address_patterns = Some(1);
    config.quotas.address_subscriptions = Some(3);
    config.quotas.address_connections = Some(2);
    let broker = Broker::start(config).unwrap();
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let _first = open(&publisher, "a").unwrap();
    let why = refusal(open(&publisher, "b"));
    assert!(
        why.contains("65536 bytes of rings, and asks for 65536 more; the limit (quotas.address_ring_bytes)"),
        "{why}"
    );
    let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
    for (filter, says) in [
        ("x/#", None),
        ("x/#", None),
        ("y/+", Some("1 patterns; the limit (quotas.address_patterns) is 1")),
        ("y", None),
        ("z", None),
        ("w", Some("3 subscriptions; the limit (quotas.address_subscriptions) is 3")),
    ] {
        subscriber.subscribe(filter).unwrap();
        match (subscriber.recv(Some(if says.is_some() { LONG } else { Duration::ZERO })), says) {
            (Err(ReceiveError::Refused { reason, .. }), Some(says)) => {
                assert!(reason.ends_with(says), "{reason}")
            }
            (Ok(None), None) => {}
            (other, _) => panic!("{filter}: {other:?}"),
        }
    }
    let error = Publisher::connect(&broker.addr()).unwrap_err().to_string();
    assert!(
        error.contains("address 127.0.0.1 has 2 connections; the limit (quotas.address_connections) is 2"),
        "{error}"
    );
    drop(subscriber);
    let begin = Instant::now();
    while let Err(error) = Subscriber::connect(&broker.addr()) {
        assert!(begin.elapsed() < LONG, "{error}");
    }
}

#[test]
fn the_audit_log_has_logins_refusals_and_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let mut config = config(false);
    config.audit.file = path.to_str().unwrap().into();
    let mut rule = AccessRule::for_user("*");
    (rule.publish, rule.subscribe) = (vec!["a/#".parse().unwrap()], vec!["#".parse().unwrap()]);
    config.access.rules = vec![rule];
    let mut broker = Broker::start(config.clone()).unwrap();
    let publisher = Publisher::builder().name("camera").connect(&broker.addr()).unwrap();
    let _writer = open(&publisher, "a/x").unwrap();
    open(&publisher, "b").unwrap_err();
    config.access.rules[0].publish = vec!["c".parse().unwrap()];
    broker.reload(&config).unwrap();
    assert!(broker.topics().is_empty());
    broker.stop();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["login", "refused", "reload", "rights", "cut"], "{text}");
    let of = |line: usize, field: &str| lines[line][field].as_str().unwrap_or_default();
    assert_eq!((of(0, "role"), of(0, "client"), of(0, "user")), ("publisher", "camera", ""));
    assert!(of(0, "address").starts_with("127.0.0.1:"));
    assert_eq!((of(1, "operation"), of(1, "topic")), ("publish", "b"));
    assert_eq!((of(4, "operation"), of(4, "topic")), ("publish", "a/x"));
}
