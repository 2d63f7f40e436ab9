//! `kill -9` of any process while data flows: what was confirmed was there, and nobody has a gap that was not told.
//!
//! A round is a broker, a publisher that confirms, a subscriber that writes a file and has its place kept, and one that
//! only reads. At moments drawn from the round's seed one of them is killed; what is to go on is started again.
//! `KILLS=100` sets the number of moments, `KILL_SEED=7` replays the round of a seed.

mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{BrokerProcess, LONG, Outcome, Process, client, until};
use rbmq::Observer;

/// Moments of a usual run.
const KILLS: u64 = 100;
/// Lines that a round publishes, and how fast the file may grow: some hundred milliseconds.
const LINES: u64 = 60_000;
const RATE: &str = "12MB";

/// What a seed draws.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

/// A line that `pub --confirm-each --json` prints.
#[derive(Debug, Clone, Copy)]
struct Told {
    messages: u64,
    subscribers: u64,
    left: u64,
}

/// What a process prints, line by line, as it comes.
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    thread: JoinHandle<()>,
}

impl Lines {
    fn of(stream: impl std::io::Read + Send + 'static) -> Self {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let to = lines.clone();
        let thread = std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                to.lock().expect("no panics").push(line);
            }
        });
        Self { lines, thread }
    }

    fn now(&self) -> Vec<String> {
        self.lines.lock().expect("no panics").clone()
    }

    fn all(self) -> Vec<String> {
        self.thread.join().expect("a reader");
        Arc::try_unwrap(self.lines).expect("its reader is done").into_inner().expect("no panics")
    }
}

fn told(lines: &[String]) -> Vec<Told> {
    let parse = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        value.get("confirmed")?.as_str()?;
        let number = |name: &str| value[name].as_u64();
        Some(Told {
            messages: number("messages")?,
            subscribers: number("subscribers")?,
            left: number("left")?,
        })
    };
    lines.iter().filter_map(parse).collect()
}

/// The numbers of complete lines.
fn numbers(text: &str) -> Vec<u64> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Publisher,
    Broker,
    Writer,
    Reader,
}

struct Round {
    seed: u64,
    rng: Rng,
    level: &'static str,
    dir: tempfile::TempDir,
    broker: Option<BrokerProcess>,
    addr: String,
    publisher: Option<Process>,
    confirmed: Lines,
    writer: Option<Process>,
    reader: Option<Process>,
    reads: Lines,
    /// What the writer's processes said that were killed.
    said: String,
    killed: Vec<Victim>,
}

impl Round {
    fn start(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let level = ["accepted", "delivered", "consumed"][rng.below(3) as usize];
        let dir = tempfile::tempdir().expect("a folder");
        let config = dir.path().join("rbmq.toml");
        std::fs::write(&config, "[session]\nlinger_ms = 700\n").expect("a file");
        let broker = BrokerProcess::start_with(&["--config", config.to_str().expect("a name")]);
        let addr = broker.addr.clone();
        let input = dir.path().join("input");
        let filler = "x".repeat(rng.below(120) as usize);
        let text: String = (0..LINES).map(|n| format!("{n} {filler}\n")).collect();
        std::fs::write(&input, text).expect("a file");
        let writer = start_writer(&addr, dir.path());
        let mut reader = Process::start(client("sub", &addr, "-q t --until-closed --ring-bytes 256k"));
        let reads = Lines::of(reader.stdout());
        let ring = ["64k", "256k", "1M"][rng.below(3) as usize];
        let args = format!(
            "-q t --wait-subscribers 2 --confirm {level} --confirm-each --json --timeout 60 --ring-bytes {ring} --file {}",
            input.display()
        );
        let mut publisher = Process::start(client("pub", &addr, &args));
        let confirmed = Lines::of(publisher.stdout());
        let (killed, said) = (Vec::new(), String::new());
        let (broker, publisher) = (Some(broker), Some(publisher));
        let (writer, reader) = (Some(writer), Some(reader));
        Self {
            seed,
            rng,
            level,
            dir,
            broker,
            addr,
            publisher,
            confirmed,
            writer,
            reader,
            reads,
            said,
            killed,
        }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn fail(&self, what: &str) -> ! {
        panic!(
            "seed {}: {what}; level {}, killed {:?}; the writer said: {}\nreplay: KILL_SEED={} cargo test -p rbmq --test kills",
            self.seed, self.level, self.killed, self.said, self.seed
        );
    }

    fn flows(&mut self) -> bool {
        self.publisher.as_mut().is_some_and(Process::is_running)
    }

    /// Kills somebody at a random moment. False if nothing flows any more.
    fn kill(&mut self, last: bool) -> bool {
        until("data flows", || {
            std::fs::metadata(self.out()).is_ok_and(|file| file.len() > 0)
                || !self.publisher.as_mut().is_some_and(Process::is_running)
        });
        std::thread::sleep(Duration::from_micros(self.rng.below(150_000)));
        let victims = [Victim::Broker, Victim::Writer, Victim::Reader, Victim::Publisher];
        // After the publisher nothing flows.
        let victim = victims[self.rng.below(if last { 4 } else { 3 }) as usize];
        if !self.flows() || (victim == Victim::Reader && self.reader.is_none()) {
            return false;
        }
        self.killed.push(victim);
        match victim {
            Victim::Publisher => drop(kill(self.publisher.take())),
            Victim::Broker => {
                let broker = self.broker.take().expect("it runs");
                drop(kill(Some(broker.process)));
                let config = self.dir.path().join("rbmq.toml");
                let args = ["--config", config.to_str().expect("a name")];
                self.broker = Some(BrokerProcess::start_at(&self.addr, &args));
            }
            Victim::Writer => self.kill_writer(),
            Victim::Reader => drop(kill(self.reader.take())),
        }
        true
    }

    fn kill_writer(&mut self) {
        let confirmed = told(&self.confirmed.now());
        self.said += &kill(self.writer.take()).map_or(String::new(), |outcome| outcome.stderr);
        // What was delivered is released by who has a place kept, and it is in the file by then.
        if self.level != "accepted" {
            let text = std::fs::read_to_string(self.out()).unwrap_or_default();
            self.check_claims("when the writer was killed", &confirmed, &numbers(&text));
        }
        self.writer = Some(start_writer(&self.addr, self.dir.path()));
    }

    /// What was confirmed for the writer must be among these numbers.
    fn check_claims(&self, when: &str, confirmed: &[Told], has: &[u64]) {
        let broker_died = self.killed.contains(&Victim::Broker);
        let mut from = 0;
        for told in confirmed {
            // Until a broker died the writer always counts; then only where nobody is missing.
            let counts = !broker_died || (told.subscribers == 2 && told.left == 0);
            let missing = (from..told.messages).find(|n| counts && has.binary_search(n).is_err());
            if let Some(missing) = missing {
                self.fail(&format!("{when}: line {missing} is missing; confirmed: {told:?}"));
            }
            if told.messages < from {
                self.fail(&format!("{when}: a confirmation goes back from {from}: {told:?}"));
            }
            from = told.messages;
        }
    }

    /// Every number once and in order; a gap only where it was told.
    fn check_gaps(&self, who: &str, has: &[u64], said: &str) {
        for pair in has.windows(2) {
            let gap = pair[1] != pair[0] + 1;
            if pair[1] <= pair[0] || (gap && !said.contains("lost")) {
                self.fail(&format!("{who} has line {} after {}, and was not told", pair[1], pair[0]));
            }
        }
    }

    fn finish(mut self) -> usize {
        let publisher = self.publisher.take().map(Process::finish);
        let writer = self.writer.take().expect("it runs");
        self.said += &settle(writer, &self.addr).stderr;
        let lines = std::mem::take(&mut self.reads.lines);
        let reader = self.reader.take().map(|reader| settle(reader, &self.addr));
        let confirmed = std::mem::replace(&mut self.confirmed, Lines::of(std::io::empty())).all();
        let confirmed = told(&confirmed);
        let has = numbers(&std::fs::read_to_string(self.out()).expect("the output"));
        self.check_gaps("the writer", &has, &self.said);
        // What was only accepted is gone with its broker.
        if self.level != "accepted" || !self.killed.contains(&Victim::Broker) {
            if has.first().is_some_and(|first| *first != 0) {
                self.fail("the writer lacks the beginning");
            }
            self.check_claims("at the end", &confirmed, &has);
        }
        if let Some(reader) = reader {
            let read = lines.lock().expect("no panics").join("\n") + "\n";
            self.check_gaps("the reader", &numbers(&read), &reader.stderr);
        }
        if let Some(publisher) = publisher {
            let all = confirmed.last().is_some_and(|told| told.messages == LINES);
            if !publisher.status.success() || !all {
                let (status, stderr) = (publisher.status, publisher.stderr);
                self.fail(&format!("the publisher ended with {status}, {:?}: {stderr}", confirmed.last()));
            }
        }
        self.killed.len()
    }
}

fn start_writer(addr: &str, dir: &Path) -> Process {
    let out = dir.join("out");
    let args = format!(
        "t --until-closed --name writer --hold 60 --rate {RATE} --ring-bytes 256k --output {}",
        out.display()
    );
    Process::start(client("sub", addr, &args))
}

fn kill(process: Option<Process>) -> Option<Outcome> {
    let process = process?;
    process.signal("KILL");
    Some(process.finish())
}

/// Waits until a subscriber ends; one that waits for what will not come is asked to. The publisher has ended, so of a topic
/// that the broker does not know now it will never hear.
fn settle(mut process: Process, addr: &str) -> Outcome {
    let mut observer = Observer::connect(addr).expect("the broker runs");
    let started = Instant::now();
    while process.is_running() && started.elapsed() < LONG {
        if observer.topics(None).expect("the broker answers").is_empty() {
            process.signal("TERM");
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    process.finish()
}

/// Plays the round of a seed; returns how many were killed.
fn play(seed: u64) -> usize {
    // Shown if anything fails, also what hangs.
    println!("KILL_SEED={seed} replays this round");
    let mut round = Round::start(seed);
    let kills = 1 + round.rng.below(4);
    for n in 1..=kills {
        if !round.kill(n == kills) {
            break;
        }
    }
    round.finish()
}

#[test]
fn what_was_confirmed_is_there_whoever_is_killed() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("KILL_SEED") {
        println!("seed {seed}: {} killed", play(seed));
        return;
    }
    let (wanted, started) = (number("KILLS").unwrap_or(KILLS), Instant::now());
    let (mut killed, mut rounds) = (0, 0);
    while killed < wanted {
        killed += play(rounds) as u64;
        rounds += 1;
    }
    println!("{killed} processes killed in {rounds} rounds, {:?}", started.elapsed());
}
