//! The least number of subscribers that a confirmation needs: waiting publishers, killed brokers, and either end that comes back
//! first.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use rbmq::{
    ConfirmError, ConfirmLevel, Observer, PublishError, Publisher, StartFrom, Subscriber, TopicOptions,
    TopicWriter,
};
use rbmq_broker::{Broker, Ingest};
use testkit::{LONG, Process, broker_with, own_addr, rule, until};

use crate::common::{BrokerProcess, client, lines, piped};

const SHORT: Duration = Duration::from_millis(40);
/// The same holds over shared memory, which `auto` chooses on one machine.
const TRANSPORTS: [&str; 2] = ["tcp", "auto"];

fn topic(addr: &str, min_subscribers: u32) -> TopicWriter {
    let options = TopicOptions::default().min_subscribers(min_subscribers).keep_until_delivered(true);
    Publisher::connect(addr).unwrap().topic_with("t", options).unwrap()
}

fn subscriber(addr: &str, from: StartFrom) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).connect(addr).unwrap();
    subscriber.subscribe_from("t", from).unwrap();
    subscriber
}

fn broker() -> Broker {
    broker_with(|_| {})
}

/// Reads everything that comes soon, and releases it.
fn drain(subscriber: &mut Subscriber, count: usize) -> Vec<Vec<u8>> {
    let all = (0..count).map(|_| subscriber.recv(Some(LONG)).unwrap().unwrap().bytes.to_vec()).collect();
    assert!(subscriber.recv(Some(SHORT)).unwrap().is_none());
    all
}

#[test]
fn a_publisher_waits_while_there_are_too_few_subscribers_and_learns_why() {
    let broker = broker();
    let mut topic = topic(&broker.addr(), 2);
    let mut first = subscriber(&broker.addr(), StartFrom::Newest);
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    let error = topic.publish_timeout(b"early", Some(SHORT)).unwrap_err();
    assert!(matches!(error, PublishError::TooFewSubscribers { present: 1, wanted: 2, .. }), "{error}");
    assert_eq!(topic.position(), 0, "nothing of it is published");
    let addr = broker.addr();
    let joins = std::thread::spawn(move || {
        std::thread::sleep(SHORT);
        subscriber(&addr, StartFrom::Newest)
    });
    let position = topic.publish(b"for two").unwrap();
    let mut second = joins.join().unwrap();
    let confirmed = topic.confirm(position, ConfirmLevel::Delivered, Some(LONG)).unwrap();
    assert_eq!((confirmed.subscribers, confirmed.left), (2, 0));
    assert_eq!(drain(&mut first, 1), drain(&mut second, 1));
}

#[test]
fn data_under_way_is_kept_for_a_replacement() {
    let broker = broker();
    let mut topic = topic(&broker.addr(), 1);
    let only = subscriber(&broker.addr(), StartFrom::Newest);
    let first = topic.publish(b"unread").unwrap();
    topic.confirm(first, ConfirmLevel::Delivered, Some(LONG)).unwrap();
    // Unreleased messages leave with the subscriber.
    only.close_timeout(Some(LONG));
    until("the subscriber is gone", || topic.subscribers() == 0);
    let error = topic.confirm(first, ConfirmLevel::Consumed, Some(SHORT)).unwrap_err();
    assert!(matches!(error, ConfirmError::TimedOut { confirmed: 0, missing: 1, .. }), "{error}");
    let mut next = subscriber(&broker.addr(), StartFrom::Oldest);
    assert_eq!(drain(&mut next, 1), [b"unread"]);
    let confirmed = topic.confirm(first, ConfirmLevel::Consumed, Some(LONG)).unwrap();
    assert_eq!((confirmed.subscribers, confirmed.left), (1, 1));
    // A subscriber that begins behind a message does not have it, and the confirmation says so.
    let second = topic.publish(b"for nobody").unwrap();
    next.close_timeout(Some(LONG));
    until("the subscriber is gone", || topic.subscribers() == 0);
    let mut last = subscriber(&broker.addr(), StartFrom::Newest);
    let error = topic.confirm(second, ConfirmLevel::Consumed, Some(LONG)).unwrap_err();
    assert!(
        matches!(error, ConfirmError::TooFew { from, to, subscribers: 0, wanted: 1, .. } if (from, to) == (first, second)),
        "{error}"
    );
    let third = topic.publish(b"again").unwrap();
    assert_eq!(drain(&mut last, 1), [b"again"]);
    assert!(matches!(
        topic.confirm(third, ConfirmLevel::Consumed, Some(LONG)),
        Err(ConfirmError::TooFew { .. })
    ));
    assert_eq!(topic.accept_lost(ConfirmLevel::Consumed), Some((first, second)));
    assert_eq!(topic.confirm(third, ConfirmLevel::Consumed, Some(LONG)).unwrap().subscribers, 1);
}

#[test]
fn merged_topics_refuse_min_subscribers() {
    let broker = broker_with(|config| {
        config.broker.topics = vec![rule("t", |rule| rule.ingest = Ingest::Merge)].into();
    });
    let options = TopicOptions::default().min_subscribers(1);
    let error = Publisher::connect(&broker.addr()).unwrap().topic_with("t", options).unwrap_err();
    assert!(error.to_string().contains("min_subscribers"), "{error}");
}

/// Through brokers the subscribers at the ends count, and not the brokers.
#[test]
fn subscribers_at_the_ends_of_chains_count() {
    let first = BrokerProcess::start();
    let second = BrokerProcess::start_with(&["--upstream", &first.addr]);
    let mut topic = topic(&first.addr, 1);
    let error = topic.publish_timeout(b"early", Some(SHORT)).unwrap_err();
    assert!(matches!(error, PublishError::TooFewSubscribers { present: 0, .. }), "{error}");
    let mut end = subscriber(&second.addr, StartFrom::Oldest);
    let position = topic.publish_timeout(b"there", Some(LONG)).unwrap();
    assert_eq!(drain(&mut end, 1), [b"there"]);
    assert_eq!(topic.confirm(position, ConfirmLevel::Consumed, Some(LONG)).unwrap().subscribers, 1);
}

/// Two subscribers, whose applications read nothing at first. One loses messages again and again, and all losses are reported
/// before any more messages are consumed. The other subscriber has everything, and is enough.
fn one_loses_again_and_again(transport: &str) {
    let variables = [("ROCKETBUFS_TRANSPORT", transport)];
    let broker = BrokerProcess::start_in(&own_addr(), &[], &[("ROCKETBUFS_TRANSPORT", "auto")]);
    let start = |mut command: Command| {
        command.envs(variables);
        Process::start(command)
    };
    let blocks = start(client("sub", &broker.addr, "t --until-closed"));
    let args = "t --until-closed --policy drop --max-lag 8192 --ring-bytes 512k";
    let drops = start(client("sub", &broker.addr, args));
    let mut observer = Observer::connect(&broker.addr).unwrap();
    until("both are there", || observer.summary().unwrap().subscribers == 2);
    let args = "t --json --confirm consumed --min-subscribers 1 --wait-subscribers 2 --timeout 60";
    let mut publisher = start(piped(client("pub", &broker.addr, args)));
    let mut input = publisher.stdin();
    let mut sums = || {
        let topics = observer.topics(None).unwrap();
        topics.iter().fold((0, 0), |(received, dropped), row| {
            (received + row.received_bytes, dropped + row.dropped_bytes)
        })
    };
    let (mut published, mut received, mut lost) = (String::new(), 0, 0);
    // Until a pipe and a ring of two of the largest deliveries are full, and then more than it may lag each time. The newest delivery is no
    // lag, so a line follows each.
    for _ in 0..8 {
        while sums().1 == lost {
            for lines in [24, 1] {
                let part = format!("{}\n", "x".repeat(1000)).repeat(lines);
                input.write_all(part.as_bytes()).unwrap();
                published += &part;
                // A record of 1,000 bytes has four bytes before it.
                received += 1004 * lines as u64;
                // With all of it at the broker, the next loss is another one.
                until("the broker has it", || sums().0 == received);
            }
        }
        lost = sums().1;
    }
    drop(input);
    assert!(blocks.finish().good().text() == published, "the blocking subscriber has everything");
    assert!(drops.finish().text().len() < published.len(), "the other does not");
    let told: serde_json::Value = serde_json::from_str(&publisher.finish().good().text()).unwrap();
    let confirmed = &told["confirmed"];
    assert_eq!(confirmed["messages"], published.lines().count(), "{transport}: {told}");
    assert_eq!(
        (&confirmed["subscribers"], &confirmed["left"]),
        (&1.into(), &0.into()),
        "{transport}: {told}"
    );
    // How often, and not how many. Losses with nothing between them are one.
    assert!(confirmed["lost"].as_u64() >= Some(2), "{transport}: {told}");
}

#[test]
fn a_subscriber_with_repeated_losses_removes_no_other_from_the_count() {
    ["tcp", "shm"].into_iter().for_each(one_loses_again_and_again);
}

/// The end that comes back first after a broker was killed.
#[derive(Clone, Copy, PartialEq, Debug)]
enum First {
    Publisher,
    Subscriber,
}

/// A subscriber that writes slowly, a publisher with far more messages than the rings hold, and a broker that is killed while
/// both are stopped. The order in which both continue does not matter.
fn killed(first: First, transport: &str) {
    const LINES: usize = 40_000;
    let dir = tempfile::tempdir().unwrap();
    let variables = [("ROCKETBUFS_TRANSPORT", transport)];
    let start = |mut command: Command| {
        command.envs(variables);
        Process::start(command)
    };
    let broker = BrokerProcess::start_in(&own_addr(), &[], &variables);
    let addr = broker.addr.clone();
    let (input, out) = (dir.path().join("input"), dir.path().join("out"));
    let text = lines("line", LINES);
    std::fs::write(&input, &text).unwrap();
    let args = format!("t --until-closed --rate 1MB --ring-bytes 64k --output {}", out.display());
    let sub = start(client("sub", &addr, &args));
    let args = format!(
        "t --min-subscribers 1 --confirm delivered --ring-bytes 64k --json --timeout 60 --file {}",
        input.display()
    );
    let publisher = start(client("pub", &addr, &args));
    until("data flows", || std::fs::metadata(&out).is_ok_and(|file| file.len() > 0));
    let late = if first == First::Publisher { &sub } else { &publisher };
    late.signal("STOP");
    broker.process.signal("KILL");
    broker.process.finish();
    let again = BrokerProcess::start_in(&addr, &[], &variables);
    wait_for_the_first(&again.addr, first);
    late.signal("CONT");
    let told = publisher.finish().good().text();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["confirmed"]["messages"], LINES, "{told}");
    assert_eq!(told["confirmed"]["lost"], 0, "{told}");
    let said = sub.finish().good().stderr;
    assert!(!said.contains("lost"), "{first:?} over {transport}: {said}");
    crate::common::assert_same(&out, text.as_bytes());
}

/// Waits until the end that continues first is at the new broker, which then has all messages that it can have.
fn wait_for_the_first(addr: &str, first: First) {
    let mut observer = Observer::connect(addr).unwrap();
    until("the first is back", || {
        let summary = observer.summary().unwrap();
        match first {
            First::Publisher => summary.topics > 0,
            First::Subscriber => summary.subscribers > 0,
        }
    });
    // A publisher that nothing holds would have sent all that it has by then.
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn a_killed_broker_loses_nothing_if_the_publisher_is_back_first() {
    TRANSPORTS.iter().for_each(|transport| killed(First::Publisher, transport));
}

#[test]
fn a_killed_broker_loses_nothing_if_the_subscriber_is_back_first() {
    TRANSPORTS.iter().for_each(|transport| killed(First::Subscriber, transport));
}
