//! `rbmq bench`: what a broker between publishers and subscribers can carry, measured beside the least that
//! could be there in its place.
//!
//! ```text
//!   harness (this process) ──pipes──┬── publisher 0 ──┐                ┌── subscriber 0
//!     counts, CPU, other load       ├── publisher 1 ──┴── broker, or ──┼── subscriber 1
//!                                   └── …                 bare relay   └── …
//! ```
//!
//! Every box is a process of its own, made of this same program, joined by loopback TCP. Every byte that
//! arrives is compared with what that topic has to hold at that place (`pattern`). Repetitions of the systems
//! alternate, so that what disturbs the machine disturbs them alike. What is measured, and what cannot be
//! seen this way, is written in bench/README.md.
#![forbid(unsafe_code)]

mod control;
mod fleet;
mod measure;
mod pattern;
mod rbmq_peers;
mod relay;
mod relay_peers;
mod report;
mod scale;
mod sys;
mod worker;

use std::{io, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use measure::{Method, Point};
use report::Row;

/// A point during which others kept more cores busy than this is measured again.
const DISTURBED_CORES: f64 = 0.2;

/// Measure the broker
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Messages per second from publishers through the broker to subscribers, on loopback TCP
    Throughput(ThroughputArgs),
    /// What ten thousand topics and a thousand connections cost while they do nothing
    Scale(scale::ScaleArgs),
    #[command(hide = true, subcommand)]
    /// One process of a bench; started by the bench itself
    Worker(worker::Worker),
}

/// What `rbmq bench throughput` can be told.
#[derive(Debug, Args)]
pub struct ThroughputArgs {
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rbmq")]
    system: Vec<System>,
    /// What is measured beside it, in turn
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Vec<System>,
    /// One public call per message, or a segment filled with many; the relay knows batches only
    #[arg(long, value_enum, value_delimiter = ',', default_value = "batch")]
    api: Vec<Api>,
    /// Payload bytes of a message, 1 to 16777216
    #[arg(long, value_delimiter = ',', default_value = "8,64,256,1024,4096,16384,65536,524288")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    sizes: Vec<u32>,
    /// Publishers, each with its own topic, 1 to 64
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    publishers: u8,
    /// Subscribers, each with all topics; 0 measures what the broker takes in
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    subscribers: Vec<u32>,
    /// Seconds of the window that is measured
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seconds before the window
    #[arg(long, default_value_t = 0.5)]
    warmup: f64,
    /// Repetitions of each point; the table shows medians
    #[arg(long, default_value_t = 3)]
    reps: u32,
    /// How often a disturbed point is measured again; the least disturbed one is kept
    #[arg(long, default_value_t = 3)]
    retries: u32,
    /// TCP congestion control of everybody
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// Bytes of a topic's ring; else what is configured, or room for 8 messages where that is more
    #[arg(long)]
    ring_bytes: Option<u64>,
    /// Bytes that the relay reads at once
    #[arg(long, default_value_t = 1024 * 1024)]
    relay_read_bytes: usize,
    /// File for the rows, one flat JSON object per measurement
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,
}

/// Who is between publishers and subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// RBMQ's broker and client library
    Rbmq,
    /// A bare fan-out relay: reads, and writes the same bytes to everybody
    Relay,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            System::Rbmq => "rbmq",
            System::Relay => "relay",
        }
    }

    fn has(self, api: Api) -> bool {
        self != System::Relay || api == Api::Batch
    }
}

/// How a program hands messages over and takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// One public call per message published, one item per message received
    Message,
    /// Many messages are handed over and taken at once
    Batch,
}

impl Api {
    fn name(self) -> &'static str {
        match self {
            Api::Message => "message",
            Api::Batch => "batch",
        }
    }
}

/// Why a bench gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The system refused something; the text says what.
    #[error("the system refused: {0}")]
    Io(#[from] io::Error),
    /// The arguments leave nothing to measure.
    #[error("nothing to measure: the relay has --api batch only")]
    NothingToMeasure,
    /// A time on the command line is no time.
    #[error("--seconds must be above 0 and --warmup at least 0, both at most 3600")]
    BadTime,
    /// A worker ended; its own message is on standard error.
    #[error("the {role} ended unasked; see its message above")]
    WorkerGone {
        /// Which one.
        role: &'static str,
    },
    /// A worker does not answer.
    #[error(
        "the {role} did not answer in time: the system under test stands still, or the machine is overloaded"
    )]
    WorkerSilent {
        /// Which one.
        role: &'static str,
    },
    /// A worker of another version, or a program that is no worker.
    #[error("the {role} said {line:?}, which is not an answer: are program and worker of one version?")]
    WorkerSaid {
        /// Which one.
        role: &'static str,
        /// What it said.
        line: String,
    },
    /// The system under test delivered wrong bytes: its fault, and the result is worth nothing.
    #[error(
        "wrong byte in topic {topic}, within the messages that follow number {after_messages}: the system under test damaged, lost or repeated data"
    )]
    WrongByte {
        /// The topic's number.
        topic: u64,
        /// Messages that were right before.
        after_messages: u64,
    },
    /// The broker, or the library, refused or failed.
    #[error("the system under test failed: {0}")]
    System(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The system under test mixed topics up.
    #[error("messages of topic '{name}' arrived, which nobody asked for")]
    StrangeTopic {
        /// The topic.
        name: String,
    },
    /// Nothing came for minutes and nobody said that it was over.
    #[error("nothing arrived for ten minutes and the harness said nothing")]
    Silence,
    /// Something else connected to the relay's port.
    #[error("a connection began with byte {role}: only bench workers may connect to the relay")]
    Stranger {
        /// The first byte it sent.
        role: u8,
    },
}

impl From<rustix::io::Errno> for BenchError {
    fn from(errno: rustix::io::Errno) -> BenchError {
        BenchError::Io(errno.into())
    }
}

/// Runs a bench, or one worker of it.
///
/// # Errors
/// Why there is no result; nothing stays behind.
pub fn run(command: BenchCommand) -> Result<(), BenchError> {
    match command {
        BenchCommand::Throughput(args) => throughput(&args),
        BenchCommand::Scale(args) => scale::run(&args),
        BenchCommand::Worker(worker) => worker::run(worker),
    }
}

fn throughput(args: &ThroughputArgs) -> Result<(), BenchError> {
    let sane = |seconds: f64| (0.0..=3600.0).contains(&seconds);
    if !(sane(args.seconds) && args.seconds > 0.0 && sane(args.warmup)) {
        return Err(BenchError::BadTime);
    }
    let points = points(args);
    if points.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let method = Method {
        warmup: Duration::from_secs_f64(args.warmup),
        window: Duration::from_secs_f64(args.seconds),
        congestion: sys::settle_congestion(&args.congestion)?,
        ring_bytes: args.ring_bytes,
        relay_read_bytes: args.relay_read_bytes,
    };
    let mut rows: Vec<Row> = Vec::new();
    for load in &points {
        for rep in 0..args.reps {
            for point in load {
                rows.push(least_disturbed(point, &method, rep, args.retries)?);
                progress(rows.last().expect("just pushed"));
            }
        }
        if let Some(path) = &args.json {
            report::write_json(path, &rows)?;
        }
    }
    println!("{}", sys::machine());
    println!("window {} s, {} repetitions, {}\n", args.seconds, args.reps, in_force(&method.congestion));
    print!("{}", report::table(&rows));
    Ok(())
}

/// All points, those with the same load together: they are measured in turn.
fn points(args: &ThroughputArgs) -> Vec<Vec<Point>> {
    let mut loads = Vec::new();
    for &subscribers in &args.subscribers {
        for &size in &args.sizes {
            let mut load: Vec<Point> = Vec::new();
            for &system in args.system.iter().chain(&args.against) {
                let apis = args.api.iter().filter(|api| system.has(**api));
                load.extend(apis.map(|&api| Point {
                    system,
                    api,
                    size: size as usize,
                    publishers: args.publishers,
                    subscribers,
                }));
            }
            if !load.is_empty() {
                loads.push(load);
            }
        }
    }
    loads
}

fn least_disturbed(point: &Point, method: &Method, rep: u32, retries: u32) -> Result<Row, BenchError> {
    let mut best = measure::measure(point, method, rep)?;
    for _ in 0..retries {
        if best.other_cores <= DISTURBED_CORES {
            break;
        }
        eprintln!("  others kept {:.2} cores busy: once more", best.other_cores);
        let row = measure::measure(point, method, rep)?;
        if row.other_cores < best.other_cores {
            best = row;
        }
    }
    Ok(best)
}

fn progress(row: &Row) {
    eprintln!(
        "{:>7} B  {} → {:<3} {:<5} {:<7} #{}  {:>8} msg/s  {:6.2} GB/s  lost {}  others {:.2}",
        row.size_bytes,
        row.publishers,
        row.subscribers,
        row.system.name(),
        row.api.name(),
        row.rep,
        report::human(row.rate()),
        row.rate() * row.size_bytes as f64 / 1e9,
        row.lost,
        row.other_cores,
    );
}

fn in_force(congestion: &sys::Congestion) -> String {
    match congestion {
        sys::Congestion::Namespace(name) => format!("{name} by the network namespace"),
        sys::Congestion::Sockets(name) => format!("{name} set on every socket"),
    }
}
