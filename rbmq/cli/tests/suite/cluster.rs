//! Three brokers that are one cluster, with the etcd of the system: brokers and members of etcd are killed, stopped and started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rbmq::{ConfirmError, ConfirmLevel, Publisher, ReceiveError, StartFrom, Subscriber, TopicWriter};
use rbmq_cluster::Keys;
use rbmq_cluster::etcd::{Change, Client, ClientSettings, Txn};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Etcd, LONG, Outcome, Process, awaited, own_addr, until};

use crate::common::{BrokerProcess, rbmq};
use crate::http;

const TOPICS: usize = 12;

struct World {
    folder: TempDir,
    etcd: Etcd,
    brokers: Vec<Broker>,
}

struct Broker {
    config: PathBuf,
    addr: String,
    http: String,
    process: Option<BrokerProcess>,
}

impl Broker {
    /// `kept`: more of the rule, and other sections.
    fn new(folder: &Path, n: usize, etcd: &Etcd, on_loss: &str, kept: &str) -> Self {
        let (addr, http) = (own_addr(), own_addr());
        let (config, keep) = (folder.join(format!("{n}.toml")), folder.join(format!("kept-{n}")));
        let text = format!(
            "[broker]\nkeep_dir = '{}'\nkeep_sync_ms = 10\ndrain_timeout_ms = '1h'\n[[broker.topics]]\npattern = 'k/#'\nkeep = true\n{kept}\n\
             [http]\nlisten = '{http}'\n[cluster]\nname = 'test'\nid = 'm{n}'\nttl_ms = '5s'\n\
             group_levels = 2\non_loss = '{on_loss}'\netcd = {:?}\n",
            keep.display(),
            etcd.endpoints(),
        );
        std::fs::write(&config, text).unwrap();
        let mut broker = Self { config, addr, http, process: None };
        broker.run();
        broker
    }

    fn run(&mut self) {
        self.process =
            Some(BrokerProcess::start_at(&self.addr, &["--config", self.config.to_str().unwrap()]));
    }

    /// What `/ready` says of the cluster. None: all is well.
    fn degraded(&self) -> Option<String> {
        let (status, text) = http::get(&self.http, "/ready");
        assert_eq!(status, 200, "{text}");
        let json: Value = serde_json::from_str(&text).unwrap();
        json["degraded_cluster"].as_str().map(str::to_owned)
    }
}

fn topic(n: usize) -> String {
    format!("k/{n}/x")
}

/// Publishes a message, and waits until it is synced.
fn write(writer: &mut TopicWriter, text: &str, wait: Duration) -> bool {
    let is_taken = writer.publish(text.as_bytes()).is_ok();
    is_taken && writer.confirm(writer.position(), ConfirmLevel::Synced, Some(wait)).is_ok()
}

impl World {
    fn start(on_loss: &str) -> Option<Self> {
        Self::start_with(tempfile::tempdir().unwrap(), on_loss, "")
    }

    fn start_with(folder: TempDir, on_loss: &str, kept: &str) -> Option<Self> {
        let etcd = Etcd::start(folder.path(), 3)?;
        let brokers = (0..3).map(|n| Broker::new(folder.path(), n, &etcd, on_loss, kept)).collect();
        let mut world = Self { folder, etcd, brokers };
        world.wait_for_members("up", 3);
        let asking: Vec<Process> = (0..TOPICS).map(|n| world.ask(n)).collect();
        until("all topics have owners", || world.owners().len() == TOPICS);
        drop(asking);
        Some(world)
    }

    /// A publisher that wants a topic, at some broker.
    fn ask(&mut self, n: usize) -> Process {
        let broker = self.brokers[n % 3].process.as_ref().unwrap();
        broker.publish(&topic(n), b"")
    }

    /// `rbmq cluster ARGS`, with the configuration of the first broker.
    fn command(&self, args: &str) -> Outcome {
        let config = self.brokers[0].config.to_str().unwrap();
        let args = ["cluster"].into_iter().chain(args.split_whitespace()).chain(["--config", config]);
        Process::start(rbmq(args)).finish()
    }

    /// The rows that a command prints, which is repeated while etcd has no leader.
    fn json(&self, args: &str) -> Vec<Value> {
        awaited(LONG, "etcd answers", || {
            let outcome = self.command(&format!("{args} --json"));
            serde_json::from_slice::<Value>(&outcome.stdout).ok()?.as_array().cloned()
        })
    }

    fn wait_for_members(&self, state: &str, count: usize) {
        until("the members are so", || {
            self.json("members").iter().filter(|member| member["state"] == state).count() == count
        });
    }

    /// The owner and the term of each group.
    fn owners(&self) -> BTreeMap<String, (usize, u64)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let owner = |value: &Value| text(value).strip_prefix('m').unwrap().parse().unwrap();
        self.json("topics")
            .iter()
            .map(|row| (text(&row["group"]), (owner(&row["owner"]), row["term"].as_u64().unwrap())))
            .collect()
    }

    /// Removes the owners of all groups from etcd.
    fn forget_owners(&self) {
        let keys = Keys::new("test");
        let delete = |group: String| Change::Delete { key: keys.group(&group) };
        let changes = self.owners().into_keys().map(delete).collect();
        let endpoints = self.etcd.endpoints().iter().map(|text| text.parse().unwrap()).collect();
        let mut client = Client::new(ClientSettings { endpoints, timeout: LONG, login: None, tls: None });
        assert!(client.txn(&Txn { compares: vec![], changes }).unwrap());
    }

    /// The owner of a topic, as soon as etcd says it.
    fn owner(&self, n: usize) -> usize {
        let mut owner = None;
        until("the topic has an owner", || {
            owner = self.owners().get(&format!("k/{n}")).map(|(owner, _)| *owner);
            owner.is_some()
        });
        owner.unwrap()
    }

    /// Publishes a message to a topic until it is synced, by way of a member that does not have it.
    fn publish(&self, n: usize, text: &str) {
        until("the owner takes the message", || {
            let Some(other) = self.other(self.owner(n)) else { return false };
            let Ok(publisher) = Publisher::connect(&other.addr) else { return false };
            let Ok(mut writer) = publisher.topic(&topic(n)) else { return false };
            write(&mut writer, text, Duration::from_secs(5))
        });
    }

    /// A broker that runs and is not this one.
    fn other(&self, n: usize) -> Option<&Broker> {
        self.brokers
            .iter()
            .enumerate()
            .find(|(m, broker)| *m != n && broker.process.is_some())
            .map(|(_, broker)| broker)
    }

    /// Reads a topic from the oldest on, at its owner, until these messages have come. What other members still have of their logs comes too.
    fn read_all(&self, n: usize, wanted: &[&str]) {
        let mut subscriber = Subscriber::connect(&self.brokers[self.owner(n)].addr).unwrap();
        subscriber.subscribe_from(&topic(n), StartFrom::Oldest).unwrap();
        let mut left = wanted.to_vec();
        while !left.is_empty() {
            let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
            left.retain(|text| text.as_bytes() != message.bytes);
        }
    }

    /// The messages of a topic from the oldest on, at its owner, up to this one.
    fn read_up_to(&self, n: usize, last: &str) -> Vec<String> {
        let mut subscriber = Subscriber::connect(&self.brokers[self.owner(n)].addr).unwrap();
        subscriber.subscribe_from(&topic(n), StartFrom::Oldest).unwrap();
        let mut all = Vec::new();
        while all.last().is_none_or(|text| text != last) {
            let message = subscriber.recv(Some(LONG)).unwrap().expect("a message");
            all.push(String::from_utf8(message.bytes).unwrap());
        }
        all
    }
}

#[test]
fn topics_wait_for_a_killed_broker_and_nobody_waits_for_etcd() {
    let Some(mut world) = World::start("wait") else { return };
    (0..TOPICS).for_each(|n| world.publish(n, "one"));
    let before = world.owners();
    let lost = world.owner(0);
    world.brokers[lost].process = None;
    world.wait_for_members("away", 1);
    until("groups wait for an owner that is away", || {
        let outcome = world.command("status");
        assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
        outcome.stderr.contains("groups wait for an owner that is away")
    });
    assert_eq!(world.owners(), before);
    world.brokers[lost].run();
    world.wait_for_members("up", 3);
    world.publish(0, "two");
    assert_eq!(world.read_up_to(0, "two"), ["one", "two"]);
    until("all is well", || world.command("status").status.success());

    // One of three is no loss.
    world.etcd.kill(0);
    (0..TOPICS).for_each(|n| world.publish(n, "three"));
    // Without any, owners serve on.
    let owner = world.owner(1);
    let addr = world.brokers[owner].addr.clone();
    let publisher = Publisher::connect(&addr).unwrap();
    let mut writer = publisher.topic(&topic(1)).unwrap();
    (1..3).for_each(|n| world.etcd.kill(n));
    until("the brokers say what is wrong", || world.brokers.iter().all(|broker| broker.degraded().is_some()));
    assert!(write(&mut writer, "four", LONG));
    // Also one that is started now.
    world.brokers[owner].process = None;
    world.brokers[owner].run();
    assert!(write(&mut writer, "five", LONG));
    until("it says what is wrong", || world.brokers[owner].degraded().is_some());
    world.etcd.run_all();
    until("all is well", || world.brokers.iter().all(|broker| broker.degraded().is_none()));
    assert_eq!(world.read_up_to(1, "five"), ["one", "three", "four", "five"]);
    assert_eq!(world.owners(), before);
    let (_, metrics) = http::get(&world.brokers[0].http, "/metrics");
    assert!(metrics.contains("rbmq_cluster_members 3\n"), "{metrics}");

    // The map is lost, and the logs say whose they are.
    world.brokers.iter_mut().for_each(|broker| broker.process = None);
    world.forget_owners();
    world.brokers.iter_mut().for_each(Broker::run);
    until("all topics have owners", || world.owners().len() == TOPICS);
    let members = |owners: BTreeMap<String, (usize, u64)>| owners.into_values().map(|(owner, _)| owner);
    assert!(members(world.owners()).eq(members(before)));
    drop(world.folder);
}

#[test]
fn others_know_that_a_broker_ends_while_its_subscribers_still_read() {
    let Some(mut world) = World::start("wait") else { return };
    let (ends, before) = (world.owner(0), world.owners());
    // It reads nothing, and the broker waits for it.
    let mut config = rocketbufs::Config::default();
    // In a ring of its own: what the broker's memory has is received.
    config.transport = rocketbufs::config::TransportKind::Tcp;
    let mut slow = Subscriber::builder().config(config).connect(&world.brokers[ends].addr).unwrap();
    slow.subscribe_from(&topic(0), StartFrom::Newest).unwrap();
    let publisher = Publisher::connect(&world.brokers[ends].addr).unwrap();
    let mut writer = publisher.topic(&topic(0)).unwrap();
    until("the subscriber is there", || writer.subscribers() == 1);
    // More than its ring, which is half of the broker's for the sake of the largest delivery, and less than that of the broker.
    let text = "x".repeat(100_000);
    (0..35).for_each(|_| assert!(write(&mut writer, &text, LONG)));
    let process = world.brokers[ends].process.as_mut().unwrap();
    process.process.signal("TERM");
    world.wait_for_members("away", 1);
    let process = world.brokers[ends].process.as_mut().unwrap();
    assert!(process.process.is_running(), "its subscriber has not read all");
    // As soon as that has all, the broker is gone.
    for _ in 0..35 {
        assert_eq!(slow.recv(Some(LONG)).unwrap().expect("a message").bytes, text.as_bytes());
    }
    until("the broker ends", || !world.brokers[ends].process.as_mut().unwrap().process.is_running());
    world.brokers[ends].process = None;
    world.brokers[ends].run();
    assert!(write(&mut writer, "next", LONG));
    assert_eq!(slow.recv(Some(LONG)).unwrap().expect("a message").bytes, b"next");
    assert_eq!(world.owners(), before);
}

#[test]
fn top_shows_the_topics_of_all_members_and_who_says_nothing() {
    let Some(mut world) = World::start("wait") else { return };
    (0..TOPICS).for_each(|n| world.publish(n, "one"));
    let config = world.brokers[0].config.to_str().unwrap().to_owned();
    let top = |args: &str| {
        let words = ["top", "--cluster", "--config", &config, "--interval", "100ms", "--once"];
        Process::start(rbmq(words.into_iter().chain(args.split_whitespace()))).finish().good().text()
    };
    let json = |args: &str| serde_json::from_str::<Value>(&top(&format!("--json {args}"))).unwrap();
    let shown = json("");
    let members = shown["members"].as_array().unwrap();
    assert_eq!(members.iter().filter(|member| member["summary"]["version"].is_string()).count(), 3);
    let is_shown = |group: &str, owner: usize| {
        let wanted = (Value::from(format!("{group}/x")), Value::from(format!("m{owner}")));
        let topics = shown["topics"].as_array().unwrap();
        topics.iter().any(|line| (&line["topic"], &line["member"]) == (&wanted.0, &wanted.1))
    };
    for (group, (owner, _)) in world.owners() {
        assert!(is_shown(&group, owner), "{group} of m{owner} is not in {shown}");
    }
    let one = json("k/1/x");
    assert!(one["topics"].as_array().unwrap().iter().all(|line| line["topic"] == "k/1/x"), "{one}");
    let text = top("--sort name");
    assert!(text.starts_with("cluster test · 3 of 3 members answer\nMEMBER  STATE"), "{text}");
    assert!(text.contains("\nTOPIC        MEMBER "), "{text}");

    world.brokers[2].process = None;
    world.wait_for_members("away", 1);
    let text = top("");
    assert!(text.starts_with("cluster test · 2 of 3 members answer\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("m2      away ")), "{text}");
    // One that does not answer, and is a member until its lease runs out.
    world.brokers[1].process.as_ref().unwrap().process.signal("STOP");
    let shown = json("");
    assert!(shown["members"][1]["error"].is_string(), "{shown}");
    world.brokers[1].process.as_ref().unwrap().process.signal("CONT");
}

#[test]
fn topics_of_a_killed_or_drained_broker_go_on_elsewhere_with_new_logs() {
    let Some(mut world) = World::start("new-log") else { return };
    (0..TOPICS).for_each(|n| world.publish(n, "one"));
    let before = world.owners();
    let lost = world.owner(0);
    world.brokers[lost].process = None;
    until("the others have all", || {
        let owners = world.owners();
        owners.len() == TOPICS && owners.values().all(|(owner, _)| *owner != lost)
    });
    for (group, (owner, term)) in world.owners() {
        let expected = if before[&group].0 == lost { (before[&group].1) + 1 } else { before[&group].1 };
        assert_eq!(term, expected, "{group} at {owner}");
    }
    world.publish(0, "two");
    world.read_all(0, &["two"]);

    world.brokers[lost].run();
    world.wait_for_members("up", 3);
    world.command("move k/0 m9 --new-log").status.code().filter(|code| *code == 1).expect("there is no m9");
    let refused = world.command(&format!("move k/0 m{lost}"));
    assert!(refused.stderr.contains("say --new-log"), "{}", refused.stderr);
    world.command(&format!("move k/0 m{lost} --new-log")).good();
    world.publish(0, "three");
    world.read_all(0, &["one", "three"]);

    world.command(&format!("drain m{lost}")).good();
    until("the drained one has none", || world.owners().values().all(|(owner, _)| *owner != lost));
    assert!(world.json("members").iter().any(|member| member["state"] == "draining"));
    world.command(&format!("drain m{lost} --undo")).good();
    world.wait_for_members("up", 3);
    drop(world.folder);
}

/// Publishes numbers, each confirmed as archived before the next ones, until it is told to stop. Says how many were confirmed.
fn publish_archived(mut writer: TopicWriter, confirmed: &AtomicU64, is_over: &AtomicBool) {
    let mut next = 0_u64;
    while !is_over.load(Ordering::Acquire) {
        for n in next..next + 10 {
            writer.publish(&n.to_le_bytes()).unwrap();
        }
        next += 10;
        while let Err(error) = writer.confirm(writer.position(), ConfirmLevel::Archived, Some(LONG)) {
            // The log has gone on elsewhere, and the question has to be asked there.
            assert!(matches!(error, ConfirmError::NotStored { lost: false, .. }), "{error:?}");
        }
        confirmed.store(next, Ordering::Release);
    }
}

/// What was confirmed as archived is in the log once, whatever happens to its owners. An owner that stood still and does not know that it is none
/// takes nothing back. `section` is that of the archive, with its keys in a folder.
pub(crate) fn archived_numbers_stay(section: impl Fn(&Path) -> String) {
    let folder = tempfile::tempdir().unwrap();
    let kept = format!("archive = 's3'\n{}\nbatch_ms = 50\ntimeout_ms = 2000", section(folder.path()));
    let Some(mut world) = World::start_with(folder, "archive", &kept) else { return };
    let all: Vec<String> = world.brokers.iter().map(|broker| broker.addr.clone()).collect();
    let writer = Publisher::connect(&all.join(",")).unwrap().topic(&topic(0)).unwrap();
    let (confirmed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let more = |count: u64| {
        let goal = confirmed.load(Ordering::Acquire) + count;
        until("more is confirmed", || confirmed.load(Ordering::Acquire) >= goal);
    };
    let moved = |world: &World, from: usize| until("another one has the topic", || world.owner(0) != from);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| publish_archived(writer, &confirmed, &is_over));
        for round in 0..2 {
            more(50);
            let owner = world.owner(0);
            let signal = ["KILL", "STOP"][round];
            world.brokers[owner].process.as_ref().unwrap().process.signal(signal);
            moved(&world, owner);
            more(50);
            if signal == "STOP" {
                world.brokers[owner].process.as_ref().unwrap().process.signal("CONT");
            } else {
                world.brokers[owner].process = None;
                world.brokers[owner].run();
            }
            world.wait_for_members("up", 3);
            more(50);
        }
        is_over.store(true, Ordering::Release);
        publishing.join().unwrap();
    });
    let count = confirmed.load(Ordering::Acquire);
    let mut subscriber = Subscriber::connect(&world.brokers[world.owner(0)].addr).unwrap();
    subscriber.subscribe_from(&topic(0), StartFrom::Oldest).unwrap();
    for n in 0..count {
        let message = loop {
            match subscriber.recv(Some(LONG)) {
                // The positions that each owner has left out.
                Err(ReceiveError::Lost { .. }) => {}
                message => break message.unwrap().unwrap_or_else(|| panic!("{n} of {count}")),
            }
        };
        assert_eq!(message.bytes, n.to_le_bytes(), "{n} of {count}");
    }
    drop(world.folder);
}
