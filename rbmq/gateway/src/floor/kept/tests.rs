//! Entries of kept topics, on their way into the log of a broker in this process.

use std::time::{Duration, Instant};

use rbmq::Publisher;
use rbmq_broker::{Broker, BrokerConfig, KeptBatch, KeptRead, Rule};
use rbmq_wire::{Records, Runs, TopicName};
use rocketbufs::Position;
use tempfile::TempDir;

use super::super::bus::Topics;
use super::super::logs::LogNews;
use super::super::openings::Side;
use super::super::wake::Bell;
use crate::protocol::{Bus as _, ConnId, Logs as _, PublishError, Ticket};

const LONG: Duration = Duration::from_secs(60);

/// The number of an entry, and its position and time.
type Fate = (u64, Result<(Position, u64), String>);

/// A broker that keeps `k/#`, and the topics of a gateway in its process.
struct Site {
    topics: Topics,
    _broker: Broker,
    _dir: TempDir,
}

impl Site {
    fn new(max_message_bytes: u64) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut config = BrokerConfig::default();
        config.broker.listen = "127.0.0.1:0".into();
        config.broker.keep_dir = dir.path().to_str().expect("a text").into();
        let mut rule = Rule::new("k/#".parse().expect("a filter"));
        rule.keep = true;
        config.broker.topics = vec![rule].into();
        let broker = Broker::start(config).expect("a broker starts");
        let (gate, bell) = (broker.gate().expect("a gate"), Bell::new().expect("a descriptor"));
        let publisher = Publisher::connect(&broker.addr()).expect("the broker listens");
        let ringer = bell.clone();
        let kept = gate.kept_topics(move || ringer.ring());
        let side = Side::Inside { kept, gate, bell };
        let topics = Topics::open(publisher, &[], Vec::new(), max_message_bytes, side).expect("no space");
        Self { topics, _broker: broker, _dir: dir }
    }

    /// Publishes an entry, and waits for room.
    fn append(&mut self, topic: &TopicName, payload: &[u8], number: u64) {
        let ticket = Ticket { conn: ConnId(7), number };
        let until = Instant::now() + LONG;
        while let Err(error) = self.topics.append(topic, &[], payload, ticket) {
            assert_eq!(error, PublishError::Full);
            assert!(Instant::now() < until, "there is room one day");
            self.topics.flush();
            self.topics.take_events();
            self.topics.take_missing();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What becomes of the next entries, in order.
    fn stored(&mut self, count: usize) -> Vec<Fate> {
        let (mut stored, until) = (Vec::new(), Instant::now() + LONG);
        while stored.len() < count {
            assert!(Instant::now() < until, "{} of {count}", stored.len());
            self.topics.flush();
            for news in self.topics.take_log_news() {
                if let LogNews::Stored(ticket, place) = news {
                    stored.push((ticket.number, place));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        stored
    }

    fn batch(&mut self, topic: &TopicName, position: Position) -> KeptBatch {
        self.topics.read_in_place();
        match self.topics.read_log(topic, position) {
            Ok(KeptRead::Batch(batch)) => batch,
            other => panic!("{other:?}"),
        }
    }
}

fn name(topic: &str) -> TopicName {
    topic.parse().expect("a name")
}

/// The positions and contents of the records of a delivery.
fn records(batch: &KeptBatch) -> Vec<(Position, Vec<u8>)> {
    let (mut runs, mut found) = (Runs::new(batch.bytes()), Vec::new());
    while let Some(run) = runs.next() {
        let begin = batch.position() + (runs.offset() - run.bytes.len()) as u64;
        let mut records = Records::new(run.bytes);
        loop {
            let at = begin + records.offset() as u64;
            let Some(record) = records.next() else { break };
            found.push((at, record.to_vec()));
        }
    }
    found
}

#[test]
fn entries_of_a_round_are_one_delivery_and_each_knows_its_place() {
    let (mut site, topic) = (Site::new(1 << 20), name("k/a"));
    // The topic is open, and its log is there.
    site.append(&topic, b"first", 0);
    site.stored(1);
    for number in 1..=100 {
        site.append(&topic, format!("entry {number}").as_bytes(), number);
        let other = format!("message {number}");
        site.topics.publish(&topic, &[], other.as_bytes()).expect("there is room");
    }
    let stored = site.stored(100);
    let places: Vec<_> = stored.iter().map(|(_, place)| place.clone().expect("it is stored")).collect();
    let batch = site.batch(&topic, places[0].0);
    let found = records(&batch);
    let expected = (1..=100).flat_map(|n| [format!("entry {n}"), format!("message {n}")]);
    assert!(found.iter().map(|(_, text)| text.clone()).eq(expected.map(String::into_bytes)));
    for (n, ((number, _), (position, time_ms))) in stored.iter().zip(&places).enumerate() {
        assert_eq!((*number, *position, *time_ms), (n as u64 + 1, found[2 * n].0, batch.time_ms()));
    }
}

/// Small entries, large ones that go alone, and more than a ring or a batch has.
#[test]
fn entries_of_all_sizes_keep_their_order() {
    let (mut site, topic) = (Site::new(250_000), name("k/a"));
    let sizes = [10, 5000, 100, 250_000, 3, 4096, 4097, 200_000, 0, 64];
    let payload = |number: u64| vec![number as u8; sizes[number as usize % sizes.len()]];
    for number in 0..200 {
        site.append(&topic, &payload(number), number);
    }
    let stored = site.stored(200);
    let mut last = None;
    for (n, (number, place)) in stored.into_iter().enumerate() {
        let (position, _) = place.expect("it is stored");
        assert!(number == n as u64 && last < Some(position), "{number} {position}");
        let batch = site.batch(&topic, position);
        assert!(records(&batch).contains(&(position, payload(number))), "{number}");
        last = Some(position);
    }
    let too_large = site.topics.append(&topic, &[], &vec![0; 250_001], Ticket { conn: ConnId(7), number: 0 });
    assert_eq!(too_large, Err(PublishError::TooLarge { most: 250_000 }));
}

#[test]
fn each_entry_of_a_topic_that_is_closed_is_told() {
    let (mut site, topic) = (Site::new(1 << 20), name("k/a"));
    for number in 0..10 {
        site.append(&topic, b"entry", number);
    }
    site.topics.close(&topic, "it was closed");
    for (n, (number, place)) in site.stored(10).into_iter().enumerate() {
        assert_eq!((number, place), (n as u64, Err("it was closed".to_owned())));
    }
    // It is opened anew, and what was gathered before is not there.
    site.append(&topic, b"another", 10);
    let (position, _) = site.stored(1)[0].1.clone().expect("it is stored");
    assert_eq!(records(&site.batch(&topic, position)), [(position, b"another".to_vec())]);
    assert!(site.topics.is_flushed());
}

/// Others that are blocked, and wait for their entries, are left alone.
#[test]
fn there_is_room_again_for_those_that_have_found_none() {
    let (mut site, topic) = (Site::new(1 << 20), name("k/a"));
    for number in 0..500 {
        site.append(&topic, b"entry", number);
        site.topics.flush();
        assert!(!site.topics.take_events());
    }
    let (entry, ticket) = (vec![b'x'; 64 << 10], Ticket { conn: ConnId(7), number: 500 });
    let until = Instant::now() + LONG;
    while site.topics.append(&topic, &[], &entry, ticket).is_ok() {
        assert!(Instant::now() < until, "the disk is faster");
    }
    loop {
        while !site.topics.take_events() {
            assert!(Instant::now() < until, "there is no room");
            std::thread::sleep(Duration::from_millis(1));
        }
        if site.topics.append(&topic, &[], &entry, ticket).is_ok() {
            break;
        }
    }
}
