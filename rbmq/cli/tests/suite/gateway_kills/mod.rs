//! Clients of a broker with gateways that is killed, again and again, while they write and read, and while they leave in the middle of it.
//!
//! `GATEWAY_KILLS=500` kills so many brokers, `GATEWAY_SEED=7` draws other moments.

mod groups;
mod messages;
mod streams;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use testkit::{own_addr, until};

use crate::common::random;
use crate::gateways::metric;
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
    let (resp, http) = (own_addr(), own_addr());
    let more = format!(
        "[[broker.topics]]\npattern = 'k/#'\nkeep = true\n[http]\nlisten = '{http}'\n\
         [[gateway]]\nprotocol = 'resp'\nlisten = '{resp}'\n"
    );
    let mut site = Site::with(dir.path(), &more);
    let (mut subscriber, _) = site.client("subscriber");
    TOPICS.iter().for_each(|topic| subscriber.subscribe(topic, 2));
    drop(subscriber);
    let watch = Watch { http, seed, ..Watch::default() };
    let Results { written, read, qos, got } = work_while(&mut site, &resp, &random(seed, kills), &watch);
    // A session that is full loses messages, which would be a fault of this test.
    let dropped = watch.dropped.load(Ordering::Relaxed) + watch.dropped_now(&site.mqtt);
    assert_eq!(dropped, 0, "seed {seed}: the subscriber was too slow for its session");
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

/// What was acknowledged so far, and what has come.
#[derive(Default)]
struct Watch {
    seed: u64,
    /// Where the counters of the broker are.
    http: String,
    messages: AtomicU64,
    entries: AtomicU64,
    /// The messages that have PUBACK or PUBREC.
    acknowledged: Mutex<BTreeSet<usize>>,
    /// How many messages had no room in their session, of brokers that were killed.
    dropped: AtomicU64,
    /// A thread has failed: the others end too.
    has_failed: AtomicBool,
}

impl Watch {
    fn counts(&self) -> [u64; 2] {
        [&self.messages, &self.entries].map(|count| count.load(Ordering::Relaxed))
    }

    /// Waits until both gateways have acknowledged more than so much.
    fn wait_beyond(&self, before: [u64; 2]) {
        until("the gateways serve their clients", || {
            self.go_on();
            self.counts().iter().zip(&before).all(|(now, then)| now > then)
        });
    }

    /// Fails if another thread has.
    fn go_on(&self) {
        assert!(!self.has_failed.load(Ordering::Relaxed), "seed {}: another thread has failed", self.seed);
    }

    /// Does something that all threads wait for.
    fn over<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Told<'a>(&'a AtomicBool);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
            }
        }
        let _told = Told(&self.has_failed);
        work()
    }

    /// How many messages had no room in their session, of this broker.
    fn dropped_now(&self, mqtt: &str) -> u64 {
        let name = format!("rbmq_gateway_dropped_total{{gateway=\"mqtt:{mqtt}\"}}");
        // A broker that has just begun may not show its counters yet.
        TcpStream::connect(&self.http).ok().and_then(|_| metric(&self.http, &name)).unwrap_or_default()
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

/// Kills the broker while clients write, read, publish and receive.
fn work_while(site: &mut Site, resp: &str, moments: &[u8], watch: &Watch) -> Results {
    let (stop, is_written, qos) = (AtomicBool::new(false), AtomicBool::new(false), OnceLock::new());
    let (mqtt, stop, is_written, seed) = (&site.mqtt.clone(), &stop, &is_written, watch.seed);
    let all = &qos;
    std::thread::scope(|scope| {
        let publish = move || messages::publish_all(mqtt, stop, watch, Dice::new(seed));
        let publisher = scope.spawn(move || watch.over(publish));
        let receive = move || messages::receive_all(mqtt, all, watch, Dice::new(seed + 1));
        let subscriber = scope.spawn(move || watch.over(receive));
        let writers = [0, 1].map(|writer| {
            let write = move || streams::write_all(resp, writer, stop, watch, Dice::new(seed + 2 + writer));
            scope.spawn(move || watch.over(write))
        });
        let readers = [None, Some(7)].map(|count| {
            let read = move || streams::read_all(resp, count, is_written, watch, Dice::new(seed + 4));
            scope.spawn(move || watch.over(read))
        });
        watch.over(|| kill_at(site, moments, watch));
        stop.store(true, Ordering::Relaxed);
        let written = writers.map(|writer| writer.join().expect("a writer"));
        is_written.store(true, Ordering::Relaxed);
        let published = publisher.join().expect("a publisher");
        qos.set(published.clone()).expect("once");
        let read = readers.map(|reader| reader.join().expect("a reader"));
        Results { written, read, qos: published, got: subscriber.join().expect("a subscriber") }
    })
}

/// Kills the broker at these moments.
fn kill_at(site: &mut Site, moments: &[u8], watch: &Watch) {
    for (kill, moment) in moments.iter().enumerate() {
        // Each fourth time wherever the broker is with its start.
        if kill % 4 > 0 {
            watch.wait_beyond(watch.counts());
        }
        std::thread::sleep(Duration::from_millis(u64::from(*moment) / 2));
        if kill % 4 > 0 {
            watch.dropped.fetch_add(watch.dropped_now(&site.mqtt), Ordering::Relaxed);
        }
        site.kill();
    }
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
