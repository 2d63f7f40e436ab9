//! `rbmq-bench gateway`: RBMQ's gateways beside the servers whose protocols they speak, with the same clients for both.
//!
//! ```text
//!   clients of Redis: bare sockets, the crate redis, hiredis, redis-benchmark ──▶ gateway in the broker's process, or redis-server
//!   clients of MQTT:  bare sockets, the crate rumqttc ──────────────────────────▶ gateway in the broker's process, or mosquitto
//! ```
//!
//! The servers are measured in turn, by the code that measures them in the other benches: `throughput` (bare clients), `latency` (their
//! round trips), `libraries`, and `kept` (streams). Only the runs of `redis-benchmark` are this bench's own.

mod benchmark;
mod point;

use benchkit::{named::Named, output::human, table::figure, turns::Series, view::Columns};
use clap::{Args, ValueEnum};

use crate::{
    campaign::{Common, least_disturbed_of},
    error::BenchError,
    library_rows::{Kind, Library},
    peers::Peer,
    systems::{Confirm, System},
};
use benchmark::Benchmark;
use point::{Counted, Load, Point, Row};

/// Bytes of the messages where only one size is measured.
const SMALL: u32 = 64;

/// The options of `rbmq-bench gateway`.
#[derive(Debug, Args)]
#[command(mut_arg("system", |system| system.default_value("resp,mqtt")))]
#[command(mut_arg("against", |against| against.default_value("redis,mosquitto")))]
#[command(after_help = "Examples:
  rbmq-bench gateway --system mqtt --against mosquitto --parts bare --reps 1
  rbmq-bench gateway --seconds 300ms --warmup 200ms --messages 50000 --folder /var/tmp

scripts/bench-peers libraries installs what is missing; what is not there is left out, and named.")]
pub struct GatewayArgs {
    #[command(flatten)]
    common: Common,
    /// Parts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Part::value_variants().to_vec())]
    parts: Vec<Part>,
    /// Subscribers of bare clients, each with every message
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    subscribers: Vec<u32>,
    #[command(flatten)]
    counted: Counted,
}

/// A part of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Two publishers and their subscribers on bare sockets; of MQTT with QoS 0 and 1
    Bare,
    /// Round trips of bare clients, 10,000 messages per second
    Trips,
    /// One publisher and one subscriber through client libraries: as many messages as go, and round trips one at a time
    Libraries,
    /// PUBLISH and XADD by redis-benchmark: one client and 50, with pipelines and without
    Benchmark,
    /// XADD with many entries on their way, then XREAD from the first entry on
    Streams,
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &GatewayArgs) -> Result<(), BenchError> {
    const NAME: &str = "gateway";
    let method = args.common.method()?;
    let loads = loads(args);
    if loads.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let series = Series { by_load: false, ..args.common.series(NAME) };
    let rows = series.run(&loads, |point, rep| {
        let others = |rows: &Vec<Row>| rows.iter().filter_map(|row| row.other_cores).fold(0.0, f64::max);
        let measure = || point.measure(&args.counted, &method, rep);
        let rows = least_disturbed_of(args.common.timing.retries, others, measure)?;
        let summary = rows.iter().map(summary).collect::<Vec<String>>().join("; ");
        Ok::<_, BenchError>((rows, summary))
    })?;
    let versions = rows.iter().map(|row| (row.system, row.setting.system_version.as_str()));
    let mut text = args.common.head(&method, versions);
    for (peer, ours) in [(Peer::Redis, "resp"), (Peer::Mqtt, "mqtt")] {
        let own: Vec<&Row> = rows.iter().filter(|row| Peer::of(row.system) == Some(peer)).collect();
        text += &format!("\n{}", Columns { ours, ..COLUMNS }.table(&own)?);
    }
    Ok(args.common.output.publish(NAME, &text)?)
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system"],
    load: &["load", "size_bytes", "subscribers"],
    figures: &["per_s", "server_cpu_us", "p50_us", "p99_us", "lost", "other_cores"],
    ours: "resp",
};

fn summary(row: &Row) -> String {
    format!(
        "{:>5} B → {} {:<9} {} #{}  {}/s  server {} us  p50 {} us",
        row.size_bytes,
        row.subscribers,
        row.system.name(),
        row.load,
        row.rep,
        human(row.per_s),
        figure(row.server_cpu_us, 3),
        figure(row.p50_us, 0),
    )
}

/// All points, those of the same load together: they are measured in turn.
fn loads(args: &GatewayArgs) -> Vec<Vec<Point>> {
    let systems = args.common.systems();
    let mut loads = Vec::new();
    for peer in [Peer::Redis, Peer::Mqtt] {
        let own: Vec<System> =
            systems.iter().copied().filter(|system| Peer::of(*system) == Some(peer)).collect();
        if own.is_empty() {
            continue;
        }
        for part in &args.parts {
            for (load, size, subscribers) in part.loads(peer, &args.subscribers) {
                loads.push(own.iter().map(|&system| Point { system, load, size, subscribers }).collect());
            }
        }
    }
    loads
}

impl Part {
    /// Its loads, each with the bytes of a message and the number of subscribers.
    fn loads(self, peer: Peer, subscribers: &[u32]) -> Vec<(Load, u32, u32)> {
        let mqtt = peer == Peer::Mqtt;
        match self {
            Part::Bare => {
                let sizes = if mqtt { [SMALL, 1024, 16_384] } else { [SMALL, 1024, 65_536] };
                let confirms: &[Confirm] =
                    if mqtt { &[Confirm::None, Confirm::Accepted] } else { &[Confirm::None] };
                let of = |confirm| sizes.into_iter().map(move |size| (Load::Bare(confirm), size));
                let all = confirms.iter().flat_map(|confirm| of(*confirm));
                all.flat_map(|(load, size)| subscribers.iter().map(move |subs| (load, size, *subs))).collect()
            }
            Part::Trips => vec![(Load::Trips, SMALL, 1)],
            Part::Libraries => {
                let all = [Library::RedisPipelined, Library::RedisManager, Library::Hiredis];
                let installed = Library::installed(if mqtt { &[Library::Rumqttc] } else { &all });
                let kinds = [Kind::Full, Kind::Trips];
                let of =
                    |library| kinds.into_iter().map(move |kind| (Load::Library(library, kind), SMALL, 1));
                installed.into_iter().flat_map(of).collect()
            }
            Part::Benchmark | Part::Streams if mqtt => Vec::new(),
            Part::Benchmark => {
                Benchmark::all().into_iter().map(|run| (Load::Benchmark(run), SMALL, 0)).collect()
            }
            Part::Streams => vec![(Load::Streams, SMALL, 1)],
        }
    }
}
