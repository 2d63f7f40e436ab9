//! Clients of a broker with gateways that is killed, again and again, while they write and read, and while they leave in the middle of it.
//!
//! `GATEWAY_KILLS=500` kills so many brokers, `GATEWAY_SEED=7` draws other moments.

mod messages;
mod streams;

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use testkit::{own_addr, until};

use crate::common::random;
use crate::mqtt_kills::Site;
use streams::{Key, Written};

/// What draws when clients leave.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end
    }

    /// True once in so many times.
    fn is_one_of(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The stream of XADD, and the topics of MQTT: in memory and on disk.
const STREAM: &str = "k/stream";
const TOPICS: [&str; 2] = ["t/a", "k/messages"];

#[test]
fn clients_of_a_broker_that_is_killed_have_what_they_were_told() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("GATEWAY_KILLS").unwrap_or(6) as usize;
    let seed = number("GATEWAY_SEED").unwrap_or(11);
    let dir = tempfile::tempdir().expect("a folder");
    let resp = own_addr();
    let more = format!(
        "[[broker.topics]]\npattern = 'k/#'\nkeep = true\n[[gateway]]\nprotocol = 'resp'\nlisten = '{resp}'\n"
    );
    let mut site = Site::with(dir.path(), &more);
    let (mut subscriber, _) = site.client("subscriber");
    TOPICS.iter().for_each(|topic| subscriber.subscribe(topic, 2));
    drop(subscriber);
    let Results { written, read, qos, got } = work_while(&mut site, &resp, &random(seed, kills), seed);
    // All of it is there for another process too.
    site.kill();
    let log = streams::whole(&resp, STREAM);
    let keys = check_written(seed, &log, &written);
    for read in read {
        assert!(read == keys, "seed {seed}: who waits for entries has read {} of {}", read.len(), keys.len());
    }
    messages::check(seed, &qos, &got, &streams::whole(&resp, TOPICS[1]));
    let answered: usize = written.iter().map(|one| one.answered.len()).sum();
    println!(
        "seed {seed}: {kills} kills, {} entries, {answered} of them answered, {} messages",
        keys.len(),
        qos.len()
    );
}

/// What was acknowledged so far, and how many messages have come.
#[derive(Default)]
struct Progress {
    received: AtomicU64,
    messages: AtomicU64,
    entries: AtomicU64,
}

impl Progress {
    fn counts(&self) -> [u64; 2] {
        [&self.messages, &self.entries].map(|count| count.load(Ordering::Relaxed))
    }

    /// Waits until both gateways have acknowledged more than so much.
    fn wait_beyond(&self, before: [u64; 2]) {
        until("the gateways serve their clients", || {
            self.counts().iter().zip(&before).all(|(now, then)| now > then)
        });
    }
}

/// What the clients know at the end.
struct Results {
    written: [Written; 2],
    read: [Vec<(streams::Id, Key)>; 2],
    /// The QoS of each message that was published.
    qos: Vec<u8>,
    /// How often each came.
    got: BTreeMap<usize, usize>,
}

/// Kills the broker at these moments, while clients write, read, publish and receive.
fn work_while(site: &mut Site, resp: &str, moments: &[u8], seed: u64) -> Results {
    let (stop, is_written, qos) = (AtomicBool::new(false), AtomicBool::new(false), OnceLock::new());
    let (mqtt, stop, is_written, progress) = (site.mqtt.clone(), &stop, &is_written, &Progress::default());
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| messages::publish_all(&mqtt, stop, progress, Dice::new(seed)));
        let subscriber = scope.spawn(|| messages::receive_all(&mqtt, &qos, progress, Dice::new(seed + 1)));
        let writers = [0, 1].map(|writer| {
            scope
                .spawn(move || streams::write_all(resp, writer, stop, progress, Dice::new(seed + 2 + writer)))
        });
        let readers = [None, Some(7)].map(|count| {
            scope.spawn(move || streams::read_all(resp, count, is_written, Dice::new(seed + 4)))
        });
        for (kill, moment) in moments.iter().enumerate() {
            // Each fourth time wherever the broker is with its start.
            if kill % 4 > 0 {
                progress.wait_beyond(progress.counts());
            }
            std::thread::sleep(Duration::from_millis(u64::from(*moment) / 2));
            site.kill();
        }
        stop.store(true, Ordering::Relaxed);
        let written = writers.map(|writer| writer.join().expect("a writer"));
        is_written.store(true, Ordering::Relaxed);
        let published = publisher.join().expect("a publisher");
        qos.set(published.clone()).expect("once");
        let read = readers.map(|reader| reader.join().expect("a reader"));
        Results { written, read, qos: published, got: subscriber.join().expect("a subscriber") }
    })
}

/// Each entry of the stream was written once, and is where its writer was told.
fn check_written(seed: u64, log: &[streams::Entry], written: &[Written]) -> Vec<(streams::Id, Key)> {
    let keys: Vec<_> = log.iter().map(|entry| (entry.id, entry.key())).collect();
    assert!(keys.windows(2).all(|two| two[0].0 < two[1].0), "seed {seed}: ids do not grow");
    let found: HashMap<Key, streams::Id> = keys.iter().map(|(id, key)| (*key, *id)).collect();
    assert_eq!(found.len(), keys.len(), "seed {seed}: an entry is there twice");
    for one in written {
        for (id, key) in &one.answered {
            assert_eq!(found.get(key), Some(id), "seed {seed}: an entry that was answered");
        }
        assert!(one.answered.windows(2).all(|two| two[0].0 < two[1].0), "seed {seed}: ids do not grow");
        for key in &one.cut {
            assert_eq!(found.get(key), None, "seed {seed}: half a command was executed");
        }
    }
    keys
}
