//! `rbmq-bench direct`: two processes and the memory between them, no broker: RocketBufs beside Aeron's IPC and iceoryx2.
//!
//! ```text
//!   harness ──pipes──┬── publish ──▶ subscribe        one way: at full rate, every byte summed
//!                    └── ping ◀────▶ pong             round trips: one message in flight
//! ```
//!
//! Every system runs the same loops (`benchkit::direct`; Aeron's are in Java), each as its makers intend: RocketBufs sleeps
//! while no message comes, and with `--spin-us` spins for a while before it sleeps; the others spin. The systems and the start
//! of their processes are in `direct_systems`.

use std::{thread, time::Duration};

use benchkit::{
    direct::Role,
    fleet::{Process, Used},
    named::Named,
    output::{Output, human},
    sys,
    turns::Series,
    view::Columns,
};
use clap::Args;
use serde::Serialize;

use crate::{
    campaign::{Timing, check_times, least_disturbed_of},
    direct_systems::{Meeting, Runner, System},
    error::BenchError,
    report::Setting,
};

/// A JVM takes seconds to start, more of them on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The options of `rbmq-bench direct`.
#[derive(Debug, Args)]
#[command(mut_arg("seconds", |seconds| seconds.default_value("1s")))]
#[command(mut_arg("warmup", |warmup| warmup.default_value("1s")))]
#[command(mut_arg("reps", |reps| reps.default_value("6")))]
#[command(after_help = "Examples:
  rbmq-bench direct --sizes 64 --seconds 500ms --warmup 200ms --reps 1
  rbmq-bench direct --spin-us 50")]
pub struct DirectArgs {
    /// Systems of ours to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rocketbufs,rocketbufs-trusting")]
    system: Vec<System>,
    /// Systems to measure beside them, in turn
    #[arg(long, value_enum, value_delimiter = ',')]
    against: Vec<System>,
    /// Bytes of a message one way
    #[arg(long, value_delimiter = ',', default_value = "8,64,256,1024",
          value_parser = clap::value_parser!(u32).range(8..=32_768))]
    sizes: Vec<u32>,
    /// Bytes of a message that goes there and back
    #[arg(long, default_value_t = 34, value_parser = clap::value_parser!(u32).range(8..=32_768))]
    trip_size: u32,
    /// Ours is measured also with both sides spinning for so many microseconds before they sleep (shm.busy_poll_us)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    spin_us: Option<u32>,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    output: Output,
}

/// The path of a message: one way, or a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    OneWay,
    ThereAndBack,
}

/// A measurement: a flat object in the JSON. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize)]
struct Row {
    #[serde(flatten)]
    runner: Runner,
    way: Way,
    size_bytes: u32,
    rep: u32,
    #[serde(flatten)]
    window: Window,
    #[serde(flatten)]
    setting: Setting,
}

/// A measured point.
#[derive(Clone, Copy)]
struct Point {
    runner: Runner,
    way: Way,
    size: u32,
}

/// The counts of both ends in a window, and the processor time used in it.
#[derive(Debug, Clone, Serialize)]
struct Window {
    /// Messages, or round trips, per second.
    rate: f64,
    /// Of round trips only.
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    lost: u64,
    /// Cores that both ends kept busy.
    busy_cores: f64,
    other_cores: f64,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &DirectArgs) -> Result<(), BenchError> {
    const NAME: &str = "direct";
    check_times(args.timing.seconds, args.timing.warmup)?;
    let systems = System::installed(args.system.iter().chain(&args.against).copied());
    if systems.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    Meeting::sweep();
    let loads = loads(args, &systems);
    let series = Series { reps: args.timing.reps, name: NAME, output: &args.output, by_load: true };
    let rows = series.run(&loads, |point, rep| {
        let measured = || measure(args, *point, rep);
        let row = least_disturbed_of(args.timing.retries, |row: &Row| row.window.other_cores, measured)?;
        let summary = summary(&row);
        Ok::<_, BenchError>((vec![row], summary))
    })?;
    let program = |row: &Row| format!("{} {}", row.runner.system.name(), row.setting.system_version);
    let head = args.timing.head(rows.iter().map(program), "two processes, shared memory");
    let text = format!("{head}\n{}", COLUMNS.table(&rows)?);
    Ok(args.output.publish(NAME, &text)?)
}

fn loads(args: &DirectArgs, systems: &[System]) -> Vec<Vec<Point>> {
    let spin_us = args.spin_us.filter(|_| Runner::can_spin());
    let runners = systems.iter().flat_map(|system| {
        let spinning =
            spin_us.filter(|_| system.is_ours()).map(|spin_us| Runner { system: *system, spin_us });
        std::iter::once(Runner { system: *system, spin_us: 0 }).chain(spinning)
    });
    let runners: Vec<Runner> = runners.collect();
    let load = |way, size| runners.iter().map(move |runner| Point { runner: *runner, way, size }).collect();
    let one_way = args.sizes.iter().map(|size| load(Way::OneWay, *size));
    one_way.chain([load(Way::ThereAndBack, args.trip_size)]).collect()
}

fn measure(args: &DirectArgs, point: Point, rep: u32) -> Result<Row, BenchError> {
    let meeting = Meeting::new()?;
    let (first, second) = match point.way {
        Way::OneWay => (Role::Publish, Role::Subscribe),
        Way::ThereAndBack => (Role::Pong, Role::Ping),
    };
    let start = |role: Role, at: &str| {
        let mut command = point.runner.command(role, at)?;
        command.args(["--size", &point.size.to_string()]);
        let Timing { seconds, warmup, .. } = args.timing;
        command.args(["--seconds", &seconds.to_string(), "--warmup", &warmup.to_string()]);
        Ok::<Process, BenchError>(Process::spawn(role.name(), command)?)
    };
    let first = start(first, meeting.place())?;
    let mut words = first.answer_within("ready", READY_WITHIN)?.into_iter();
    let at = words.next().unwrap_or_default();
    let version = words.next().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let second = start(second, &at)?;
    second.answer_within("ready", READY_WITHIN)?;
    let window = match point.way {
        Way::OneWay => rate(args, [first, second])?,
        Way::ThereAndBack => trips(args, [first, second])?,
    };
    let setting = Setting {
        system_version: version,
        congestion_control: "none: no TCP".to_owned(),
        kernel: sys::kernel(),
        cpu: sys::cpu(),
        command: sys::command(),
    };
    let Point { runner, way, size: size_bytes } = point;
    Ok(Row { runner, way, size_bytes, rep, window, setting })
}

/// Measures publisher and subscriber: the messages received in a window, and whether all published ones arrived in the end.
fn rate(args: &DirectArgs, mut ends: [Process; 2]) -> Result<Window, BenchError> {
    ends[0].send("go")?;
    thread::sleep(Duration::from_secs_f64(args.timing.warmup));
    let from = count(&mut ends[1])?;
    let before = Used::now(&ends);
    thread::sleep(Duration::from_secs_f64(args.timing.seconds));
    let to = count(&mut ends[1])?;
    let used = Used::now(&ends);
    ends[0].send("stop")?;
    let sent = ends[0].numbers("total")?;
    let number = |of: &[u64], at: usize| of.get(at).copied().unwrap_or(0);
    ends[1].send(&format!("expect {} {}", number(&sent, 0), number(&sent, 1)))?;
    let came = ends[1].numbers("total")?;
    if number(&came, 0) == number(&sent, 0) && came != sent {
        return Err(benchkit::Error::Wrong { after: number(&sent, 0) }.into());
    }
    let (messages, nanos) = (to.0 - from.0, (to.1 - from.1).max(1));
    Ok(Window {
        rate: messages as f64 * 1e9 / nanos as f64,
        p50_ns: None,
        p99_ns: None,
        lost: number(&sent, 0).saturating_sub(number(&came, 0)),
        busy_cores: used.cores_since(&before),
        other_cores: used.other_cores_since(&before),
    })
}

/// Messages so far, and when.
fn count(end: &mut Process) -> Result<(u64, u64), BenchError> {
    end.send("mark")?;
    let numbers = end.numbers("count")?;
    Ok((numbers.first().copied().unwrap_or(0), numbers.get(1).copied().unwrap_or(0)))
}

/// Measures round trips; the pinger counts them.
fn trips(args: &DirectArgs, mut ends: [Process; 2]) -> Result<Window, BenchError> {
    ends[1].send("go")?;
    thread::sleep(Duration::from_secs_f64(args.timing.warmup));
    let before = Used::now(&ends);
    let limit = READY_WITHIN + Duration::from_secs_f64(args.timing.seconds);
    let numbers = ends[1].numbers_within("total", limit)?;
    let used = Used::now(&ends);
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    Ok(Window {
        rate: number(0) as f64 * 1e9 / number(3).max(1) as f64,
        p50_ns: Some(number(1)),
        p99_ns: Some(number(2)),
        lost: 0,
        busy_cores: used.cores_since(&before),
        other_cores: used.other_cores_since(&before),
    })
}

fn summary(row: &Row) -> String {
    let figure = match (row.window.p50_ns, row.window.p99_ns) {
        (Some(p50), Some(p99)) => format!("p50 {} us  p99 {} us", us(p50 as f64), us(p99 as f64)),
        _ => format!("{:>8} msg/s  lost {}", human(row.window.rate), row.window.lost),
    };
    let (busy, others) = (row.window.busy_cores, row.window.other_cores);
    format!(
        "{:>5} B  {:<28} #{}  {figure}  cores {busy:.2}  others {others:.2}",
        row.size_bytes,
        row.runner.name(),
        row.rep
    )
}

/// Nanoseconds as microseconds.
fn us(nanos: f64) -> String {
    let us = nanos / 1e3;
    if us < 10.0 { format!("{us:.2}") } else { format!("{us:.1}") }
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system", "spin_us"],
    load: &["way", "size_bytes"],
    figures: &["rate", "p50_ns", "p99_ns", "busy_cores", "lost", "other_cores"],
    ours: "rocketbufs",
};
