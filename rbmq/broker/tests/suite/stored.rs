//! Confirmations of the disk with real clients: what is confirmed as stored or synced, to whom, and what is refused.

use std::path::Path;
use std::time::Duration;

use rbmq::{ConfirmError, ConfirmLevel, Publisher, StartFrom, Subscriber, TopicOptions, TopicWriter};
use rbmq_broker::{Broker, BrokerConfig, Rule};
use testkit::own_addr;

/// The time for events that must come. The machine may be loaded.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// An hour: nothing is synced that nobody waits for.
const NEVER_MS: u64 = 3_600_000;

/// A broker that keeps `k/#`, and merges `m/#`.
fn config(dir: &Path, listen: &str) -> BrokerConfig {
    let mut kept = Rule::new("k/#".parse().unwrap());
    kept.keep = true;
    kept.ring_bytes = Some(256 << 10);
    let mut merged = Rule::new("m/#".parse().unwrap());
    merged.ingest = rbmq_broker::Ingest::Merge;
    let mut config = BrokerConfig::default();
    config.broker.listen = listen.into();
    config.broker.keep_dir = dir.to_str().unwrap().into();
    config.broker.keep_sync_ms = NEVER_MS;
    config.broker.topics = vec![kept, merged].into();
    config.validate().unwrap();
    config
}

fn broker(dir: &Path, listen: &str) -> Broker {
    Broker::start(config(dir, listen)).unwrap()
}

fn topic(publisher: &Publisher, name: &str) -> TopicWriter {
    publisher.topic_with(name, TopicOptions::default().ring_bytes(64 << 10)).unwrap()
}

/// The messages of a topic that a subscriber gets from the beginning.
fn read(at: &str, name: &str, count: usize) -> Vec<Vec<u8>> {
    let mut subscriber = Subscriber::connect(at).unwrap();
    subscriber.subscribe_from(name, StartFrom::Oldest).unwrap();
    (0..count).map(|_| subscriber.recv(LONG).unwrap().expect("a message").bytes).collect()
}

#[test]
fn what_is_on_the_disk_is_confirmed_at_each_level() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path(), &own_addr());
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    let mut writer = topic(&publisher, "k/a");
    assert_eq!(writer.confirmed(ConfirmLevel::Stored), 0);
    for round in 0..100u32 {
        let position = writer.publish(&round.to_le_bytes()).unwrap();
        let level = if round % 2 == 0 { ConfirmLevel::Stored } else { ConfirmLevel::Synced };
        let confirmed = writer.confirm(position, level, LONG).unwrap();
        assert_eq!((confirmed.level, confirmed.subscribers), (level, 0));
        assert!(confirmed.position >= position);
        assert!(writer.confirmed(ConfirmLevel::Synced) <= writer.confirmed(ConfirmLevel::Stored));
    }
    // Each answer says how far the other level is too.
    assert_eq!(writer.confirmed(ConfirmLevel::Synced), writer.position());
    let end = writer.position();
    assert!(matches!(
        writer.confirm(end + 1, ConfirmLevel::Stored, LONG),
        Err(ConfirmError::NotPublished { .. })
    ));
    let rounds: Vec<Vec<u8>> = (0..100u32).map(|round| round.to_le_bytes().to_vec()).collect();
    assert_eq!(read(&broker.addr(), "k/a", 100), rounds);
    assert_eq!(publisher.next_event(Some(Duration::ZERO)), None, "the disk did not fail");
}

/// Many publishers wait at a time, each for many positions and in any order.
#[test]
fn every_publisher_gets_every_answer() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path(), &own_addr());
    let addr = broker.addr();
    std::thread::scope(|scope| {
        for who in 0..4u32 {
            let addr = &addr;
            scope.spawn(move || {
                let publisher = Publisher::connect(addr).unwrap();
                let mut writer = topic(&publisher, if who < 3 { "k/shared" } else { "k/other" });
                let mut waiting = Vec::new();
                for n in 0..3_000u32 {
                    let position = writer.publish(&[7; 100]).unwrap();
                    let level = ConfirmLevel::ALL[(n as usize * 7 + who as usize) % 5];
                    waiting.push(writer.confirmation(position, level));
                    if n % 97 == who {
                        waiting.drain(..).rev().for_each(|one| assert!(one.wait(LONG).is_ok()));
                    }
                    if n % 61 == 0 {
                        // A confirmation that nobody waits for any more.
                        drop(waiting.pop().map(|one| one.try_get()));
                    }
                }
                waiting.into_iter().for_each(|one| assert!(one.wait(LONG).is_ok()));
                writer.close().unwrap();
            });
        }
    });
    assert_eq!(read(&addr, "k/shared", 9_000).len(), 9_000);
}

#[test]
fn topics_that_are_not_kept_refuse_the_question() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path(), &own_addr());
    let publisher = Publisher::connect(&broker.addr()).unwrap();
    for name in ["spliced", "m/merged"] {
        let mut writer = topic(&publisher, name);
        let position = writer.publish(b"only in memory").unwrap();
        for level in [ConfirmLevel::Stored, ConfirmLevel::Synced, ConfirmLevel::Stored] {
            let refused = writer.confirm(position, level, LONG).unwrap_err();
            assert!(
                matches!(refused, ConfirmError::NotStored { confirmed: 0, lost: false, .. }),
                "{refused:?}"
            );
            let text = refused.to_string();
            assert!(text.contains(&format!("will not be {level}")) && text.contains("keep = true"), "{text}");
        }
        writer.confirm(position, ConfirmLevel::Accepted, LONG).unwrap();
    }
}

/// Confirmations that wait while the broker is away come from the next one, which knows what is in its files.
#[test]
fn a_restarted_broker_confirms_what_its_predecessor_had_stored() {
    let dir = tempfile::tempdir().unwrap();
    let first = broker(dir.path(), &own_addr());
    let addr = first.addr();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut writer = topic(&publisher, "k/a");
    let early = writer.publish(b"early").unwrap();
    writer.confirm(early, ConfirmLevel::Accepted, LONG).unwrap();
    drop(first);
    let waiting: Vec<_> = [ConfirmLevel::Stored, ConfirmLevel::Synced]
        .map(|level| writer.confirmation(early, level))
        .into_iter()
        .collect();
    assert!(waiting.iter().all(|one| one.try_get().is_none()), "nobody said that it is stored");
    let late = writer.publish(b"late").unwrap();
    let synced = writer.confirmation(late, ConfirmLevel::Synced);
    assert!(synced.try_get().is_none());
    let second = broker(dir.path(), &addr);
    waiting.into_iter().for_each(|one| assert!(one.wait(LONG).is_ok()));
    assert!(synced.wait(LONG).unwrap().position >= late);
    assert_eq!(read(&addr, "k/a", 2), [b"early".to_vec(), b"late".to_vec()]);
    // The rule is gone with the next broker, and so is the answer.
    second.stop();
    let mut forgets = config(dir.path(), &addr);
    forgets.broker.topics = Vec::new().into();
    let _third = Broker::start(forgets).unwrap();
    let last = writer.publish(b"last").unwrap();
    let refused = writer.confirm(last, ConfirmLevel::Stored, LONG).unwrap_err();
    assert!(matches!(refused, ConfirmError::NotStored { .. } | ConfirmError::Lost { .. }), "{refused:?}");
    assert!(writer.confirmed(ConfirmLevel::Stored) >= late, "what was confirmed stays so");
}
