//! `rbmq bench scale`: what exists and does nothing must cost next to nothing.
//!
//! ```text
//!   this process: publishers of N topics ──▶ broker, a process ──▶ subscriber of all of them, a process
//!                 one active topic, and its subscriber beside them
//!                 idle connections
//! ```
//!
//! A delivery of the active topic is timed in the broker's processor time while 1, 100, … N topics exist beside it. Then
//! every topic carries its bytes, everybody rests, and the memory of broker and subscriber is read: resident, and what
//! their rings have backed. Last, connections that say nothing are counted in bytes of the broker.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use benchkit::{output::human, sys};
use clap::Args;
use rocketbufs::{Config, Context};
use serde::Serialize;

use super::BenchError;
use crate::{Publisher, Subscriber, TopicOptions, TopicWriter};

/// Topics of one publisher: fewer than a broker allows one by default.
const TOPICS_PER_PUBLISHER: usize = 1000;

/// Bytes of one delivery of those that fill the rings.
const FILL_BYTES: usize = 16 << 10;

/// How long anything may take that comes before a measurement.
const PATIENCE: Duration = Duration::from_secs(600);

const ACTIVE: &str = "scale-active";
const ALL: &str = "scale/#";

/// What `rbmq bench scale` can be told.
#[derive(Debug, Clone, Args)]
pub struct ScaleArgs {
    /// Topics, the active one among them, 2 to 10000
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    topics: u32,
    /// Bytes that go through each topic
    #[arg(long, default_value_t = 4 << 20)]
    bytes: u64,
    /// Connections that do nothing, half publishers and half subscribers
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=1800))]
    connections: u32,
    /// Deliveries that are timed beside each number of idle topics
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    deliveries: u32,
    /// Seconds of rest before memory is read
    #[arg(long, default_value_t = 1.0)]
    rest: f64,
    /// Seconds during which the processor time of resting processes is counted
    #[arg(long, default_value_t = 5.0)]
    idle: f64,
    /// All topics at once, a delivery each in turn, instead of one after the other
    #[arg(long)]
    interleaved: bool,
    /// Bytes of each topic's ring, at the publishers, the broker and the subscriber; else the default
    #[arg(long)]
    ring_bytes: Option<u64>,
    /// File for what was measured, one flat JSON object
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
    /// Used by the bench itself: the process is the subscriber of all topics at this address
    #[arg(long, hide = true)]
    subscribe_to: Option<String>,
}

/// The cost of a delivery beside idle topics.
#[derive(Debug, Clone, Serialize)]
struct Cost {
    idle_topics: u32,
    broker_cpu_ns_per_delivery: f64,
    round_trip_us: f64,
}

/// Everything that was measured.
#[derive(Debug, Clone, Default, Serialize)]
struct Scale {
    topics: u32,
    bytes_per_topic: u64,
    interleaved: bool,
    create_s: f64,
    deliveries: Vec<Cost>,
    fill_s: f64,
    broker_busiest: Memory,
    subscriber_busiest: Memory,
    broker: Memory,
    subscriber: Memory,
    publishers: Memory,
    broker_idle_cpu_percent: f64,
    subscriber_idle_cpu_percent: f64,
    connections: u32,
    connect_s: f64,
    bytes_per_connection: f64,
    broker_idle_cpu_percent_with_connections: f64,
}

/// Memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Memory {
    /// As the system counts it: a page that is mapped twice counts twice.
    rss: u64,
    /// Every page once.
    pss: u64,
    /// What the rings have backed, mapped at this moment or not.
    rings: u64,
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> BenchError {
    BenchError::System(Box::new(error))
}

fn name_of(topic: u32) -> String {
    format!("scale/{topic}")
}

impl Memory {
    fn of(pid: u32) -> Self {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let field = |name: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        Self { rss: field("Rss:"), pss: field("Pss:"), rings: ring_bytes_of(pid) }
    }

    /// What the process costs the machine: its pages, and those of its rings that are not mapped right now.
    fn cost(self) -> u64 {
        self.rss.max(self.rings)
    }

    fn most(self, other: Self) -> Self {
        if other.cost() > self.cost() { other } else { self }
    }
}

fn ring_bytes_of(pid: u32) -> u64 {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let rings = fds.flatten().map(|fd| fd.path()).filter(|path| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:rocketring"))
    });
    rings.filter_map(|path| fs::metadata(path).ok()).map(|file| file.blocks() * 512).sum()
}

/// Processor time of all threads of a process, in nanoseconds.
fn cpu_ns(pid: u32) -> u64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let on_cpu = |task: &Path| {
        let text = fs::read_to_string(task.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(|task| on_cpu(&task.path())).sum()
}

fn idle_cpu_percent(pids: [u32; 2], seconds: f64) -> [f64; 2] {
    let before = pids.map(cpu_ns);
    let started = Instant::now();
    thread::sleep(Duration::from_secs_f64(seconds));
    let wall = started.elapsed().as_nanos() as f64;
    [0, 1].map(|i| 100.0 * cpu_ns(pids[i]).saturating_sub(before[i]) as f64 / wall)
}

/// A process of this program, which ends with the bench.
struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    role: &'static str,
}

impl Process {
    fn start(role: &'static str, args: &[&str]) -> Result<Self, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let out = child.stdout.take();
        let (sender, lines) = mpsc::sync_channel(16);
        thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines, role })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that begins with this, and returns the rest of it.
    fn wait_for(&self, prefix: &str) -> Result<String, BenchError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.strip_prefix(prefix) {
                    Some(rest) => return Ok(rest.trim().to_owned()),
                    None => continue,
                },
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(benchkit::Error::WorkerSilent { role: self.role }.into());
                }
                Err(_) => return Err(benchkit::Error::WorkerGone { role: self.role }.into()),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the bench, or the process that subscribes to all topics.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &ScaleArgs) -> Result<(), BenchError> {
    if let Some(addr) = &args.subscribe_to {
        return subscribe(addr, args);
    }
    let sane = |seconds: f64| (0.0..=3600.0).contains(&seconds);
    if !(sane(args.rest) && sane(args.idle) && args.idle > 0.0) {
        return Err(BenchError::BadTime);
    }
    let broker = Process::start("broker", &["serve", "-q", "--listen", "127.0.0.1:0"])?;
    let addr = broker.wait_for("rbmq: listening on")?;
    let subscriber = start_subscriber(&addr, args)?;
    let mut config = Config::load(None).map_err(failed)?;
    crate::broker::raise_descriptor_limit();
    config.limits.max_hold_ms = u32::MAX;
    let bench = Bench { args, broker, subscriber, context: Context::new(config).map_err(failed)?, addr };
    let scale = bench.run()?;
    println!("{}, {}\n{}", sys::cpu(), sys::kernel(), table(&scale));
    match &args.json {
        Some(path) => Ok(fs::write(path, serde_json::to_string(&scale).map_err(failed)? + "\n")?),
        None => Ok(()),
    }
}

fn start_subscriber(addr: &str, args: &ScaleArgs) -> Result<Process, BenchError> {
    let (topics, bytes) = (args.topics.to_string(), args.bytes.to_string());
    let mut words = vec!["bench", "scale", "--subscribe-to", addr, "--topics", &topics, "--bytes", &bytes];
    let ring = args.ring_bytes.map(|bytes| bytes.to_string());
    words.extend(ring.iter().flat_map(|bytes| ["--ring-bytes", bytes]));
    let subscriber = Process::start("subscriber", &words)?;
    subscriber.wait_for("ready")?;
    Ok(subscriber)
}

struct Bench<'a> {
    args: &'a ScaleArgs,
    broker: Process,
    subscriber: Process,
    context: Context,
    addr: String,
}

impl Bench<'_> {
    fn run(&self) -> Result<Scale, BenchError> {
        let args = self.args;
        let mut scale = Scale {
            topics: args.topics,
            bytes_per_topic: args.bytes,
            interleaved: args.interleaved,
            connections: args.connections,
            ..Scale::default()
        };
        let mut topics = Vec::new();
        let mut publishers = Vec::new();
        self.costs(&mut scale, &mut publishers, &mut topics)?;
        self.fill(&mut scale, &mut topics)?;
        thread::sleep(Duration::from_secs_f64(args.rest));
        scale.broker = Memory::of(self.broker.pid());
        scale.subscriber = Memory::of(self.subscriber.pid());
        scale.publishers = Memory::of(std::process::id());
        let pids = [self.broker.pid(), self.subscriber.pid()];
        [scale.broker_idle_cpu_percent, scale.subscriber_idle_cpu_percent] =
            idle_cpu_percent(pids, args.idle);
        self.connections(&mut scale)?;
        Ok(scale)
    }

    fn publisher(&self) -> Result<Publisher, BenchError> {
        Publisher::builder().context(&self.context).connect(&self.addr).map_err(failed)
    }

    fn open(&self, publisher: &Publisher, name: &str) -> Result<TopicWriter, BenchError> {
        let options = TopicOptions { ring_bytes: self.args.ring_bytes, ..TopicOptions::default() };
        publisher.topic_with(name, options).map_err(failed)
    }

    /// Makes the topics step by step, and after each step measures what a delivery costs beside them.
    fn costs(
        &self,
        scale: &mut Scale,
        publishers: &mut Vec<Publisher>,
        topics: &mut Vec<TopicWriter>,
    ) -> Result<(), BenchError> {
        let most = scale.topics - 1;
        let mut steps: Vec<u32> = [1, 100, 1000].into_iter().filter(|step| *step < most).collect();
        steps.push(most);
        let active = self.publisher()?;
        let mut writer = self.open(&active, ACTIVE)?;
        let builder = Subscriber::builder().context(&self.context);
        let mut subscriber = builder.connect(&self.addr).map_err(failed)?;
        subscriber.subscribe(ACTIVE).map_err(failed)?;
        writer.wait_subscribers(1, PATIENCE).map_err(failed)?;
        for step in steps {
            let started = Instant::now();
            while topics.len() < step as usize {
                if topics.len().is_multiple_of(TOPICS_PER_PUBLISHER) {
                    publishers.push(self.publisher()?);
                }
                let publisher = publishers.last().expect("the first topic made one");
                topics.push(self.open(publisher, &name_of(topics.len() as u32))?);
            }
            for topic in topics.iter() {
                topic.wait_subscribers(1, PATIENCE).map_err(failed)?;
            }
            scale.create_s += started.elapsed().as_secs_f64();
            thread::sleep(Duration::from_secs(1));
            let cost = self.cost(&mut writer, &mut subscriber, step)?;
            eprintln!("  {step} idle topics: {:.0} ns a delivery", cost.broker_cpu_ns_per_delivery);
            scale.deliveries.push(cost);
        }
        Ok(())
    }

    fn cost(&self, w: &mut TopicWriter, s: &mut Subscriber, idle_topics: u32) -> Result<Cost, BenchError> {
        let payload = [7; 34];
        let mut once = || -> Result<(), BenchError> {
            w.publish(&payload).map_err(failed)?;
            match s.recv(PATIENCE).map_err(failed)? {
                Some(_) => Ok(()),
                None => Err(benchkit::Error::WorkerSilent { role: "broker" }.into()),
            }
        };
        for _ in 0..200 {
            once()?;
        }
        let (before, started) = (cpu_ns(self.broker.pid()), Instant::now());
        for _ in 0..self.args.deliveries {
            once()?;
        }
        let deliveries = f64::from(self.args.deliveries);
        let cpu = cpu_ns(self.broker.pid()).saturating_sub(before);
        Ok(Cost {
            idle_topics,
            broker_cpu_ns_per_delivery: cpu as f64 / deliveries,
            round_trip_us: started.elapsed().as_secs_f64() * 1e6 / deliveries,
        })
    }

    /// Every topic carries its bytes.
    fn fill(&self, scale: &mut Scale, topics: &mut [TopicWriter]) -> Result<(), BenchError> {
        let started = Instant::now();
        let delivery = vec![7; FILL_BYTES - 4];
        let rounds = (self.args.bytes / FILL_BYTES as u64).max(1);
        let mut looked = Instant::now();
        let mut look = |scale: &mut Scale| {
            if looked.elapsed() > Duration::from_millis(500) {
                looked = Instant::now();
                scale.broker_busiest = scale.broker_busiest.most(Memory::of(self.broker.pid()));
                scale.subscriber_busiest = scale.subscriber_busiest.most(Memory::of(self.subscriber.pid()));
            }
        };
        let (outer, inner) = if self.args.interleaved { (rounds, 1) } else { (1, rounds) };
        for _ in 0..outer {
            for topic in topics.iter_mut() {
                for _ in 0..inner {
                    topic.publish(&delivery).map_err(failed)?;
                }
                look(scale);
            }
        }
        self.subscriber.wait_for("received")?;
        scale.fill_s = started.elapsed().as_secs_f64();
        eprintln!("  {} through {} topics in {:.1} s", bytes(self.args.bytes), topics.len(), scale.fill_s);
        Ok(())
    }

    /// Connections that do nothing.
    fn connections(&self, scale: &mut Scale) -> Result<(), BenchError> {
        let before = Memory::of(self.broker.pid());
        let started = Instant::now();
        let (mut publishers, mut subscribers) = (Vec::new(), Vec::new());
        for number in 0..scale.connections {
            match number % 2 {
                0 => publishers.push(self.publisher()?),
                _ => {
                    let builder = Subscriber::builder().context(&self.context);
                    subscribers.push(builder.connect(&self.addr).map_err(failed)?);
                }
            }
        }
        scale.connect_s = started.elapsed().as_secs_f64();
        thread::sleep(Duration::from_secs_f64(self.args.rest));
        let grown = Memory::of(self.broker.pid()).rss.saturating_sub(before.rss);
        scale.bytes_per_connection = grown as f64 / f64::from(scale.connections.max(1));
        let pid = self.broker.pid();
        [scale.broker_idle_cpu_percent_with_connections, _] = idle_cpu_percent([pid, pid], self.args.idle);
        Ok(())
    }
}

/// The process that subscribes to all topics, and says when it has everything.
fn subscribe(addr: &str, args: &ScaleArgs) -> Result<(), BenchError> {
    let mut builder = Subscriber::builder();
    if let Some(bytes) = args.ring_bytes {
        builder = builder.ring_bytes(bytes);
    }
    let mut subscriber = builder.connect(addr).map_err(failed)?;
    subscriber.subscribe(ALL).map_err(failed)?;
    say("ready")?;
    let rounds = (args.bytes / FILL_BYTES as u64).max(1);
    let mut left = u64::from(args.topics - 1) * rounds * FILL_BYTES as u64;
    while left > 0 {
        if let Some(batch) = subscriber.next_batch(PATIENCE).map_err(failed)? {
            left = left.saturating_sub(batch.as_slice().len() as u64);
        }
    }
    say("received")?;
    // Until the harness lets go of it. The subscriber is kept, and does nothing.
    let _ = std::io::stdin().lock().lines().next();
    Ok(())
}

fn say(line: &str) -> Result<(), BenchError> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

fn bytes(bytes: u64) -> String {
    human(bytes as f64) + "B"
}

fn table(scale: &Scale) -> String {
    let mut lines = Vec::new();
    let mut row = |what: &str, value: String| lines.push(format!("{what:<52} {value:>12}"));
    row("topics", scale.topics.to_string());
    row("bytes through each", bytes(scale.bytes_per_topic));
    row("seconds to make them", format!("{:.2}", scale.create_s));
    for cost in &scale.deliveries {
        let what = format!("broker CPU of a delivery beside {} idle topics", cost.idle_topics);
        row(&what, format!("{:.0} ns", cost.broker_cpu_ns_per_delivery));
    }
    row("seconds to fill them", format!("{:.1}", scale.fill_s));
    for (who, memory) in [
        ("broker while it is busy, at most", scale.broker_busiest),
        ("subscriber while it is busy, at most", scale.subscriber_busiest),
        ("broker at rest", scale.broker),
        ("subscriber of all topics at rest", scale.subscriber),
        ("publishers at rest", scale.publishers),
    ] {
        row(&format!("{who}: resident"), bytes(memory.rss));
        row(&format!("{who}: rings"), bytes(memory.rings));
    }
    row("broker CPU at rest", format!("{:.2} %", scale.broker_idle_cpu_percent));
    row("subscriber CPU at rest", format!("{:.2} %", scale.subscriber_idle_cpu_percent));
    row(&format!("broker memory of each of {} idle connections", scale.connections), {
        bytes(scale.bytes_per_connection as u64)
    });
    row("broker CPU at rest with them", format!("{:.2} %", scale.broker_idle_cpu_percent_with_connections));
    lines.join("\n")
}
