//! Topics that move between members while connections are cut, members stop, and the members' maps differ: a seed decides what happens.
//!
//! ```text
//!   publishers ──▶ proxies, which are cut ──▶ members, which stop and come back ◀── maps, which are late
//!       └── confirmed numbers ─────────── each once ─────────── logs of all members
//! ```
//!
//! No log has a message twice, and none is missing. In every other plan no connection is cut: then no message is in two logs either, and nothing
//! is reported as lost. A publisher that loses its broker and finds another one there does not know how far the former one was.
//!
//! A seed is a plan, and time is real. `MOVES_SEED=7 cargo test -p rbmq-broker --test suite moves::` repeats a plan, `MOVES_SEEDS=1000` runs more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rbmq::{ConfirmError, ConfirmLevel, Publisher, TopicWriter};
use rbmq_broker::{Broker, Owner, Parts};
use rocketbufs::Epoch;
use tempfile::TempDir;
use testkit::{Proxy, Random};

use super::cluster::{LONG, Table, config, options, subscribe};

const MEMBERS: usize = 3;
const TOPICS: [&str; 2] = ["k/one", "k/two"];
/// Steps of a plan.
const STEPS: u64 = 8;
/// Plans of a usual run.
const SEEDS: u64 = 2;

struct Member {
    /// None while it is stopped.
    broker: Option<Broker>,
    table: Arc<Table>,
    /// The way of its clients.
    proxy: Proxy,
    dir: TempDir,
    addr: String,
}

impl Member {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let addr = config(dir.path()).broker.listen;
        let mut member = Self { broker: None, table: Arc::default(), proxy: Proxy::to(&addr), dir, addr };
        member.start();
        member
    }

    fn start(&mut self) {
        let mut config = config(self.dir.path());
        config.broker.listen.clone_from(&self.addr);
        let parts = Parts { cluster: Some(self.table.clone()), ..Parts::default() };
        self.broker = Some(Broker::start_with(config, parts).unwrap());
    }

    fn tell(&self) {
        self.broker.iter().for_each(|broker| broker.watch().cluster_changed());
    }
}

struct World {
    random: Random,
    cuts: bool,
    members: Vec<Member>,
    /// The owner of each topic.
    owners: [Option<usize>; TOPICS.len()],
    term: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let members = (0..MEMBERS).map(|_| Member::new()).collect();
        let (random, cuts) = (Random::new(seed), !seed.is_multiple_of(2));
        let mut world = Self { random, cuts, members, owners: [None; TOPICS.len()], term: 0 };
        (0..TOPICS.len()).for_each(|topic| world.give(topic));
        world
    }

    fn some_member(&mut self) -> usize {
        self.random.below(MEMBERS as u64) as usize
    }

    /// Gives a topic to a member. The members learn of it one after the other.
    fn give(&mut self, topic: usize) {
        let to = self.some_member();
        self.owners[topic] = Some(to);
        self.publish_map(topic);
    }

    fn publish_map(&mut self, topic: usize) {
        self.term += 1;
        let first = self.some_member();
        for n in (first..first + MEMBERS).map(|n| n % MEMBERS) {
            let owner = match self.owners[topic] {
                Some(owner) if owner == n => Owner::Here { term: self.term },
                Some(owner) => Owner::Elsewhere { addresses: vec![self.members[owner].proxy.addr.clone()] },
                None => Owner::Unsettled { reason: "the plan says so".into() },
            };
            self.members[n].table.set(TOPICS[topic], owner);
            self.members[n].tell();
            self.pause();
        }
    }

    fn pause(&mut self) {
        let time = [0, 1, 5, 30][self.random.below(4) as usize];
        std::thread::sleep(Duration::from_millis(time));
    }

    fn step(&mut self) {
        let (topic, member) = (self.random.below(TOPICS.len() as u64) as usize, self.some_member());
        let what = self.random.below(if self.cuts { 8 } else { 6 });
        println!("step {what} of topic {topic} or member {member}; owners {:?}", self.owners);
        match what {
            0..3 => self.give(topic),
            3 => {
                self.owners[topic] = None;
                self.publish_map(topic);
            }
            4 => {
                // It is away from its topic for a moment.
                let owner = std::mem::take(&mut self.owners[topic]);
                self.publish_map(topic);
                self.owners[topic] = owner;
                self.publish_map(topic);
            }
            6 => {
                self.members[member].proxy.cut();
                if self.random.percent(50) {
                    self.give(topic);
                }
                self.pause();
                self.members[member].proxy.restore();
            }
            5 => {
                let stopping = self.members[member].broker.take();
                let stopping = std::thread::spawn(move || stopping.map(Broker::stop));
                if self.random.percent(50) {
                    self.give(topic);
                }
                stopping.join().unwrap();
                self.pause();
                self.members[member].start();
            }
            _ => self.members[member].proxy.interrupt(),
        }
        self.pause();
    }
}

/// Waits until all is confirmed, or what is not is accepted as lost, where that may be.
fn confirm(writer: &TopicWriter, level: ConfirmLevel, cuts: bool) {
    while let Err(error) = writer.confirm(writer.position(), level, Some(LONG)) {
        assert!(cuts && matches!(error, ConfirmError::Lost { .. }), "{error:?}");
        writer.accept_lost(level);
    }
}

/// Publishes numbers, and has them confirmed now and then.
fn publish(mut writer: TopicWriter, stop: Arc<AtomicBool>, cuts: bool) -> JoinHandle<(TopicWriter, u64)> {
    std::thread::spawn(move || {
        let mut count = 0_u64;
        while !stop.load(Ordering::Acquire) {
            writer.publish_timeout(&count.to_le_bytes(), Some(LONG)).unwrap();
            count += 1;
            if count.is_multiple_of(500) {
                confirm(&writer, ConfirmLevel::Stored, cuts);
            }
            if count.is_multiple_of(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        (writer, count)
    })
}

/// Reads the logs of a topic at each member, until all numbers are there and nothing more comes anywhere.
fn read_all(world: &World, topic: usize, count: u64) -> Vec<BTreeMap<Epoch, Vec<u64>>> {
    let mut readers: Vec<_> =
        world.members.iter().map(|member| subscribe(&member.addr, TOPICS[topic])).collect();
    let mut logs = vec![BTreeMap::<Epoch, Vec<u64>>::new(); readers.len()];
    let (mut seen, until) = (BTreeSet::new(), Instant::now() + LONG);
    loop {
        let is_all = seen.len() as u64 == count;
        let (wait, mut came) = (if is_all { 300 } else { 20 }, false);
        for (subscriber, here) in readers.iter_mut().zip(&mut logs) {
            while let Some(message) = subscriber.recv(Some(Duration::from_millis(wait))).unwrap() {
                let number = u64::from_le_bytes(message.bytes.as_slice().try_into().unwrap());
                here.entry(message.epoch).or_default().push(number);
                seen.insert(number);
                came = true;
            }
        }
        if !came && (is_all || Instant::now() > until) {
            return logs;
        }
    }
}

/// Checks the logs of a topic at all members.
fn check(world: &World, topic: usize, count: u64) {
    let mut logs = BTreeMap::<Epoch, Vec<u64>>::new();
    for here in read_all(world, topic, count) {
        for (epoch, numbers) in here {
            // Of the log of another member, the beginning may be there alone.
            let known = logs.entry(epoch).or_default();
            if known.len() < numbers.len() {
                *known = numbers;
            }
        }
    }
    for (epoch, numbers) in &logs {
        assert!(numbers.is_sorted_by(|a, b| a < b), "a number comes twice in the log {epoch}");
    }
    let mut all: Vec<u64> = logs.into_values().flatten().collect();
    all.sort_unstable();
    let twice: Vec<u64> = all.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
    assert!(world.cuts || twice.is_empty(), "in two logs: {} numbers from {:?}", twice.len(), twice.first());
    let missing: Vec<u64> = (0..count).filter(|number| all.binary_search(number).is_err()).collect();
    assert!(missing.is_empty(), "{} of {count} are missing, from {:?}", missing.len(), missing.first());
}

fn run(seed: u64) {
    println!("MOVES_SEED={seed}");
    let mut world = World::new(seed);
    let stop = Arc::<AtomicBool>::default();
    let home = world.some_member();
    let publisher = Publisher::connect(&world.members[home].proxy.addr).unwrap();
    let open = |topic| publisher.topic_with(topic, options()).unwrap();
    let writers = TOPICS.map(|topic| publish(open(topic), stop.clone(), world.cuts));
    (0..STEPS).for_each(|_| world.step());
    for topic in 0..TOPICS.len() {
        if world.owners[topic].is_none() {
            world.give(topic);
        }
    }
    stop.store(true, Ordering::Release);
    for (topic, writer) in writers.into_iter().enumerate() {
        let (writer, count) = writer.join().unwrap();
        confirm(&writer, ConfirmLevel::Stored, world.cuts);
        writer.close().unwrap();
        check(&world, topic, count);
    }
}

#[test]
fn seeds() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("MOVES_SEED") {
        Some(seed) => run(seed),
        None => (0..number("MOVES_SEEDS").unwrap_or(SEEDS)).for_each(run),
    }
}
