//! Groups and `kill -9`: nothing that was acknowledged comes again, and nothing else is lost. `GROUP_KILLS=300` sets the number of kills,
//! `KILL_SEED=7` the first seed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use rbmq::{ConfirmLevel, GroupMessage, GroupWorker, Publisher, Subscriber, TopicWriter};
use testkit::{Process, Random, own_addr, until};

use crate::common::{BrokerProcess, rbmq};

/// The time for events that must come. The machine may be loaded.
const LONG: Duration = Duration::from_secs(120);

/// Kills of a usual run.
const KILLS: u64 = 8;

fn config(folder: &Path) -> String {
    let file = folder.join("rbmq.toml");
    let kept = folder.join("kept");
    let text = format!(
        "[broker]\nkeep_dir = \"{}\"\n[[broker.topics]]\npattern = \"k/#\"\nkeep = true\n",
        kept.display()
    );
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

struct Round {
    addr: String,
    config: String,
    broker: Option<BrokerProcess>,
    writer: TopicWriter,
    published: u32,
    worker: GroupWorker,
    /// What the worker has acknowledged, and what of it is in the journal.
    acked: BTreeSet<u32>,
    confirmed: BTreeSet<u32>,
    /// What the workers that were killed have printed: their acknowledgements may be on their way or not.
    printed: BTreeSet<u32>,
    seen: BTreeSet<u32>,
}

impl Round {
    fn start(folder: &Path) -> Self {
        let (addr, config) = (own_addr(), config(folder));
        let broker = BrokerProcess::start_at(&addr, &["--config", &config]);
        let writer = Publisher::connect(&addr).unwrap().topic("k/work").unwrap();
        let worker = Subscriber::builder().group("g").credit(20).join(&addr, "k/work").unwrap();
        let (acked, confirmed, printed, seen) = Default::default();
        Self {
            addr,
            config,
            broker: Some(broker),
            writer,
            published: 0,
            worker,
            acked,
            confirmed,
            printed,
            seen,
        }
    }

    fn publish(&mut self, count: u32) {
        for n in self.published..self.published + count {
            self.writer.publish(n.to_string().as_bytes()).unwrap();
        }
        self.published += count;
    }

    fn take(&mut self, message: GroupMessage) {
        let number: u32 = std::str::from_utf8(&message.bytes).unwrap().parse().unwrap();
        assert!(!self.confirmed.contains(&number), "message {number} was acknowledged, and came again");
        self.seen.insert(number);
        self.acked.insert(number);
        message.ack();
    }

    /// Works on so many messages, and waits for the journal.
    fn work(&mut self, count: u64) {
        for _ in 0..count {
            let Some(message) = self.worker.recv(Some(Duration::from_millis(1))).unwrap() else { break };
            self.take(message);
        }
        self.worker.flush(Some(LONG)).unwrap();
        self.confirmed.append(&mut self.acked);
    }

    fn kill_broker(&mut self) {
        self.broker.take().into_iter().for_each(|broker| broker.process.signal("KILL"));
        self.broker = Some(BrokerProcess::start_at(&self.addr, &["--config", &self.config]));
    }

    /// A command works, and is killed after it has printed some lines.
    fn kill_worker(&mut self, lines: u64) {
        let args = ["sub", "k/work", "--group", "g", "--credit", "10", "-b", &self.addr];
        let mut worker = Process::start(rbmq(args));
        let mut output = BufReader::new(worker.stdout());
        self.publish(200);
        for _ in 0..lines {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            let number = line.trim().parse().unwrap();
            assert!(!self.confirmed.contains(&number), "message {number} was acknowledged, and came again");
            self.printed.insert(number);
        }
        worker.signal("KILL");
        // What it printed before it was killed counts as printed.
        for line in output.lines().map_while(Result::ok) {
            self.printed.extend(line.trim().parse::<u32>());
        }
    }

    fn finish(mut self) {
        let end = self.writer.position();
        self.writer.confirm(end, ConfirmLevel::Stored, Some(LONG)).unwrap();
        let deadline = Instant::now() + LONG;
        while self.seen.union(&self.printed).count() < self.published as usize {
            assert!(Instant::now() < deadline, "messages are lost: {:?}", self.missing());
            self.work(1000);
        }
        self.worker.flush(Some(LONG)).unwrap();
        let addr = self.addr.clone();
        until("all is done", || {
            self.work(1000);
            let all = Subscriber::builder().groups(&addr).unwrap().list().unwrap();
            all[0].lag_bytes() == 0
        });
    }

    fn missing(&self) -> Vec<u32> {
        (0..self.published).filter(|n| !self.seen.contains(n) && !self.printed.contains(n)).take(10).collect()
    }
}

#[test]
fn kills_lose_nothing_and_bring_nothing_back() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (seed, kills) = (number("KILL_SEED").unwrap_or(1), number("GROUP_KILLS").unwrap_or(KILLS));
    println!("KILL_SEED={seed} GROUP_KILLS={kills}");
    let (mut rng, folder) = (Random::new(seed), tempfile::tempdir().unwrap());
    let mut round = Round::start(folder.path());
    for _ in 0..kills {
        round.publish(rng.between(1, 300) as u32);
        round.work(rng.below(300));
        if rng.percent(50) {
            round.kill_broker();
        } else {
            round.kill_worker(rng.between(1, 50));
        }
    }
    round.finish();
}

#[test]
fn the_commands_show_reset_and_delete_a_group() {
    let folder = tempfile::tempdir().unwrap();
    let broker = BrokerProcess::start_at(&own_addr(), &["--config", &config(folder.path())]);
    broker.publish_all("k/work", b"one\ntwo\nthree\n");
    let run = |args: &str| {
        let args = format!("{args} -b {}", broker.addr);
        Process::start(rbmq(args.split_whitespace())).finish()
    };
    let printed = run("sub k/work --group g --from oldest -n 2").good();
    assert_eq!(printed.text(), "one\ntwo\n");
    let list = run("groups list").good().text();
    assert!(list.contains("k/work") && list.contains("no workers"), "{list}");
    let shown: serde_json::Value =
        serde_json::from_str(&run("groups show k/work g --json").good().text()).unwrap();
    assert_eq!((shown["acked"].as_u64(), shown["pending"].as_u64()), (Some(2), Some(1)), "{shown}");
    assert_eq!(run("sub k/work --group g -n 1 --json").good().text().matches("three").count(), 1);
    run("groups reset k/work g --to oldest").good();
    assert_eq!(run("sub k/work --group g -n 1").good().text(), "one\n");
    run("groups delete k/work g").good();
    assert_eq!(run("groups list").good().text(), "no groups\n");
}
