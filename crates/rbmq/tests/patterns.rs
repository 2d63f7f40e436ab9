//! Rules of topics, and subscriptions by pattern.

use rbmq::{Broker, BrokerConfig, Publisher, Rule, StartFrom, Subscriber, TopicOptions};

fn broker_with(change: impl FnOnce(&mut BrokerConfig)) -> Broker {
    let mut config = BrokerConfig::default();
    config.broker.listen = "127.0.0.1:0".into();
    change(&mut config);
    Broker::start(config).unwrap()
}

fn rule(pattern: &str, change: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule::new(pattern.parse().unwrap());
    change(&mut rule);
    rule
}

/// How many of the messages of 1,000 bytes that a topic was filled with are there for who comes later.
fn kept(broker: &Broker, topic: &str) -> usize {
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let options = TopicOptions { ring_bytes: Some(64 << 10), ..TopicOptions::default() };
    let mut writer = publisher.topic_with(topic, options).unwrap();
    for _ in 0..1000 {
        writer.publish(&[1; 1000]).unwrap();
    }
    writer.close().unwrap();
    let mut subscriber = Subscriber::connect(&broker.addr()).unwrap();
    subscriber.subscribe_from(topic, StartFrom::Oldest).unwrap();
    subscriber.into_iter().map(Result::unwrap).count()
}

#[test]
fn a_rule_says_how_large_a_ring_is_and_how_much_of_it_is_history() {
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
    assert_eq!(broker.memory_in_use() - before, 512 << 10, "the rule counts, not what was asked for");
    // Half of the ring; of it, as of any, the last few kilobytes more or less, as credit goes in steps.
    assert!((200..350).contains(&large), "{large}");
    let short = kept(&broker, "short/a");
    assert!(short < 100, "{short}");
    let other = kept(&broker, "other");
    assert!(other < 66, "{other}");
    assert_eq!(broker.memory_in_use() - before, 2 * (512 << 10) + (64 << 10));
}

#[test]
fn deliveries_that_a_rule_has_no_room_for_get_the_ring_that_they_need() {
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
