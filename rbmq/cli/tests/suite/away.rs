//! Commands that receive topics which appeared while they were stopped.

use rbmq::{Publisher, TopicWriter};
use testkit::{LONG, until};

use crate::common::BrokerProcess;

/// A topic that the broker has, with a message in it.
fn published(publisher: &Publisher, topic: &str, message: &str) -> TopicWriter {
    let mut writer = publisher.topic(topic).unwrap();
    writer.publish(message.as_bytes()).unwrap();
    writer.flush(Some(LONG)).unwrap();
    writer
}

#[test]
fn the_command_receives_topics_that_appeared_while_it_was_stopped() {
    let broker = BrokerProcess::start();
    let publisher = Publisher::connect(&broker.addr).unwrap();
    let old = publisher.topic("y/old").unwrap();
    let sub = broker.sub("y/# --name n --hold 60");
    old.wait_subscribers(1, Some(LONG)).unwrap();
    sub.signal("TERM");
    sub.finish().good();
    until("the subscriber is gone", || old.subscribers() == 0);
    let _new = published(&publisher, "y/new", "new");
    broker.publish_all("y/closed", b"closed\n");
    let sub = broker.sub("y/# --name n --hold 60 --print-topic --count 2").finish().good();
    let mut lines: Vec<_> = sub.text().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["y/closed\tclosed", "y/new\tnew"]);
}
