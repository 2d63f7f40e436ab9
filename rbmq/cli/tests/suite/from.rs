//! Where subscribers begin: with the oldest, the last value, or at a time.

use std::io::{BufRead, Write};
use std::time::{Duration, SystemTime};

use rbmq::{Publisher, StartFrom, Subscriber, TopicWriter};
use rbmq_broker::{Broker, Ingest, UpstreamSettings};
use testkit::{LONG, Process, broker_with, rule, until};

use crate::common::{BrokerProcess, client, lines, piped};

fn subscriber(at: &Broker, topic: &str, from: StartFrom) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&at.addr()).unwrap();
    subscriber.subscribe_from(topic, from).unwrap();
    subscriber
}

fn topic(at: &Broker, name: &str) -> TopicWriter {
    Publisher::connect(&at.addr()).unwrap().topic(name).unwrap()
}

fn text(subscriber: &mut Subscriber) -> String {
    let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
    String::from_utf8(message.bytes).unwrap()
}

/// Publishes the values in turn, each after the previous one has arrived at `seen`.
fn publish_slowly(writer: &mut TopicWriter, seen: &mut Subscriber, values: &[&str]) {
    for value in values {
        writer.publish(value.as_bytes()).unwrap();
        assert_eq!(text(seen), *value);
    }
}

#[test]
fn a_late_joiner_gets_the_last_value_of_each_topic() {
    let broker = broker_with(|_| {});
    let mut writers = Vec::new();
    for name in ["s/a", "s/b"] {
        let mut early = subscriber(&broker, name, StartFrom::Oldest);
        let mut writer = topic(&broker, name);
        publish_slowly(&mut writer, &mut early, &["1", "2", name]);
        writers.push(writer);
    }
    let mut late = subscriber(&broker, "s/+", StartFrom::Last);
    let mut got = [text(&mut late), text(&mut late)];
    got.sort();
    assert_eq!(got, ["s/a", "s/b"]);
}

#[test]
fn the_last_value_passes_through_two_brokers() {
    let first = broker_with(|_| {});
    let second = broker_with(|config| config.broker.upstream = vec![UpstreamSettings::new(&first.addr())]);
    let mut early = subscriber(&second, "news", StartFrom::Newest);
    let mut writer = topic(&first, "news");
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    publish_slowly(&mut writer, &mut early, &["1", "2", "3"]);
    for at in [&second, &first] {
        let mut late = subscriber(at, "news", StartFrom::Last);
        assert_eq!(text(&mut late), "3");
        writer.publish(b"next").unwrap();
        assert_eq!(text(&mut late), "next");
        assert_eq!(text(&mut early), "next");
        publish_slowly(&mut writer, &mut early, &["3"]);
    }
}

#[test]
fn a_broker_that_comes_late_has_the_last_value_too() {
    let first = broker_with(|_| {});
    let mut early = subscriber(&first, "news", StartFrom::Oldest);
    let mut writer = topic(&first, "news");
    publish_slowly(&mut writer, &mut early, &["1", "2", "3"]);
    let second = broker_with(|config| config.broker.upstream = vec![UpstreamSettings::new(&first.addr())]);
    until("the topic is there", || second.topics().iter().any(|topic| topic.subscribers == 0));
    // All values came to the second broker at once, so earlier values may come too. The last one comes last.
    let mut late = subscriber(&second, "news", StartFrom::Last);
    while text(&mut late) != "3" {}
}

#[test]
fn publishers_of_a_merged_topic_share_a_last_value() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("m/#", |rule| rule.ingest = Ingest::Merge)].into();
    });
    let mut early = subscriber(&broker, "m/all", StartFrom::Oldest);
    let mut writers = [topic(&broker, "m/all"), topic(&broker, "m/all")];
    publish_slowly(&mut writers[0], &mut early, &["1", "2"]);
    publish_slowly(&mut writers[1], &mut early, &["3", "4"]);
    let mut late = subscriber(&broker, "m/all", StartFrom::Last);
    assert_eq!(text(&mut late), "4");
    publish_slowly(&mut writers[0], &mut early, &["5"]);
    assert_eq!(text(&mut late), "5");
}

/// Publishes a value, and more values later. A subscriber that begins in between gets the later ones only.
fn begins_in_between(broker: &Broker, name: &str) {
    let mut early = subscriber(broker, name, StartFrom::Oldest);
    let mut writer = topic(broker, name);
    publish_slowly(&mut writer, &mut early, &["long ago"]);
    drop(early);
    std::thread::sleep(Duration::from_secs(2));
    let between = Duration::from_secs(1);
    loop {
        writer.publish(b"now").unwrap();
        let mut late = subscriber(broker, name, StartFrom::Time(SystemTime::now() - between));
        // On a machine that is very busy it may be long ago by the time it is asked for.
        if let Some(message) = late.recv(Some(Duration::from_secs(1))).unwrap() {
            assert_eq!(message.bytes, b"now");
            break;
        }
    }
    let mut all = subscriber(broker, name, StartFrom::Time(SystemTime::UNIX_EPOCH));
    assert_eq!(text(&mut all), "long ago");
}

#[test]
fn a_late_joiner_gets_the_messages_since_a_time() {
    begins_in_between(&broker_with(|_| {}), "news");
}

#[test]
fn a_merged_topic_has_times_too() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("m/#", |rule| rule.ingest = Ingest::Merge)].into();
    });
    begins_in_between(&broker, "m/all");
}

#[test]
fn a_time_has_two_forms_and_others_are_refused() {
    let broker = BrokerProcess::start();
    let kept = broker.publish("news", b"one\ntwo\n");
    kept.finish().good();
    for from in ["-1h", "2001-01-01T00:00:00Z"] {
        let sub = broker.sub(&format!("news --until-closed --from {from}"));
        assert_eq!(sub.finish().good().text(), "one\ntwo\n", "{from}");
    }
    for from in ["-1parsec", "2001-13-01T00:00:00Z", "-"] {
        let outcome = broker.sub(&format!("news --from {from}")).finish();
        assert!(!outcome.status.success() && outcome.stderr.contains("is not a time"), "{}", outcome.stderr);
    }
}

#[test]
fn an_unknown_log_and_a_future_time_are_reported() {
    let broker = BrokerProcess::start();
    (0..3).for_each(|_| broker.publish_all("x", b"1\n"));
    let sub = broker.sub("x --from ab:7 --until-closed").finish().good();
    assert_eq!(sub.text(), "1\n1\n1\n");
    let expected = format!(
        "the broker has no log with epoch {:032x}; other logs begin with their oldest message\n",
        0xab
    );
    assert_eq!(sub.stderr, format!("rbmq: --from: {expected}"));
    let json = broker.sub("x --from oldest --count 1 --json").finish().good().text();
    let (_, epoch) = json.split_once("\"epoch\":\"").unwrap();
    let known = broker.sub(&format!("x --from {}:0 --until-closed", &epoch[..32])).finish().good();
    assert_eq!((known.text().as_str(), known.stderr.as_str()), ("1\n1\n1\n", ""));

    let sub = broker.sub("x --from 9999-01-01T00:00:00Z --until-closed").finish().good();
    assert!(sub.stderr.contains("this time is in the future"), "{}", sub.stderr);
}

#[test]
fn many_publishers_of_a_topic_are_one_warning() {
    let broker = BrokerProcess::start();
    (0..5).for_each(|_| broker.publish_all("x", b"1\n"));
    // A record of one byte is five long.
    let told = broker.sub("x --from 5 --until-closed").finish().good().stderr;
    assert_eq!(told.matches("no message follows position 5").count(), 1, "{told}");
    // A process that connects so slowly that a log may have ended in between does not get the notice.
    let told = broker.sub("x --until-closed").finish().good().stderr;
    assert!(told.matches("was closed before you subscribed").count() <= 1, "{told}");
}

#[test]
fn the_command_begins_with_the_last_line() {
    let broker = BrokerProcess::start();
    let mut early = broker.sub("chat");
    let mut publisher = Process::start(piped(client("pub", &broker.addr, "chat --wait-subscribers 1")));
    let (mut input, mut output) = (publisher.stdin(), early.stdout());
    for text in ["one\n", "two\n", "three\n"] {
        input.write_all(text.as_bytes()).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, text);
    }
    let late = broker.sub("chat --from last --count 1");
    assert_eq!(late.finish().good().text(), "three\n");
}

#[test]
fn a_subscriber_from_the_oldest_learns_the_bytes_not_kept() {
    let broker = BrokerProcess::start();
    let many = lines("line", 60_000);
    broker.publish_all("s/long", many.as_bytes());
    for n in 0..4 {
        broker.publish_all(&format!("s/{n} --ring-bytes 64k"), lines("line", 20_000).as_bytes());
    }
    broker.publish_all("short", b"one\n");
    let long = broker.sub("s/long --from oldest --until-closed").finish().good();
    let (first, told) = (long.text(), long.stderr);
    assert!(first.len() < many.len() && many.ends_with(&first), "{} of {}", first.len(), many.len());
    let lost = (many.len() + 3 * 60_000) - (first.len() + 3 * first.lines().count());
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(
        told.contains(&format!("topic 's/long': begins at position {lost}: the broker no longer")),
        "{told}"
    );
    assert_eq!(broker.sub("short --from oldest --until-closed").finish().good().stderr, "");
    // Of many the first few are named.
    let mut command = client("sub", &broker.addr, "s/# --from oldest");
    command.stdout(std::process::Stdio::null());
    let mut all = Process::start(command);
    let mut told = all.stderr().lines().map(Result::unwrap);
    for line in told.by_ref().take(3) {
        assert!(line.contains("begins at position"), "{line}");
    }
    // In one line, or in two if the broker took its time.
    let more = |line: String| -> usize {
        let count = line.strip_prefix("rbmq: ").and_then(|line| {
            line.strip_suffix(" more logs begin late: the broker no longer has their earlier messages")
        });
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let mut others = 0;
    while others < 2 {
        others += more(told.next().expect("the topic continues"));
    }
    assert_eq!(others, 2);
}
