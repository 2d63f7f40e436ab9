//! Merged topics (`ingest = "merge"`) over a kill of their broker.

use rbmq::{ConfirmLevel, Publisher, StartFrom, Subscriber, TopicOptions};
use testkit::{LONG, until};

use crate::common::BrokerProcess;

fn tiny() -> TopicOptions {
    TopicOptions::default().ring_bytes(16 << 10).open_timeout(Some(LONG))
}

fn subscriber(addr: &str, topic: &str) -> Subscriber {
    let mut subscriber = Subscriber::builder().until_ended(true).connect(addr).unwrap();
    subscriber.subscribe_from(topic, StartFrom::Oldest).unwrap();
    subscriber
}

/// A record with its publisher and its number.
fn record(who: u32, which: u32) -> Vec<u8> {
    let mut bytes = [who.to_le_bytes(), which.to_le_bytes()].concat();
    bytes.resize(8 + (who as usize * 7 + which as usize) % 50, 0xaa);
    bytes
}

#[test]
fn a_restarted_broker_receives_kept_records_of_publishers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rbmq.toml");
    std::fs::write(&file, "[[broker.topics]]\npattern = \"#\"\ningest = \"merge\"\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let first = BrokerProcess::start_with(&config);
    let addr = first.addr.clone();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut writer = publisher.topic_with("x", tiny()).unwrap();
    let mut receiver = subscriber(&addr, "x");
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    for which in 0..100 {
        writer.publish(&record(1, which)).unwrap();
    }
    writer.flush(Some(LONG)).unwrap();
    first.process.signal("KILL");
    first.process.finish();
    until("the publisher notices", || !publisher.is_connected());
    for which in 100..150 {
        writer.publish(&record(1, which)).unwrap();
    }
    let _second = BrokerProcess::start_at(&addr, &config);
    // Messages that the old broker accepted come from it or not at all. All later messages come in order, perhaps with some earlier
    // ones.
    let mut last = None;
    while last != Some(149) {
        let message = match receiver.recv(Some(LONG)) {
            Ok(message) => message.expect("more comes"),
            // The old log is over, and its messages are not known in the new log.
            Err(_) => continue,
        };
        let which = u32::from_le_bytes(message.bytes[4..8].try_into().unwrap());
        assert!(
            last.is_none_or(|last| which == last + 1 || (last < 100 && which <= 100)),
            "{last:?}, {which}"
        );
        last = Some(which);
    }
}

/// Messages that only the broker had, and that their publisher keeps, are not lost with the broker.
#[test]
fn data_kept_until_delivered_survives_the_broker_of_a_merged_topic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rbmq.toml");
    std::fs::write(&file, "[[broker.topics]]\npattern = \"#\"\ningest = \"merge\"\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let mut broker = BrokerProcess::start_with(&config);
    let addr = broker.addr.clone();
    let publisher = Publisher::connect(&addr).unwrap();
    let options = tiny().keep_until_delivered(true);
    let mut writer = publisher.topic_with("x", options).unwrap();
    // The subscriber has no connection, so no message counts as delivered.
    let mut absent = Subscriber::builder().until_ended(true).durable("slow", LONG).connect(&addr).unwrap();
    absent.subscribe("x").unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let mut last = 0;
    for which in 0..100 {
        last = writer.publish(&record(1, which)).unwrap();
    }
    writer.confirm(last, ConfirmLevel::Accepted, Some(LONG)).unwrap();
    broker.process.signal("KILL");
    until("the broker is dead", || !broker.process.is_running());
    drop(absent);
    until("the publisher notices", || !publisher.is_connected());
    broker = BrokerProcess::start_at(&addr, &config);
    let mut receiver = Subscriber::builder().until_ended(true).connect(&addr).unwrap();
    receiver.subscribe_from("x", StartFrom::Oldest).unwrap();
    for which in 0..100 {
        let message = receiver.recv(Some(LONG)).unwrap().unwrap();
        assert_eq!(message.bytes[4..8], u32::to_le_bytes(which));
    }
    let confirmed = writer.confirm(last, ConfirmLevel::Delivered, Some(LONG)).unwrap();
    assert_eq!((confirmed.position, confirmed.lost), (last, 0));
    drop(broker);
}
