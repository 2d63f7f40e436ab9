//! The broker's rules for subscribers: allowed, refused and lowered options, each reported and each in force.

use std::time::Duration;

use rbmq::{
    Event, Notice, PublishError, Publisher, ReceiveError, SlowPolicy, Subscriber, SubscriberBuilder,
    TopicOptions, TopicWriter,
};
use rbmq_broker::{Broker, Rule};
use rocketbufs::Policy;
use testkit::{LONG, broker_with, rule, until};

const HOUR: Duration = Duration::from_secs(3600);

fn broker_of(rules: Vec<Rule>) -> Broker {
    broker_with(|config| config.broker.topics = rules.into())
}

/// A topic with small deliveries, so that its subscribers can have small rings.
fn topic(broker: &Broker, name: &str) -> TopicWriter {
    let options = TopicOptions::default().ring_bytes(64 << 10);
    Publisher::connect(&broker.addr()).unwrap().topic_with(name, options).unwrap()
}

fn subscriber(broker: &Broker, name: &str, builder: SubscriberBuilder) -> Subscriber {
    let mut subscriber = builder.ring_bytes(64 << 10).connect(&broker.addr()).unwrap();
    subscriber.subscribe(name).unwrap();
    subscriber
}

/// Publishes kilobytes. The error is that of the first message that found no room within `patience`.
fn fill(writer: &mut TopicWriter, kilobytes: usize, patience: Duration) -> Result<(), PublishError> {
    (0..kilobytes).try_for_each(|_| writer.publish_timeout(&[7; 1020], Some(patience)).map(drop))
}

/// The next notice that is `wanted`; messages and other notices are skipped.
fn notice<T>(subscriber: &mut Subscriber, mut wanted: impl FnMut(Notice) -> Option<T>) -> T {
    loop {
        if let Event::Notice(notice) = subscriber.next_event(Some(LONG)).unwrap().expect("something comes")
            && let Some(found) = wanted(notice)
        {
            return found;
        }
    }
}

fn clamped(notice: Notice) -> Option<String> {
    if let Notice::OptionClamped(text) = notice { Some(text) } else { None }
}

#[test]
fn a_policy_that_is_not_allowed_is_refused_with_the_allowed_ones() {
    let broker =
        broker_of(vec![rule("fast/#", |rule| rule.policies = vec![Policy::Drop, Policy::Disconnect])]);
    let (mut fast, mut other) = (topic(&broker, "fast/a"), topic(&broker, "other"));
    let drop_late = SlowPolicy::Drop { max_lag_bytes: None };
    let disconnect = SlowPolicy::Disconnect { max_lag_bytes: None };
    for (policy, allowed) in [(SlowPolicy::Block, false), (drop_late, true), (disconnect, true)] {
        let mut subscriber =
            subscriber(&broker, "fast/a", Subscriber::builder().until_ended(true).slow(policy));
        if allowed {
            fast.wait_subscribers(1, Some(LONG)).unwrap();
            fast.publish(b"x").unwrap();
            assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"x");
        } else {
            let error = subscriber.recv(Some(LONG)).unwrap_err();
            assert!(matches!(error, ReceiveError::Refused { topic: Some(_), .. }), "{error:?}");
            let why = error.to_string();
            assert!(why.contains("'fast/a'") && why.contains("allowed: drop, disconnect"), "{why}");
            assert_eq!(fast.subscribers(), 0);
        }
        drop(subscriber);
        until("the subscriber is gone", || fast.subscribers() == 0);
    }
    let mut subscriber = subscriber(&broker, "other", Subscriber::builder().until_ended(true));
    other.wait_subscribers(1, Some(LONG)).unwrap();
    other.publish(b"y").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"y");
}

#[test]
fn a_position_is_kept_no_longer_than_the_rule_allows() {
    let broker = broker_of(vec![rule("short", |rule| rule.max_hold_ms = Some(50))]);
    for (name, short) in [("short", true), ("long", false)] {
        let mut writer = topic(&broker, name);
        let mut subscriber =
            subscriber(&broker, name, Subscriber::builder().until_ended(true).durable("s", HOUR));
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        let told = notice(&mut subscriber, clamped);
        let kept = if short { "for 50ms" } else { "for 600s" };
        assert!(told.contains(&format!("topic '{name}'")) && told.contains(kept), "{told}");
        drop(subscriber);
        // The durable cursor holds the ring while it is kept.
        let filled = fill(&mut writer, 1000, if short { LONG } else { Duration::from_millis(300) });
        assert_eq!(filled.is_ok(), short, "{name}: {filled:?}");
    }
}

#[test]
fn an_offline_subscriber_with_drop_or_disconnect_blocks_no_publisher() {
    let broker = broker_of(Vec::new());
    let drop_late = SlowPolicy::Drop { max_lag_bytes: None };
    for (name, policy) in
        [("drop", drop_late), ("disconnect", SlowPolicy::Disconnect { max_lag_bytes: None })]
    {
        let mut writer = topic(&broker, name);
        let builder = || Subscriber::builder().until_ended(true).durable("s", HOUR).slow(policy);
        let away = subscriber(&broker, name, builder());
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        drop(away);
        until("the subscriber is gone", || writer.subscribers() == 0);
        fill(&mut writer, 1000, LONG).unwrap();
        // What is still on its way to the broker could be lost once more.
        writer.flush(Some(LONG)).unwrap();
        let mut back = subscriber(&broker, name, builder());
        let lost = notice(&mut back, |notice| match notice {
            Notice::Lost { from, to, .. } => Some(to - from),
            _ => None,
        });
        assert!(lost > 0 && back.recv(Some(LONG)).unwrap().is_some(), "{name}: {lost} bytes are lost");
    }
}

#[test]
fn a_lag_is_no_larger_than_the_rule_allows() {
    let large = |rule: &mut Rule| rule.ring_bytes = Some(1 << 20);
    let broker = broker_of(vec![
        rule("small", |rule| {
            large(rule);
            rule.max_lag_bytes = Some(8192);
        }),
        rule("#", large),
    ]);
    for (name, small) in [("small", true), ("large", false)] {
        let mut writer = topic(&broker, name);
        let builder =
            Subscriber::builder().until_ended(true).slow(SlowPolicy::Drop { max_lag_bytes: Some(400 << 10) });
        let mut subscriber = subscriber(&broker, name, builder);
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        fill(&mut writer, 300, LONG).unwrap();
        writer.close().unwrap();
        let (mut lost, mut told) = (0, None);
        notice(&mut subscriber, |notice| match notice {
            Notice::Lost { from, to, .. } => {
                lost += to - from;
                None
            }
            Notice::OptionClamped(text) => {
                told = Some(text);
                None
            }
            Notice::Closed { .. } => Some(()),
            _ => None,
        });
        assert_eq!(lost > 0, small, "{name}: {lost} bytes are lost");
        assert_eq!(told.is_some_and(|told| told.contains("at a lag of 8192 bytes, not of 409600")), small);
    }
}

#[test]
fn publishers_wait_for_a_subscriber_no_longer_than_the_rule_allows() {
    let broker = broker_of(vec![rule("short", |rule| rule.block_timeout_ms = Some(100))]);
    for (name, short) in [("short", true), ("long", false)] {
        let mut writer = topic(&broker, name);
        let builder = Subscriber::builder().until_ended(true).slow(SlowPolicy::BlockFor { timeout: None });
        let mut subscriber = subscriber(&broker, name, builder);
        writer.wait_subscribers(1, Some(LONG)).unwrap();
        let filled = fill(&mut writer, 1000, if short { LONG } else { Duration::from_millis(500) });
        assert_eq!(filled.is_ok(), short, "{name}: {filled:?}");
        if short {
            let told = notice(&mut subscriber, clamped);
            assert!(told.contains("for 100ms, not without a limit"), "{told}");
            let why = notice(&mut subscriber, |notice| match notice {
                Notice::Refused { reason, .. } => Some(reason),
                _ => None,
            });
            assert!(why.contains("too slow"), "{why}");
            // The subscriber read nothing. The reported lag has the bytes that it held, also those that were sent to it.
            let behind: u64 = why.split(' ').find_map(|word| word.parse().ok()).unwrap();
            assert!(behind >= 60_000, "{why}");
        }
    }
}
