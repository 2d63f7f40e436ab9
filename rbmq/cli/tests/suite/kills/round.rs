//! A round: its processes, the kills, and the checks at its end.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use rbmq::Observer;
use rocketbufs::Epoch;
use testkit::{LONG, Outcome, Process, Random, own_addr, until};

use super::output::{Confirmed, Lines, confirmations, lost, missing, numbers};
use super::publisher::Publisher;
use super::shape::Shape;
use crate::common::{BrokerProcess, client};

/// The topic of the round's publishers.
const TOPIC: &str = "t/x";

/// How fast the writer's file may grow.
const RATE: &str = "12MB";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Publisher,
    /// The broker of the publishers.
    First,
    /// The broker of the subscribers in a chain.
    Second,
    Writer,
    Reader,
}

pub struct Round {
    seed: u64,
    pub rng: Random,
    shape: Shape,
    dir: tempfile::TempDir,
    /// A broker, or the two brokers of a chain; None during a restart.
    brokers: Vec<Option<BrokerProcess>>,
    addrs: Vec<String>,
    publishers: Vec<Option<Publisher>>,
    /// The confirmations of each killed publisher.
    heard: Vec<Vec<String>>,
    writer: Option<Process>,
    reader: Option<Process>,
    reads: Lines,
    /// The messages of the writer's killed processes.
    said: String,
    killed: Vec<Victim>,
}

impl Round {
    pub fn start(seed: u64) -> Self {
        let mut rng = Random::new(seed);
        let shape = Shape::draw(&mut rng);
        let dir = tempfile::tempdir().expect("a folder");
        let mut brokers = Vec::new();
        let mut addrs: Vec<String> = Vec::new();
        for n in 0..1 + usize::from(shape.chain) {
            let config = shape.config(addrs.last().map(String::as_str));
            std::fs::write(dir.path().join(format!("broker{n}.toml")), config).expect("a file");
            let broker = start_broker(n, &own_addr(), dir.path(), shape);
            addrs.push(broker.addr.clone());
            brokers.push(Some(broker));
        }
        let last = addrs.last().expect("a broker");
        if shape.pattern {
            std::fs::create_dir(dir.path().join("out")).expect("a folder");
        }
        let writer = start_writer(last, dir.path(), shape);
        let args = format!("{} --until-closed --ring-bytes 256k", shape.filter());
        let mut reader = start_sub(last, &args, shape);
        let reads = Lines::of(reader.stdout());
        let publish = |index| Some(Publisher::start(index, &addrs[0], shape));
        let publishers: Vec<_> = (0..shape.publishers).map(publish).collect();
        Self {
            seed,
            rng,
            shape,
            dir,
            brokers,
            publishers,
            heard: vec![Vec::new(); shape.publishers],
            addrs,
            writer: Some(writer),
            reader: Some(reader),
            reads,
            said: String::new(),
            killed: Vec::new(),
        }
    }

    /// The shape as text, for the search for a fault.
    pub fn shape_text(&self) -> String {
        format!("{:?}", self.shape)
    }

    fn last_addr(&self) -> &str {
        self.addrs.last().expect("a broker")
    }

    /// The writer's file.
    fn text(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(self.shape.file())).unwrap_or_default()
    }

    fn fail(&self, what: &str) -> ! {
        panic!(
            "seed {}: {what}; {:?}, killed {:?}; the writer said: {}\nreplay: KILL_SEED={} cargo test -p rbmq-cli --test suite kills::",
            self.seed, self.shape, self.killed, self.said, self.seed
        );
    }

    fn flows(&mut self) -> bool {
        self.publishers.iter_mut().flatten().any(Publisher::flows)
    }

    fn deaths(&self, of: &[Victim]) -> usize {
        self.killed.iter().filter(|victim| of.contains(victim)).count()
    }

    fn a_broker_died(&self) -> bool {
        self.deaths(&[Victim::First, Victim::Second]) > 0
    }

    /// Kills a process at a random moment. False if no data flows any more.
    pub fn kill(&mut self, last: bool) -> bool {
        let file = self.dir.path().join(self.shape.file());
        // A publisher begins only with two subscribers, of which one may be killed.
        until("data flows", || {
            let begun = self.publishers.iter().flatten().all(Publisher::has_begun);
            let written = std::fs::metadata(&file).is_ok_and(|file| file.len() > 0);
            (begun && written) || !self.flows()
        });
        std::thread::sleep(Duration::from_micros(self.rng.below(150_000)));
        let second = if self.shape.chain { Victim::Second } else { Victim::First };
        let victims =
            [Victim::First, second, Victim::Writer, Victim::Writer, Victim::Reader, Victim::Publisher];
        // After the only publisher nothing flows.
        let all = last || self.shape.publishers > 1;
        let victim = victims[self.rng.below(if all { 6 } else { 5 }) as usize];
        let index = self.rng.below(self.shape.publishers as u64) as usize;
        let away = match victim {
            Victim::Reader => self.reader.is_none(),
            Victim::Publisher => self.publishers[index].is_none(),
            _ => false,
        };
        if away || !self.flows() {
            return false;
        }
        self.killed.push(victim);
        match victim {
            Victim::Publisher => {
                self.heard[index] = self.publishers[index].take().expect("the process runs").kill();
            }
            Victim::First => self.kill_broker(0),
            Victim::Second => self.kill_broker(1),
            Victim::Writer => self.kill_writer(),
            Victim::Reader => drop(kill(self.reader.take())),
        }
        true
    }

    fn kill_broker(&mut self, n: usize) {
        drop(kill(self.brokers[n].take().map(|broker| broker.process)));
        self.brokers[n] = Some(start_broker(n, &self.addrs[n], self.dir.path(), self.shape));
    }

    fn kill_writer(&mut self) {
        let now = |publisher: &Option<Publisher>| {
            publisher.as_ref().map_or(Vec::new(), |publisher| publisher.confirmed.now())
        };
        let confirmed: Vec<_> =
            self.publishers.iter().map(|publisher| confirmations(&now(publisher))).collect();
        self.said += &kill(self.writer.take()).map_or(String::new(), |outcome| outcome.stderr);
        // The durable writer releases messages only after it wrote them to the file.
        if self.shape.level != "accepted" {
            self.check_claims("when the writer was killed", &confirmed);
        }
        self.writer = Some(start_writer(self.last_addr(), self.dir.path(), self.shape));
    }

    /// Messages that were confirmed for the writer must be in its file.
    fn check_claims(&self, when: &str, confirmed: &[Vec<Confirmed>]) {
        // Until a broker dies the writer always counts; after that only if no subscriber is missing.
        let broker_died = self.a_broker_died();
        let counts = |confirmation: &Confirmed| {
            !broker_died || (confirmation.subscribers == 2 && confirmation.left == 0)
        };
        let text = self.text();
        for (publisher, confirmed) in confirmed.iter().enumerate() {
            if let Some((line, confirmation)) = missing(confirmed, &numbers(&text, publisher), counts) {
                self.fail(&format!(
                    "{when}: line {line} of publisher {publisher} is missing: {confirmation:?}"
                ));
            }
        }
    }

    /// Every number of a publisher comes once and in order, with reported gaps only. A merged topic is another log after a
    /// restart of the merging broker: numbers may come again, and behind another broker both logs come at the same time.
    fn check_order(&self, who: &str, text: &str, said: &str) {
        let logs = if self.shape.merged { self.deaths(&[Victim::First]) } else { 0 };
        for publisher in 0..self.shape.publishers {
            let mut numbers = numbers(text, publisher);
            let again = numbers.windows(2).filter(|pair| pair[1] <= pair[0]).count();
            if again > logs && (logs == 0 || !self.shape.chain) {
                self.fail(&format!("{who} has lines of publisher {publisher} again {again} times"));
            }
            numbers.sort_unstable();
            let gaps = numbers.windows(2).map(|pair| pair[0] + 1..pair[1]);
            let unreported = |gap: &Range<u64>| !gap.is_empty() && !self.is_reported(said, publisher, gap);
            if let Some(gap) = gaps.into_iter().find(unreported) {
                self.fail(&format!("{who} lacks {gap:?} of publisher {publisher}, and reports: {said}"));
            }
        }
    }

    /// Whether a subscriber reported that it lacks these lines of a publisher.
    fn is_reported(&self, said: &str, publisher: usize, lines: &Range<u64>) -> bool {
        let ranges = lost(said);
        if self.shape.merged {
            // Only the broker knew the positions of the lines in the merged log.
            return !ranges.is_empty() || said.contains("gone") || said.contains("has another log");
        }
        // The publisher has a log of its own, which begins with its first line.
        let bytes = |n| self.shape.record_bytes(publisher, n);
        let mut at: u64 = (0..lines.start).map(bytes).sum();
        let reported = |n| {
            let from = at;
            at += bytes(n);
            ranges.iter().any(|lost| lost.start < at && from < lost.end)
        };
        lines.clone().all(reported)
    }

    /// Every message that was confirmed for any subscriber is at a subscriber that was there to the end.
    fn check_anybody(&self, read: &str, confirmed: &[Vec<Confirmed>]) {
        let both = format!("{}{read}\n", self.text());
        for (publisher, confirmed) in confirmed.iter().enumerate() {
            let counts = |confirmation: &Confirmed| {
                confirmation.subscribers > 0 && confirmation.left == 0 && self.shape.level != "accepted"
            };
            if let Some((line, confirmation)) = missing(confirmed, &numbers(&both, publisher), counts) {
                self.fail(&format!(
                    "line {line} of publisher {publisher} is at no subscriber: {confirmation:?}"
                ));
            }
        }
    }

    /// Checks the file. Messages that were only accepted may be lost with their broker.
    fn check_file(&self, confirmed: &[Vec<Confirmed>]) {
        let text = self.text();
        self.check_order("the writer", &text, &self.said);
        if self.shape.level == "accepted" && self.a_broker_died() {
            return;
        }
        self.check_claims("at the end", confirmed);
        // Of several publishers some may not have begun when the broker died.
        if self.a_broker_died() && self.shape.merged {
            return;
        }
        let begins = |publisher| numbers(&text, publisher).first().is_none_or(|first| *first == 0);
        if !(0..self.shape.publishers).all(begins) {
            self.fail("the writer lacks the beginning");
        }
    }

    /// Waits until the writer is back, because a merged topic ends soon after its publishers.
    fn wait_for_writer(&mut self) {
        let mut observer = Observer::connect(self.last_addr()).expect("the broker runs");
        let topic = TOPIC.parse().expect("a topic");
        until("the writer is back", || {
            if !self.writer.as_mut().is_some_and(Process::is_running) {
                self.start_writer_again();
            }
            let detail = observer.topic(&topic).expect("the broker answers");
            let mut all = detail.buffers.iter().flat_map(|buffer| &buffer.subscriptions);
            all.any(|sub| sub.client == "writer" && !sub.offline)
        });
    }

    /// Starts an ended writer again, which continues at its position. The topic is not closed yet, so the writer must have given
    /// a reason for its end.
    fn start_writer_again(&mut self) {
        let said = self.writer.take().map_or(String::new(), |writer| writer.finish().stderr);
        let reported = said.contains("cannot connect") || said.contains("gone");
        self.said += &said;
        if !reported {
            self.fail("the writer has ended before the topic");
        }
        self.writer = Some(start_writer(self.last_addr(), self.dir.path(), self.shape));
    }

    pub fn finish(mut self) -> usize {
        if self.shape.merged {
            self.wait_for_writer();
        }
        for publisher in self.publishers.iter().flatten() {
            publisher.feed_last();
        }
        let mut ended = Vec::new();
        for (index, publisher) in std::mem::take(&mut self.publishers).into_iter().enumerate() {
            if let Some((outcome, confirmed)) = publisher.map(Publisher::end) {
                self.heard[index] = confirmed;
                ended.push((index, outcome));
            }
        }
        let writer = self.writer.take().expect("the process runs");
        self.said += &settle(writer, &self.addrs).stderr;
        let reader = self.reader.take().map(|reader| settle(reader, &self.addrs));
        let confirmed: Vec<_> = self.heard.iter().map(|lines| confirmations(lines)).collect();
        self.check_file(&confirmed);
        let read = std::mem::replace(&mut self.reads, Lines::of(std::io::empty())).all();
        if let Some(reader) = reader {
            self.check_anybody(&read.join("\n"), &confirmed);
            self.check_order("the reader", &(read.join("\n") + "\n"), &reader.stderr);
        }
        for (index, outcome) in ended {
            self.check_publisher(index, &outcome, confirmed[index].last());
        }
        self.killed.len()
    }

    /// A publisher that was not killed has everything confirmed.
    fn check_publisher(&self, index: usize, outcome: &Outcome, last: Option<&Confirmed>) {
        let all = last.is_some_and(|confirmation| confirmation.messages == self.shape.lines());
        if !outcome.status.success() || !all {
            let (status, stderr) = (outcome.status, &outcome.stderr);
            self.fail(&format!("publisher {index} ended with {status}, {last:?}: {stderr}"));
        }
    }
}

fn start_broker(n: usize, addr: &str, dir: &Path, shape: Shape) -> BrokerProcess {
    let config = dir.join(format!("broker{n}.toml"));
    let args = ["--config", config.to_str().expect("a name")];
    BrokerProcess::start_in(addr, &args, &[("ROCKETBUFS_TRANSPORT", shape.transport)])
}

fn start_sub(addr: &str, args: &str, shape: Shape) -> Process {
    let mut command = client("sub", addr, args);
    command.env("ROCKETBUFS_TRANSPORT", shape.transport);
    Process::start(command)
}

fn start_writer(addr: &str, dir: &Path, shape: Shape) -> Process {
    let (filter, out) = (shape.filter(), dir.join("out"));
    let args = format!(
        "{filter} --until-closed --name writer --hold 60 --rate {RATE} --ring-bytes 256k --output {}",
        out.display()
    );
    start_sub(addr, &args, shape)
}

fn kill(process: Option<Process>) -> Option<Outcome> {
    let process = process?;
    process.signal("KILL");
    Some(process.finish())
}

/// Waits until a subscriber has received everything and ends by itself.
fn settle(mut process: Process, addrs: &[String]) -> Outcome {
    let connect = |addr: &String| Observer::connect(addr).expect("the broker runs");
    let mut observers: Vec<_> = addrs.iter().map(connect).collect();
    let (started, mut extra) = (Instant::now(), Vec::new());
    while process.is_running() && started.elapsed() < LONG {
        // The first broker is asked last: a topic that it no longer has does not appear at the second broker later.
        let mut knows = |n: usize| !observers[n].topics(None).expect("the broker answers").is_empty();
        if !(0..addrs.len()).any(&mut knows) && !(0..addrs.len()).any(&mut knows) {
            extra.extend(publish_empty_log(&addrs[0], &mut observers[0]));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut outcome = process.finish();
    let of_extra = |line: &&str| extra.iter().any(|epoch| line.contains(epoch));
    outcome.stderr =
        outcome.stderr.lines().filter(|line| !of_extra(line)).map(|line| line.to_owned() + "\n").collect();
    outcome
}

/// Publishes a log without messages. A subscriber that waits for a log, where all publishers have ended, ends with this one. A
/// signal would also end a slow subscriber that has not received everything yet. Returns the names of the logs.
fn publish_empty_log(addr: &str, observer: &mut Observer) -> Vec<String> {
    let publisher = rbmq::Publisher::connect(addr).expect("the broker runs");
    let topic = publisher.topic(TOPIC).expect("the broker accepts the topic");
    let detail = observer.topic(&TOPIC.parse().expect("a topic")).expect("the broker answers");
    topic.close().expect("the broker has the end of the log");
    detail.buffers.iter().map(|buffer| Epoch(buffer.buffer.epoch).to_string()).collect()
}
