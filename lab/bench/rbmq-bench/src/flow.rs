//! `rbmq-bench flow`: the cost of flow control, in instructions and system calls per delivered MiB.
//!
//! The same bytes go at the same pace from a source through a hop to a sink, with flow control and without (see
//! `flow_peers`). Paper 1 has both in figure 5 and the cost in its section 4.2. The bench does not compare rates, since a
//! source without flow control has any rate.

use std::{cell::Cell, path::PathBuf, time::Duration};

use benchkit::{
    fleet::{Process, words},
    folder::{Folder, unused},
    netns::{self, Congestion},
    output::{self, Output},
    turns::Series,
    view::Columns,
};
use clap::Args;
use serde::Serialize;

use crate::{
    campaign::{check_times, in_force},
    counters::{self, Counts, Perf},
    error::BenchError,
    measure::add_congestion,
    report::Setting,
    systems::System,
    units,
};

/// Valgrind takes seconds to start a program, and everything is many times slower.
const WITHIN: Duration = Duration::from_secs(120);

/// So many times slower bursts come where valgrind counts; they are as large, so that as much goes at once.
const SLOWER: u32 = 20;

/// Bursts of the two runs of which valgrind's counts are the difference: what starting costs is in both.
const SHORT_AND_LONG: [u32; 2] = [50, 150];

/// The counted processes, in the order of their start.
const SIDES: [&str; 3] = ["publisher", "broker", "subscriber"];

/// The options of `rbmq-bench flow`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench flow --sizes 256 --seconds 500ms --reps 1 --valgrind-reps 0
  rbmq-bench flow")]
pub struct FlowArgs {
    /// Payload bytes of a delivery
    #[arg(long, value_delimiter = ',', default_value = "256,65536")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    sizes: Vec<u32>,
    /// Bytes that are handed over at once
    #[arg(long, default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    burst_bytes: u32,
    /// Bursts per second; without flow control too many overwrite unread bytes, which ends the bench
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    bursts_per_s: u32,
    /// How long each measurement takes
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::seconds)]
    seconds: f64,
    /// Repetitions of each point; the table shows medians and 95 % intervals
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    /// In how many of them valgrind counts instructions, where the processor's counters are out of reach
    #[arg(long, default_value_t = 1)]
    valgrind_reps: u32,
    /// TCP congestion control of all processes
    #[arg(long, default_value = "cubic")]
    congestion: String,
    #[command(flatten)]
    output: Output,
}

/// A measurement: a flat object in the JSON. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize)]
struct Row {
    flow_control: bool,
    size_bytes: u32,
    rep: u32,
    asked_bytes_per_s: f64,
    delivered_bytes: u64,
    /// `perf` or `valgrind`; nothing where they were not counted.
    instructions_by: Option<&'static str>,
    #[serde(flatten)]
    figures: Figures,
    #[serde(flatten)]
    setting: Setting,
}

/// Per delivered MiB; none where it could not be counted.
#[derive(Debug, Clone, Default, Serialize)]
struct Figures {
    publisher_instructions_per_mib: Option<f64>,
    broker_instructions_per_mib: Option<f64>,
    subscriber_instructions_per_mib: Option<f64>,
    publisher_system_calls_per_mib: Option<f64>,
    broker_system_calls_per_mib: Option<f64>,
    subscriber_system_calls_per_mib: Option<f64>,
    publisher_cpu_us_per_mib: f64,
    broker_cpu_us_per_mib: f64,
    subscriber_cpu_us_per_mib: f64,
}

const COLUMNS: Columns<'static> = Columns {
    who: &["flow_control"],
    load: &["size_bytes"],
    figures: &[
        "broker_cpu_us_per_mib",
        "publisher_cpu_us_per_mib",
        "subscriber_cpu_us_per_mib",
        "publisher_instructions_per_mib",
        "broker_instructions_per_mib",
        "subscriber_instructions_per_mib",
        "publisher_system_calls_per_mib",
        "broker_system_calls_per_mib",
        "subscriber_system_calls_per_mib",
    ],
    ours: "true",
};

/// The stream of a measured point.
#[derive(Clone, Copy)]
struct Stream {
    flow_control: bool,
    size: u32,
    bursts: u32,
    every: Duration,
}

/// The resources that each of the three processes used, and the delivered bytes.
struct Used {
    counts: [Counts; 3],
    cpu_s: [f64; 3],
    bytes: u64,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &FlowArgs) -> Result<(), BenchError> {
    const NAME: &str = "flow";
    check_times(args.seconds, 0.0)?;
    let congestion = netns::set_congestion(&args.congestion);
    let bench = Bench { args, congestion, valgrind: Cell::new(counters::has_valgrind()) };
    let loads: Vec<_> = args.sizes.iter().map(|size| vec![(*size, true), (*size, false)]).collect();
    let series = Series { reps: args.reps, name: NAME, output: &args.output, by_load: true };
    let rows = series.run(&loads, |&(size, flow_control), rep| {
        let row = bench.measure(size, flow_control, rep)?;
        Ok::<_, BenchError>((vec![row], format!("{size:>7} B  {:<3} #{rep}", on_off(flow_control))))
    })?;
    let text = format!("{}\n{}", bench.head(), COLUMNS.table(&rows)?);
    Ok(args.output.publish(NAME, &text)?)
}

fn on_off(flow_control: bool) -> &'static str {
    if flow_control { "on" } else { "off" }
}

struct Bench<'a> {
    args: &'a FlowArgs,
    congestion: Congestion,
    /// Whether it is there and runs these programs.
    valgrind: Cell<bool>,
}

impl Bench<'_> {
    fn head(&self) -> String {
        let args = self.args;
        output::head(&format!(
            "rbmq {}\n{}; {} bytes every {} us for {} s, {} repetitions",
            env!("CARGO_PKG_VERSION"),
            in_force(&self.congestion),
            args.burst_bytes,
            1_000_000 / args.bursts_per_s,
            args.seconds,
            args.reps,
        ))
    }

    fn measure(&self, size: u32, flow_control: bool, rep: u32) -> Result<Row, BenchError> {
        let args = self.args;
        let every = Duration::from_secs(1) / args.bursts_per_s;
        let bursts = ((args.seconds * f64::from(args.bursts_per_s)) as u32).max(1);
        let stream = Stream { flow_control, size, bursts, every };
        let used = self.run(stream, false)?;
        let per_mib = |figure: f64| figure * f64::from(1 << 20) / used.bytes as f64;
        let mut instructions = used.counts.map(|counts| counts.instructions.map(per_mib));
        let mut by = instructions[0].map(|_| "perf");
        if by.is_none() && self.valgrind.get() && rep < args.valgrind_reps {
            instructions =
                self.by_valgrind(Stream { every: every * SLOWER, ..stream }).unwrap_or_else(|error| {
                    eprintln!("NOT COUNTED: instructions, as valgrind does not run this: {error}");
                    self.valgrind.set(false);
                    [None; 3]
                });
            by = instructions[0].map(|_| "valgrind");
        }
        let calls = used.counts.map(|counts| counts.system_calls.map(per_mib));
        let cpu_us = used.cpu_s.map(|seconds| per_mib(seconds * 1e6));
        Ok(Row {
            flow_control,
            size_bytes: size,
            rep,
            asked_bytes_per_s: f64::from(args.burst_bytes) * f64::from(args.bursts_per_s),
            delivered_bytes: used.bytes,
            instructions_by: by,
            figures: Figures {
                publisher_instructions_per_mib: instructions[0],
                broker_instructions_per_mib: instructions[1],
                subscriber_instructions_per_mib: instructions[2],
                publisher_system_calls_per_mib: calls[0],
                broker_system_calls_per_mib: calls[1],
                subscriber_system_calls_per_mib: calls[2],
                publisher_cpu_us_per_mib: cpu_us[0],
                broker_cpu_us_per_mib: cpu_us[1],
                subscriber_cpu_us_per_mib: cpu_us[2],
            },
            setting: Setting::new(System::Rbmq, env!("CARGO_PKG_VERSION"), &self.congestion),
        })
    }

    /// Instructions per MiB, from the difference of a long and a short run.
    fn by_valgrind(&self, stream: Stream) -> Result<[Option<f64>; 3], BenchError> {
        let [short, long] = SHORT_AND_LONG.map(|bursts| self.run(Stream { bursts, ..stream }, true));
        let (short, long) = (short?, long?);
        let mib = (long.bytes - short.bytes) as f64 / f64::from(1 << 20);
        let of =
            |side: usize| Some((long.counts[side].instructions? - short.counts[side].instructions?) / mib);
        Ok([of(0), of(1), of(2)])
    }

    /// Starts the three, lets everything through, and counts.
    fn run(&self, stream: Stream, valgrind: bool) -> Result<Used, BenchError> {
        let folder = Folder::make(unused("rbmq-bench"))?;
        let file = |side: usize| valgrind.then(|| folder.path().join(SIDES[side]));
        let mut all: Vec<Process> = Vec::new();
        let mut from = String::new();
        for side in 0..SIDES.len() {
            let process = self.start(stream, side, &from, file(side))?;
            from = process.answer_within("ready", WITHIN)?.pop().unwrap_or_default();
            all.push(process);
        }
        let mut perfs = Vec::new();
        if !valgrind {
            for (process, side) in all.iter().zip(SIDES) {
                perfs.push(Perf::start(process.id(), folder.path(), side)?);
            }
        }
        let cpu_s = |all: &[Process]| [0, 1, 2].map(|side| all[side].cpu_s());
        let before = cpu_s(&all);
        all[0].send("go")?;
        let seconds = stream.every * stream.bursts;
        let sent = all[0].numbers_within("total", seconds * 2 + WITHIN)?;
        let expected = sent.first().copied().unwrap_or(0);
        all[2].send(&format!("expect {expected}"))?;
        let came = all[2].numbers_within("total", WITHIN)?;
        if came != sent {
            return Err(BenchError::Overwritten { after_messages: came.first().copied().unwrap_or(0) });
        }
        let after = cpu_s(&all);
        let mut counts = [Counts::default(); 3];
        for (counts, perf) in counts.iter_mut().zip(perfs) {
            *counts = perf.map(Perf::stop).unwrap_or_default();
        }
        if valgrind {
            // The sink ends first, so that no process loses its peer.
            all.into_iter().rev().for_each(Process::end);
            for (side, counts) in counts.iter_mut().enumerate() {
                counts.instructions = file(side).and_then(|file| counters::instructions_in(&file));
            }
        }
        let cpu_s = [0, 1, 2].map(|side| after[side] - before[side]);
        Ok(Used { counts, cpu_s, bytes: expected * u64::from(stream.size) })
    }

    fn start(
        &self,
        stream: Stream,
        side: usize,
        from: &str,
        file: Option<PathBuf>,
    ) -> Result<Process, BenchError> {
        let size = stream.size.to_string();
        let burst = (self.args.burst_bytes / stream.size).max(1).to_string();
        let (bursts, every) = (stream.bursts.to_string(), stream.every.as_micros().to_string());
        let mut args = match side {
            0 => words(&["flow-source", "--burst", &burst, "--bursts", &bursts, "--every-us", &every]),
            1 => words(&["flow-hop", "--from", from]),
            _ => words(&["flow-sink", "--from", from]),
        };
        args.extend(words(&["--size", &size]));
        if !stream.flow_control {
            args.extend(words(&["--no-flow-control"]));
        }
        add_congestion(&mut args, self.congestion.for_sockets());
        let Some(file) = file else { return Ok(Process::start(SIDES[side], &args)?) };
        let mut command = counters::valgrind(&std::env::current_exe()?, &file);
        command.arg("worker").args(&args);
        Ok(Process::spawn(SIDES[side], command)?)
    }
}
