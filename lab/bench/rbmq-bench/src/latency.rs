//! `rbmq-bench latency`: how long a message takes through the system and back, at given rates.
//!
//! Two processes and a topic each way; the time counts from when a message was to be sent (see `ping`). With 34 bytes
//! at 100,000 and 200,000 messages per second it is figure 7 of paper 1. `--beside-saturated` measures it twice: alone,
//! and while a publisher and a subscriber move as much as they can through another topic of the same broker.

use std::time::Duration;

use benchkit::{
    fleet::{Process, words},
    named::Named,
    output,
    table::{self, Reps},
    view::Columns,
};
use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{
    campaign::Common,
    error::BenchError,
    measure::{Clients, Method, Middle, Point, add_congestion},
    peers::Peer,
    ping,
    report::Setting,
    systems::{Api, Confirm, System},
    ways::{Way, Ways},
};

/// The options of `rbmq-bench latency`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench latency --rates 10000,50000 --seconds 1 --reps 1
  rbmq-bench latency --transport shm --beside-saturated")]
pub struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ways: Ways,
    /// Messages per second
    #[arg(long, value_delimiter = ',', default_value = "10000,50000,100000,200000")]
    rates: Vec<f64>,
    /// Payload bytes of a message, at least 8
    #[arg(long, default_value_t = 34)]
    size: u32,
    /// Measure also beside a topic at full rate
    #[arg(long)]
    beside_saturated: bool,
    /// Payload bytes of that topic's messages
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    beside_size: u32,
}

/// A measurement: a flat object in the JSON. See lab/bench/README.md.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    system: System,
    /// The transports to the broker and from it.
    transport: Way,
    size_bytes: usize,
    rep: u32,
    beside_saturated: bool,
    /// Payload bytes per second of the busy topic beside the measured one.
    beside_bytes_per_s: f64,
    asked_per_s: f64,
    /// Returned messages per second, from the first counted one to the last.
    pub returned_per_s: f64,
    pub lost: u64,
    pub p50_us: f64,
    p90_us: f64,
    pub p99_us: f64,
    p999_us: f64,
    max_us: f64,
    #[serde(flatten)]
    pub setting: Setting,
    #[serde(skip)]
    histogram: Histogram<u64>,
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system", "transport", "beside_saturated"],
    load: &["size_bytes", "asked_per_s"],
    figures: &[
        "p50_us",
        "p90_us",
        "p99_us",
        "p999_us",
        "max_us",
        "returned_per_s",
        "lost",
        "beside_bytes_per_s",
    ],
    ours: "rbmq",
};

/// A line of the file of histograms.
#[derive(Debug, Serialize)]
struct Bucket {
    system: System,
    transport: Way,
    beside_saturated: bool,
    asked_per_s: f64,
    /// Up to so many microseconds.
    up_to_us: f64,
    round_trips: u64,
}

impl Row {
    fn series(&self) -> String {
        let beside = if self.beside_saturated { ", beside saturated" } else { "" };
        let over = match self.transport {
            Way::Tcp => String::new(),
            other => format!(" over {}", other.name()),
        };
        format!("{}{over}{beside}", self.system.name())
    }
}

/// A measured point.
#[derive(Clone, Copy)]
pub struct Trip {
    pub system: System,
    pub way: Way,
    pub rate: f64,
    /// Payload bytes of a message.
    pub size: u32,
    /// Payload bytes of the messages of a topic at full rate beside it.
    pub beside: Option<u32>,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &LatencyArgs) -> Result<(), BenchError> {
    const NAME: &str = "latency";
    if args.size < 8 || args.rates.iter().any(|rate| !(rate.is_finite() && *rate > 0.0)) {
        return Err(BenchError::BadPing);
    }
    let method = args.common.method()?;
    let systems = args.common.systems();
    if systems.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let trips = trips(args, &systems);
    let rows = args.common.series(NAME).run(&trips, |trip, rep| {
        let row = measure(&method, *trip, rep)?;
        let summary = summary(&row);
        Ok::<_, BenchError>((vec![row], summary))
    })?;
    let versions = rows.iter().map(|row| (row.system, row.setting.system_version.as_str()));
    let text = format!("{}\n{}", args.common.head(&method, versions), COLUMNS.table(&rows)?);
    args.common.output.publish(NAME, &text)?;
    let name = args.common.output.name.as_deref().unwrap_or(NAME);
    if let Some(folder) = &args.common.output.out {
        output::write_json(&folder.join(format!("{name}-histograms.json")), &buckets(&rows))?;
    }
    Ok(())
}

fn trips(args: &LatencyArgs, systems: &[System]) -> Vec<Vec<Trip>> {
    let (size, with) = (args.size, Some(args.beside_size));
    let beside: &[Option<u32>] = if args.beside_saturated { &[None, with] } else { &[None] };
    let at = |rate: f64| {
        systems
            .iter()
            .flat_map(|&system| args.ways.of(system).iter().map(move |&way| (system, way)))
            .flat_map(|(system, way)| {
                beside.iter().map(move |&beside| Trip { system, way, rate, size, beside })
            })
            .collect()
    };
    args.rates.iter().map(|&rate| at(rate)).collect()
}

/// Measures a point once.
///
/// # Errors
/// A process could not be started, or died.
pub fn measure(method: &Method, trip: Trip, rep: u32) -> Result<Row, BenchError> {
    let mut middle = Middle::start(trip.system, trip.way, method)?;
    let mut beside = trip.beside.map(|size| Beside::start(size, method, trip, &middle)).transpose()?;
    let mut whom = words(&["--system", &trip.system.name(), "--transport", &trip.way.name()]);
    whom.extend(words(&["--addr", &middle.addr]));
    add_congestion(&mut whom, method.congestion.for_sockets());
    let mut echo_args = words(&["echo"]);
    echo_args.extend_from_slice(&whom);
    let mut echo = Process::start("echoer", &echo_args)?;
    let mut ping_args = words(&["ping", "--size", &trip.size.to_string(), "--rate", &trip.rate.to_string()]);
    ping_args.extend(words(&["--seconds", &method.window.as_secs_f64().to_string()]));
    ping_args.extend(words(&["--warmup", &method.warmup.as_secs_f64().to_string()]));
    ping_args.extend_from_slice(&whom);
    let mut pinger = Process::start("pinger", &ping_args)?;
    echo.answer("ready")?;
    pinger.answer("ready")?;
    let before = beside.as_mut().map(Beside::count).transpose()?;
    pinger.send("go")?;
    // A system that cannot carry the rate needs longer, and is given it.
    let limit = (method.warmup + method.window) * 10 + Duration::from_secs(30);
    let numbers = pinger.numbers_within("total", limit)?;
    let after = beside.as_mut().map(Beside::count).transpose()?;
    let beside_bytes_per_s = match (before, after) {
        (Some(before), Some(after)) => before.messages_per_s(&after) * f64::from(trip.beside.unwrap_or(0)),
        _ => 0.0,
    };
    // The ends are killed before the server, since they would report a lost connection.
    [&mut pinger, &mut echo].into_iter().for_each(Process::kill);
    if let Some(beside) = &mut beside {
        beside.kill();
    }
    if Peer::of(trip.system).is_none() {
        middle.process.kill();
    }
    drop((pinger, echo, beside));
    let setting = Setting::new(trip.system, &middle.version, &method.congestion);
    Ok(Row { beside_bytes_per_s, ..row(trip, rep, &numbers, setting) })
}

/// A publisher and a subscriber of another topic, at full rate.
struct Beside(Clients);

/// The subscriber's count at a moment of its own clock.
struct Counted {
    messages: u64,
    nanos: u64,
}

impl Beside {
    fn start(size: u32, method: &Method, trip: Trip, middle: &Middle) -> Result<Self, BenchError> {
        let point = Point {
            system: trip.system,
            way: trip.way,
            api: Api::Batch,
            size: size as usize,
            publishers: 1,
            publishers_auto: false,
            subscribers: 1,
            confirm: Confirm::None,
            rate: None,
        };
        let mut clients = Clients::start(&point, method, &middle.addr, &middle.folder)?;
        clients.publishers.iter_mut().try_for_each(|publisher| publisher.send("go"))?;
        Ok(Self(clients))
    }

    /// Fails if it carries nothing because one of the two ended.
    fn count(&mut self) -> Result<Counted, BenchError> {
        let subscriber = self.0.subscribers.first_mut().ok_or(BenchError::NothingToMeasure)?;
        subscriber.send("mark")?;
        let numbers = subscriber.numbers("count")?;
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        Ok(Counted { messages: number(0), nanos: number(1) })
    }

    fn kill(&mut self) {
        self.0.publishers.iter_mut().chain(&mut self.0.subscribers).for_each(Process::kill);
    }
}

impl Counted {
    fn messages_per_s(&self, after: &Counted) -> f64 {
        (after.messages - self.messages) as f64 * 1e9 / (after.nanos - self.nanos).max(1) as f64
    }
}

/// A row from the pinger's numbers: sent, received, microseconds, then values and counts.
fn row(trip: Trip, rep: u32, numbers: &[u64], setting: Setting) -> Row {
    let mut histogram = ping::histogram();
    for pair in numbers.get(3..).unwrap_or_default().chunks_exact(2) {
        histogram.saturating_record_n(pair[0], pair[1]);
    }
    let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
    let us = |nanos: u64| nanos as f64 / 1e3;
    Row {
        system: trip.system,
        transport: trip.way,
        size_bytes: trip.size as usize,
        rep,
        beside_saturated: trip.beside.is_some(),
        beside_bytes_per_s: 0.0,
        asked_per_s: trip.rate,
        returned_per_s: histogram.len() as f64 * 1e6 / number(2).max(1) as f64,
        lost: number(0).saturating_sub(number(1)),
        p50_us: us(histogram.value_at_quantile(0.5)),
        p90_us: us(histogram.value_at_quantile(0.9)),
        p99_us: us(histogram.value_at_quantile(0.99)),
        p999_us: us(histogram.value_at_quantile(0.999)),
        max_us: us(histogram.max()),
        setting,
        histogram,
    }
}

fn summary(row: &Row) -> String {
    format!(
        "{:<26} {:>8}/s #{}  p50 {} us  p99 {} us  lost {}",
        row.series(),
        output::human(row.asked_per_s),
        row.rep,
        short(row.p50_us),
        short(row.p99_us),
        row.lost
    )
}

fn short(us: f64) -> String {
    if us < 1e4 { format!("{us:.0}") } else { output::human(us) }
}

fn points(rows: &[Row]) -> Vec<Reps<'_, Row>> {
    table::points(
        rows,
        |row| row.rep,
        |one, other| one.series() == other.series() && one.asked_per_s == other.asked_per_s,
    )
}

/// All repetitions of a point together.
fn merged(point: &Reps<'_, Row>) -> Histogram<u64> {
    let mut all = ping::histogram();
    for row in point.rows() {
        // All have the same bounds, so that adding cannot fail.
        let _ = all.add(&row.histogram);
    }
    all
}

/// Twenty buckets per decade.
fn log_buckets(histogram: &Histogram<u64>) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for value in histogram.iter_recorded() {
        let step = ((value.value_iterated_to() as f64).log10() * 20.0).ceil();
        let up_to_us = 10_f64.powf(step / 20.0) / 1e3;
        match buckets.last_mut() {
            Some((last, count)) if *last == up_to_us => *count += value.count_at_value(),
            _ => buckets.push((up_to_us, value.count_at_value())),
        }
    }
    buckets
}

fn buckets(rows: &[Row]) -> Vec<Bucket> {
    let of = |point: Reps<'_, Row>| {
        let Row { system, transport, beside_saturated, asked_per_s, .. } = *point.first();
        let buckets = log_buckets(&merged(&point)).into_iter();
        buckets.map(move |(up_to_us, round_trips)| Bucket {
            system,
            transport,
            beside_saturated,
            asked_per_s,
            up_to_us,
            round_trips,
        })
    };
    points(rows).into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_keep_every_round_trip() {
        let mut histogram = ping::histogram();
        for us in 1..=1000_u64 {
            histogram.record(us * 1000).unwrap();
        }
        let buckets = log_buckets(&histogram);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
        let up_to_100: u64 = buckets.iter().filter(|(us, _)| *us < 101.0).map(|(_, count)| count).sum();
        assert!((99..=101).contains(&up_to_100), "{up_to_100}");
    }
}
