//! `rbmq-bench scale`: idle topics and connections must cost next to nothing.
//!
//! ```text
//!   this process: publishers of N topics ──▶ broker, a process ──▶ subscriber of all of them, a process
//!                 one active topic, and its subscriber beside them
//!                 idle connections
//! ```
//!
//! The bench measures the broker's processor time for a delivery of the active topic while 1, 10, 100, … N topics exist beside
//! it. Then every topic carries its bytes, all processes become idle, and the memory of broker and subscriber is read: resident
//! bytes, and backed bytes of their rings. Last, it measures the broker's memory for idle connections.

use std::{
    fmt::Write as _,
    thread,
    time::{Duration, Instant},
};

use benchkit::{
    control::Control,
    fleet::{Process, words},
    netns::{self, Congestion},
    output::{self, Output, human},
    view::Columns,
};
use clap::Args;
use rbmq::{Publisher, Subscriber, TopicOptions, TopicWriter};
use rocketbufs::{Config, Context, config::TransportKind};
use serde::Serialize;

use crate::{
    campaign::{check_times, in_force},
    error::BenchError,
    measure::add_congestion,
    memory::Memory,
    rbmq_peers::{config, failed},
    report::Setting,
    systems::System,
    units,
};

/// Topics of one publisher: fewer than a broker allows one by default.
const TOPICS_PER_PUBLISHER: usize = 1000;

/// Bytes of a delivery that fills the rings.
const FILL_BYTES: usize = 16 << 10;
const FILLING: [u8; FILL_BYTES - 4] = [7; FILL_BYTES - 4];

/// How long anything may take that comes before a measurement.
const PATIENCE: Duration = Duration::from_secs(600);

const ACTIVE: &str = "scale-active";
const ALL: &str = "scale/#";

/// The options of `rbmq-bench scale`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench scale --topics 100 --bytes 64k --connections 10 --idle 1s --reps 1
  rbmq-bench scale --interleaved")]
pub struct ScaleArgs {
    /// Topics, the active one among them, 2 to 10000
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    topics: u32,
    /// Bytes that go through each topic
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = units::bytes)]
    bytes: u64,
    /// Connections that do nothing, half publishers and half subscribers
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=1800))]
    connections: u32,
    /// Deliveries that are timed together beside each number of idle topics
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    deliveries: u32,
    /// How often they are timed; the table shows medians and 95 % intervals
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// How long it rests before memory is read
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::seconds)]
    rest: f64,
    /// How long the processor time of resting processes is counted
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = units::seconds)]
    idle: f64,
    /// All topics at once, a delivery each in turn, instead of one after the other
    #[arg(long)]
    interleaved: bool,
    /// Bytes of each topic's ring, at the publishers, the broker and the subscriber; else the default
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    ring_bytes: Option<u64>,
    /// TCP congestion control of all processes
    #[arg(long, default_value = "cubic")]
    congestion: String,
    #[command(flatten)]
    output: Output,
}

/// The options of the subscriber of all topics.
#[derive(Debug, Args)]
pub struct All {
    /// Address of the broker
    #[arg(long)]
    addr: String,
    /// Bytes that come in all, with their lengths
    #[arg(long)]
    bytes: u64,
    /// Bytes of each topic's ring; else the default
    #[arg(long)]
    ring_bytes: Option<u64>,
    /// Congestion control to set on every socket
    #[arg(long)]
    congestion: Option<String>,
}

/// The cost of a delivery beside idle topics: a flat object in the JSON.
#[derive(Debug, Clone, Serialize)]
struct Cost {
    idle_topics: u32,
    rep: u32,
    broker_cpu_ns_per_delivery: f64,
    round_trip_us: f64,
    #[serde(flatten)]
    setting: Setting,
}

/// The figures of a run.
#[derive(Debug, Clone, Default)]
struct Scale {
    create_s: f64,
    costs: Vec<Cost>,
    fill_s: f64,
    broker_busiest: Memory,
    subscriber_busiest: Memory,
    broker: Memory,
    subscriber: Memory,
    publishers: Memory,
    broker_idle_cpu_percent: f64,
    subscriber_idle_cpu_percent: f64,
    connect_s: f64,
    bytes_per_connection: f64,
    broker_idle_cpu_percent_with_connections: f64,
}

fn name_of(topic: u32) -> String {
    format!("scale/{topic}")
}

fn idle_cpu_percent(processes: [&Process; 2], seconds: f64) -> [f64; 2] {
    let before = processes.map(Process::cpu_s);
    let started = Instant::now();
    thread::sleep(Duration::from_secs_f64(seconds));
    let wall = started.elapsed().as_secs_f64();
    [0, 1].map(|i| 100.0 * (processes[i].cpu_s() - before[i]).max(0.0) / wall)
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system_version"],
    load: &["idle_topics"],
    figures: &["broker_cpu_ns_per_delivery", "round_trip_us"],
    ours: "rbmq",
};

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &ScaleArgs) -> Result<(), BenchError> {
    const NAME: &str = "scale";
    check_times(args.idle, args.rest)?;
    let congestion = netns::set_congestion(&args.congestion);
    let bench = Bench::start(args, congestion)?;
    let scale = bench.run()?;
    args.output.write_rows(NAME, &scale.costs)?;
    let text = format!("{}\n{}\n{}", bench.head(), COLUMNS.table(&scale.costs)?, table(args, &scale));
    Ok(args.output.publish(NAME, &text)?)
}

struct Bench<'a> {
    args: &'a ScaleArgs,
    broker: Process,
    subscriber: Process,
    context: Context,
    addr: String,
    congestion: Congestion,
}

impl<'a> Bench<'a> {
    fn start(args: &'a ScaleArgs, congestion: Congestion) -> Result<Bench<'a>, BenchError> {
        let mut words_of_broker = words(&["broker"]);
        add_congestion(&mut words_of_broker, congestion.for_sockets());
        let broker = Process::start("broker", &words_of_broker)?;
        let addr = broker.answer("ready")?.pop().unwrap_or_default();
        let bytes = u64::from(args.topics - 1) * rounds(args) * FILL_BYTES as u64;
        let mut words_of_all = words(&["scale-subscriber", "--addr", &addr, "--bytes", &bytes.to_string()]);
        if let Some(bytes) = args.ring_bytes {
            words_of_all.extend(words(&["--ring-bytes", &bytes.to_string()]));
        }
        add_congestion(&mut words_of_all, congestion.for_sockets());
        let subscriber = Process::start("subscriber of all topics", &words_of_all)?;
        subscriber.answer("ready")?;
        rbmq_broker::raise_descriptor_limit();
        let mut config: Config = config(TransportKind::Tcp, congestion.for_sockets())?;
        config.limits.max_hold_ms = u32::MAX;
        let context = Context::new(config).map_err(failed)?;
        Ok(Bench { args, broker, subscriber, context, addr, congestion })
    }

    fn head(&self) -> String {
        let (version, congestion) = (env!("CARGO_PKG_VERSION"), in_force(&self.congestion));
        let ScaleArgs { deliveries, reps, .. } = self.args;
        output::head(&format!("rbmq {version}\n{congestion}; {deliveries} deliveries, {reps} repetitions"))
    }

    fn run(&self) -> Result<Scale, BenchError> {
        let args = self.args;
        let mut scale = Scale::default();
        let mut topics = Vec::new();
        let mut publishers = Vec::new();
        self.costs(&mut scale, &mut publishers, &mut topics)?;
        self.fill(&mut scale, &mut topics)?;
        thread::sleep(Duration::from_secs_f64(args.rest));
        scale.broker = Memory::of(self.broker.id());
        scale.subscriber = Memory::of(self.subscriber.id());
        scale.publishers = Memory::of(std::process::id());
        [scale.broker_idle_cpu_percent, scale.subscriber_idle_cpu_percent] =
            idle_cpu_percent([&self.broker, &self.subscriber], args.idle);
        self.connections(&mut scale)?;
        Ok(scale)
    }

    fn publisher(&self) -> Result<Publisher, BenchError> {
        Publisher::builder().context(&self.context).connect(&self.addr).map_err(failed)
    }

    fn open(&self, publisher: &Publisher, name: &str) -> Result<TopicWriter, BenchError> {
        let options = self
            .args
            .ring_bytes
            .map_or_else(TopicOptions::default, |bytes| TopicOptions::default().ring_bytes(bytes));
        publisher.topic_with(name, options).map_err(failed)
    }

    /// Makes the topics step by step, and measures the cost of a delivery after each step.
    fn costs(
        &self,
        scale: &mut Scale,
        publishers: &mut Vec<Publisher>,
        topics: &mut Vec<TopicWriter>,
    ) -> Result<(), BenchError> {
        let most = self.args.topics - 1;
        let mut steps: Vec<u32> = [1, 10, 100, 1000].into_iter().filter(|step| *step < most).collect();
        steps.push(most);
        let active = self.publisher()?;
        let mut writer = self.open(&active, ACTIVE)?;
        let builder = Subscriber::builder().context(&self.context);
        let mut subscriber = builder.connect(&self.addr).map_err(failed)?;
        subscriber.subscribe(ACTIVE).map_err(failed)?;
        writer.wait_subscribers(1, Some(PATIENCE)).map_err(failed)?;
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
                topic.wait_subscribers(1, Some(PATIENCE)).map_err(failed)?;
            }
            scale.create_s += started.elapsed().as_secs_f64();
            thread::sleep(Duration::from_secs(1));
            for rep in 0..self.args.reps {
                let cost = self.cost(&mut writer, &mut subscriber, step, rep)?;
                eprintln!("  {step} idle topics: {:.0} ns a delivery", cost.broker_cpu_ns_per_delivery);
                scale.costs.push(cost);
            }
        }
        Ok(())
    }

    fn cost(
        &self,
        w: &mut TopicWriter,
        s: &mut Subscriber,
        idle_topics: u32,
        rep: u32,
    ) -> Result<Cost, BenchError> {
        let payload = [7; 34];
        let mut once = || -> Result<(), BenchError> {
            w.publish(&payload).map_err(failed)?;
            match s.recv(Some(PATIENCE)).map_err(failed)? {
                Some(message) if message.bytes == payload => Ok(()),
                Some(_) => Err(BenchError::WrongByte { topic: 0, after_messages: 0 }),
                None => Err(benchkit::Error::WorkerSilent { role: "broker".to_owned() }.into()),
            }
        };
        for _ in 0..200 {
            once()?;
        }
        let (before, started) = (self.broker.cpu_s(), Instant::now());
        for _ in 0..self.args.deliveries {
            once()?;
        }
        let deliveries = f64::from(self.args.deliveries);
        Ok(Cost {
            idle_topics,
            rep,
            broker_cpu_ns_per_delivery: (self.broker.cpu_s() - before) * 1e9 / deliveries,
            round_trip_us: started.elapsed().as_secs_f64() * 1e6 / deliveries,
            setting: Setting::new(System::Rbmq, env!("CARGO_PKG_VERSION"), &self.congestion),
        })
    }

    /// Every topic carries its bytes.
    fn fill(&self, scale: &mut Scale, topics: &mut [TopicWriter]) -> Result<(), BenchError> {
        let started = Instant::now();
        let rounds = rounds(self.args);
        let mut looked = Instant::now();
        let mut look = |scale: &mut Scale| {
            if looked.elapsed() > Duration::from_millis(500) {
                looked = Instant::now();
                scale.broker_busiest = scale.broker_busiest.most(Memory::of(self.broker.id()));
                scale.subscriber_busiest = scale.subscriber_busiest.most(Memory::of(self.subscriber.id()));
            }
        };
        let (outer, inner) = if self.args.interleaved { (rounds, 1) } else { (1, rounds) };
        for _ in 0..outer {
            for topic in topics.iter_mut() {
                for _ in 0..inner {
                    topic.publish(&FILLING).map_err(failed)?;
                }
                look(scale);
            }
        }
        self.subscriber.answer_within("total", PATIENCE)?;
        scale.fill_s = started.elapsed().as_secs_f64();
        eprintln!("  {} through {} topics in {:.1} s", bytes(self.args.bytes), topics.len(), scale.fill_s);
        Ok(())
    }

    /// Connections that do nothing.
    fn connections(&self, scale: &mut Scale) -> Result<(), BenchError> {
        let before = Memory::of(self.broker.id());
        let started = Instant::now();
        let connections = self.args.connections;
        let (mut publishers, mut subscribers) = (Vec::new(), Vec::new());
        for number in 0..connections {
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
        let grown = Memory::of(self.broker.id()).rss.saturating_sub(before.rss);
        scale.bytes_per_connection = grown as f64 / f64::from(connections.max(1));
        let both = [&self.broker, &self.subscriber];
        [scale.broker_idle_cpu_percent_with_connections, _] = idle_cpu_percent(both, self.args.idle);
        Ok(())
    }
}

/// How many deliveries go through each topic.
fn rounds(args: &ScaleArgs) -> u64 {
    (args.bytes / FILL_BYTES as u64).max(1)
}

/// The process that subscribes to all topics, and reports when it has everything.
///
/// # Errors
/// The broker is gone, or a byte was wrong.
pub fn subscribe(args: &All) -> Result<(), BenchError> {
    let control = Control::start();
    let mut builder = Subscriber::builder().config(config(TransportKind::Tcp, args.congestion.as_deref())?);
    if let Some(bytes) = args.ring_bytes {
        builder = builder.ring_bytes(bytes);
    }
    let mut subscriber = builder.connect(&args.addr).map_err(failed)?;
    subscriber.subscribe(ALL).map_err(failed)?;
    control.ready("");
    let mut came = 0;
    while came < args.bytes {
        if let Some(batch) = subscriber.next_batch(Some(PATIENCE)).map_err(failed)? {
            if !batch.records().all(|record| record == FILLING) {
                return Err(BenchError::WrongByte { topic: 0, after_messages: came / FILL_BYTES as u64 });
            }
            came += batch.as_slice().len() as u64;
        }
    }
    control.finish(&[came])
}

fn bytes(bytes: u64) -> String {
    human(bytes as f64) + "B"
}

fn table(args: &ScaleArgs, scale: &Scale) -> String {
    let mut out = String::from("| what | |\n|---|---:|\n");
    let mut row = |what: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| {what} | {value} |");
    };
    let order = if args.interleaved { "all at once" } else { "one after the other" };
    row("topics", args.topics.to_string());
    row("seconds to make them", format!("{:.2}", scale.create_s));
    row(&format!("bytes through each, {order}"), bytes(args.bytes));
    row("seconds for that", format!("{:.1}", scale.fill_s));
    for (who, memory) in [
        ("broker while it is busy, at most", scale.broker_busiest),
        ("subscriber while it is busy, at most", scale.subscriber_busiest),
        ("broker at rest", scale.broker),
        ("subscriber of all topics at rest", scale.subscriber),
        ("publishers at rest", scale.publishers),
    ] {
        // Memory was not measured during the full load.
        if memory.rss > 0 {
            row(&format!("{who}: resident"), bytes(memory.rss));
            row(&format!("{who}: rings"), bytes(memory.rings));
        }
    }
    row("broker CPU at rest", format!("{:.2} %", scale.broker_idle_cpu_percent));
    row("subscriber CPU at rest", format!("{:.2} %", scale.subscriber_idle_cpu_percent));
    row(&format!("seconds to make {} connections", args.connections), format!("{:.2}", scale.connect_s));
    row("broker memory of each while idle", bytes(scale.bytes_per_connection as u64));
    row("broker CPU at rest with them", format!("{:.2} %", scale.broker_idle_cpu_percent_with_connections));
    out
}
