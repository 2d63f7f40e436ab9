//! The rights that a space needs.

use std::time::Duration;

use access::AccessRule;
use rbmq::wire::RefuseCode;
use rbmq::{Publisher, ReceiveError, Subscriber, TopicOpenError};
use rbmq_broker::BrokerConfig;
use testkit::{LONG, until};

use super::{broker, expected, next, received, settled, spacious, subscriber, text};

fn rights(publish: &[&str], subscribe: &[&str]) -> AccessRule {
    let mut rule = AccessRule::for_user("*");
    rule.publish = publish.iter().map(|pattern| pattern.parse().unwrap()).collect();
    rule.subscribe = subscribe.iter().map(|pattern| pattern.parse().unwrap()).collect();
    rule
}

fn refusal(subscriber: &mut Subscriber) -> String {
    match subscriber.recv(Some(LONG)) {
        Err(ReceiveError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_space_needs_the_right_to_all_of_it() {
    let all = |config: &mut BrokerConfig| config.access.rules = vec![rights(&["#"], &["#"])];
    let mut broker = spacious(all);
    let addr = broker.addr();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topic = publisher.topic("d/a").unwrap();
    let mut reader = subscriber(&addr, &["d/a"]);
    settled(&mut reader);
    topic.publish(b"1").unwrap();
    assert_eq!(text(&next(&mut reader)).1, "1");
    // A part of a space is not enough, neither to read nor to write.
    let mut config = broker.config().clone();
    config.access.rules = vec![rights(&["d/a", "e"], &["d/a", "e"])];
    broker.reload(&config).unwrap();
    let why = refusal(&mut reader);
    assert!(why.contains("not") || why.contains("refused"), "{why}");
    let until_refused = std::iter::from_fn(|| Some(topic.publish(b"2"))).find_map(Result::err).unwrap();
    assert!(
        until_refused.to_string().contains("may not publish everything of 'd/#', which is a space"),
        "{until_refused}"
    );
    match publisher.topic("d/a").unwrap_err() {
        TopicOpenError::Refused { code, reason, .. } => {
            assert_eq!(code, RefuseCode::NotAllowed);
            assert!(reason.contains("may not publish everything of 'd/#'"), "{reason}");
        }
        other => panic!("{other}"),
    }
    let mut named = subscriber(&addr, &["d/a"]);
    let why = refusal(&mut named);
    assert!(why.contains("may not subscribe to everything of 'd/#', which is a space"), "{why}");
    // A wider pattern gives what may be read.
    let mut wide = subscriber(&addr, &["#"]);
    settled(&mut wide);
    let mut own = publisher.topic("e").unwrap();
    own.publish(b"3").unwrap();
    assert_eq!(text(&next(&mut wide)), ("e".into(), "3".into()));
    // Rights that come back bring the log back.
    config.access.rules = vec![rights(&["d/#", "e"], &["d/#", "e"])];
    broker.reload(&config).unwrap();
    let mut topic = publisher.topic("d/b").unwrap();
    until("the log", || {
        topic.publish(b"4").unwrap();
        wide.recv(Some(Duration::from_millis(1)))
            .unwrap()
            .is_some_and(|message| message.topic.as_str() == "d/b")
    });
}

#[test]
fn who_reads_topics_of_earlier_rules_has_nothing_to_do_with_the_space() {
    let broker = spacious(|config| config.access.rules = vec![rights(&["#"], &["d/own/#"])]);
    let addr = broker.addr();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topics = ["d/temp", "d/own/temp"].map(|topic| publisher.topic(topic).unwrap());
    let mut own = subscriber(&addr, &["d/own/temp"]);
    topics.iter_mut().for_each(|topic| _ = topic.publish(b"1").unwrap());
    // A refusal would be an error.
    assert_eq!(received(&mut own, 1), expected(&[("d/own/temp", "1")]));
    topics.into_iter().for_each(|topic| topic.close().unwrap());
    until("the end", || own.recv(Some(Duration::from_millis(1))).unwrap().is_none() && own.ended());
}

#[test]
fn a_subscriber_of_a_topic_of_an_earlier_rule_does_not_get_the_log_of_the_space() {
    let broker = broker();
    let addr = broker.addr();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut topics = ["d/temp", "d/own/temp"].map(|topic| publisher.topic(topic).unwrap());
    let mut own = subscriber(&addr, &["d/own/temp"]);
    settled(&mut own);
    topics.iter_mut().for_each(|topic| _ = topic.publish(b"1").unwrap());
    assert_eq!(received(&mut own, 1), expected(&[("d/own/temp", "1")]));
    topics[1].wait_subscribers(1, Some(LONG)).unwrap();
    assert_eq!(topics.map(|topic| topic.subscribers()), [0, 1]);
}
