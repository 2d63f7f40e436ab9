//! A merged topic after a restart of its broker is another log: subscribers of the old log get the new one from its first byte.

use std::path::Path;

use rbmq::{Event, Notice, Publisher, StartFrom, Subscriber, TopicOptions, TopicWriter};
use rbmq_broker::{Broker, UpstreamSettings};
use rocketbufs::{Epoch, Position};
use testkit::{LONG, Proxy, broker_with, until};

use crate::common::BrokerProcess;

/// More messages than a merged topic's ring has room for.
const MANY: usize = 6000;

struct Merging {
    dir: tempfile::TempDir,
    broker: Option<BrokerProcess>,
    addr: String,
}

impl Merging {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(config(dir.path()), "[[broker.topics]]\npattern = \"#\"\ningest = \"merge\"\n")
            .unwrap();
        let broker = BrokerProcess::start_with(&["--config", &config(dir.path())]);
        let addr = broker.addr.clone();
        Self { dir, broker: Some(broker), addr }
    }

    fn restart(&mut self) {
        let broker = self.broker.take().unwrap();
        broker.process.signal("KILL");
        broker.process.finish();
        self.broker = Some(BrokerProcess::start_at(&self.addr, &["--config", &config(self.dir.path())]));
    }

    /// A publisher that had its one message received before this broker.
    fn publisher(&self) -> (Publisher, TopicWriter) {
        let publisher = Publisher::connect(&self.addr).unwrap();
        let options = TopicOptions::default().ring_bytes(65_536);
        let writer = publisher.topic_with("x", options).unwrap();
        (publisher, writer)
    }
}

fn config(dir: &Path) -> String {
    dir.join("rbmq.toml").to_str().unwrap().into()
}

fn publish(writer: &mut TopicWriter) {
    for n in 0..MANY {
        writer.publish(format!("{n:01000}").as_bytes()).unwrap();
    }
    writer.flush(Some(LONG)).unwrap();
}

/// Receives up to the last message. Returns the lost range, which must come first, and the first message.
fn all(subscriber: &mut Subscriber) -> ((Position, Position), usize) {
    let (mut lost, mut first) = (None, None);
    loop {
        match subscriber.next_event(Some(LONG)).unwrap().expect("more comes") {
            Event::Notice(Notice::Lost { from, to, .. }) => {
                assert!(lost.is_none() && first.is_none());
                lost = Some((from, to));
            }
            Event::Batch(batch) => {
                for bytes in batch.records() {
                    let number: usize = std::str::from_utf8(bytes).unwrap().parse().unwrap();
                    first = first.or(Some(number));
                    if number == MANY - 1 {
                        return (lost.expect("a loss is reported"), first.unwrap());
                    }
                }
            }
            _ => {}
        }
    }
}

fn check(subscriber: &mut Subscriber) {
    let ((from, to), first) = all(subscriber);
    assert_eq!(from, 0);
    assert!(to > first as u64 * 1000 && first > 0, "up to {to}, and then message {first}");
}

fn first_message(subscriber: &mut Subscriber, writer: &mut TopicWriter) {
    writer.publish(b"before").unwrap();
    assert_eq!(subscriber.recv(Some(LONG)).unwrap().unwrap().bytes, b"before");
}

/// More is published than is kept, by a broker that was restarted, while nothing passes the proxy.
fn misses(merging: &mut Merging, proxy: &Proxy, subscriber: &mut Subscriber) {
    let (publisher, mut writer) = merging.publisher();
    first_message(subscriber, &mut writer);
    proxy.cut();
    merging.restart();
    until("the publisher notices", || publisher.is_connected());
    publish(&mut writer);
    proxy.restore();
    check(subscriber);
}

/// The dead broker may have had messages that no process has now.
#[test]
fn a_log_that_replaces_a_merged_one_is_reported_each_time() {
    let mut merging = Merging::start();
    let (_publisher, mut writer) = merging.publisher();
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&merging.addr).unwrap();
    subscriber.subscribe_from("x", StartFrom::Oldest).unwrap();
    first_message(&mut subscriber, &mut writer);
    for _ in 0..2 {
        merging.restart();
        let (mut replaced, mut joined) = (None, None);
        while joined.is_none() {
            match subscriber.next_event(Some(LONG)).unwrap().expect("the new log begins") {
                Event::Notice(Notice::LogReplaced { topic, epoch }) => {
                    assert_eq!((topic.as_str(), replaced), ("x", None));
                    replaced = Some(epoch);
                }
                Event::Notice(Notice::Joined { epoch, .. }) => joined = Some(epoch),
                _ => {}
            }
        }
        assert_eq!(replaced, joined);
    }
}

#[test]
fn a_subscriber_that_returns_late_learns_its_losses() {
    let mut merging = Merging::start();
    let proxy = Proxy::to(&merging.addr);
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&proxy.addr).unwrap();
    subscriber.subscribe_from("x", StartFrom::Oldest).unwrap();
    misses(&mut merging, &proxy, &mut subscriber);
}

#[test]
fn a_restarted_subscriber_learns_its_losses_too() {
    let merging = Merging::start();
    let (_publisher, mut writer) = merging.publisher();
    publish(&mut writer);
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&merging.addr).unwrap();
    subscriber.subscribe_from("x", StartFrom::Positions(vec![(Epoch(1), 5)])).unwrap();
    check(&mut subscriber);
}

fn behind(addr: &str) -> Broker {
    broker_with(|config| config.broker.upstream = vec![UpstreamSettings::new(addr)])
}

#[test]
fn a_downstream_subscriber_learns_its_losses_too() {
    let mut merging = Merging::start();
    let proxy = Proxy::to(&merging.addr);
    let broker = behind(&proxy.addr);
    let mut subscriber = Subscriber::builder().until_ended(true).connect(&broker.addr()).unwrap();
    subscriber.subscribe_from("x", StartFrom::Oldest).unwrap();
    misses(&mut merging, &proxy, &mut subscriber);
}
