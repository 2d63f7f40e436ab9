//! `rbmq-bench cpu`: the cost of a message at a load that every system carries.
//!
//! Publishers hand over a fixed number of messages per second, in ticks of a millisecond. The bench compares the CPU time
//! of each side. With 8 KiB and four subscribers it corresponds to Table 1 of paper 1, and for subscribers to its figure 6;
//! both show shares of whole machines, which this bench does not.

use std::str::FromStr;

use benchkit::{
    output::human,
    plot,
    table::{Reps, Table, distinct},
};
use clap::Args;

use crate::{
    campaign::{self, Common},
    error::BenchError,
    measure::Point,
    report,
    report::Row,
    systems::{Api, Confirm, System},
    ways::Ways,
};

/// The options of `rbmq-bench cpu`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench cpu --loads 256@100000 --seconds 1 --reps 1
  rbmq-bench cpu --against relay --json cpu.json")]
pub struct CpuArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ways: Ways,
    /// Loads: payload bytes @ messages per second of all publishers together
    #[arg(long, value_delimiter = ',', default_value = "256@500000,8192@30000")]
    loads: Vec<FixedLoad>,
    /// Publishers make one public call per message, or fill a segment with all due messages; the relay has batches only
    #[arg(long, value_enum, value_delimiter = ',', default_value = "batch")]
    api: Vec<Api>,
    /// Publishers, each with its own topic, 1 to 64
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    publishers: u8,
    /// Subscribers, each with all topics
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=256))]
    subscribers: Vec<u32>,
}

/// Messages of one size at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FixedLoad {
    size: u32,
    per_s: f64,
}

impl FromStr for FixedLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<FixedLoad, String> {
        let wrong = || "it must be BYTES@MESSAGES_PER_SECOND, for example 256@500000".to_owned();
        let (size, per_s) = text.split_once('@').ok_or_else(wrong)?;
        let load = FixedLoad {
            size: size.parse().map_err(|_| wrong())?,
            per_s: per_s.parse().map_err(|_| wrong())?,
        };
        let sane = (1..=16 << 20).contains(&load.size) && (1.0..=1e9).contains(&load.per_s);
        if sane { Ok(load) } else { Err("1 to 16777216 bytes, 1 to 1000000000 per second".to_owned()) }
    }
}

/// With less than this share of the requested messages delivered, the figures are no cost of that load.
const REACHED: f64 = 0.97;

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &CpuArgs) -> Result<(), BenchError> {
    const NAME: &str = "cpu";
    let method = args.common.method()?;
    let points = points(args, &args.common.systems());
    if points.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    let rows = campaign::run(&points, &method, &args.common, NAME)?;
    let versions = rows.iter().map(|row| (row.system, row.setting.system_version.as_str()));
    let text = format!("{}\n{}", args.common.head(&method, versions), table(&rows));
    Ok(args.common.output.publish(NAME, &text, &plots(&rows))?)
}

fn points(args: &CpuArgs, systems: &[System]) -> Vec<Vec<Point>> {
    let mut points = Vec::new();
    for &subscribers in &args.subscribers {
        for load in &args.loads {
            let of = |system: System| {
                let kinds = args.ways.of(system).iter().flat_map(move |&way| {
                    let apis = way.apis(system, &args.api, Confirm::None);
                    apis.into_iter().map(move |api| (api, way))
                });
                kinds.map(move |(api, way)| Point {
                    system,
                    way,
                    api,
                    size: load.size as usize,
                    publishers: args.publishers,
                    publishers_auto: false,
                    subscribers,
                    confirm: Confirm::None,
                    rate: Some(load.per_s),
                })
            };
            points.push(systems.iter().flat_map(|&system| of(system)).collect::<Vec<Point>>());
        }
    }
    points.retain(|load| !load.is_empty());
    points
}

/// CPU seconds per million messages of each side, with intervals; the subscribers' and the broker's also as parts
/// of Redis'.
fn table(rows: &[Row]) -> String {
    let points = report::points(rows);
    let seconds = |seconds: f64| format!("{seconds:.3}");
    let publisher = |row: &Row| row.figures.publisher_cpu_s_per_million;
    let subscriber = |row: &Row| row.figures.subscriber_cpu_s_per_million;
    let broker = |row: &Row| row.figures.broker_cpu_s_per_million;
    Table::of(&points)
        .right("size", |point| point.first().size_bytes)
        .right("msg/s asked", |point| human(point.first().asked_per_s))
        .right("subs", |point| point.first().subscribers)
        .left("system", |point| point.first().series())
        .right("reached", |point| {
            let share = reached(point);
            format!("{}{:.0} %", if share < REACHED { "**not** " } else { "" }, share * 100.0)
        })
        .median("publisher s/M", 3, publisher)
        .interval("subscriber s/M", subscriber, seconds)
        .right("of Redis'", |point| of_redis(&points, point, subscriber))
        .interval("broker s/M", broker, seconds)
        .right("of Redis'", |point| of_redis(&points, point, broker))
        .most("others", |row| row.figures.other_cores)
        .text()
}

/// The smallest share of the load that was delivered.
fn reached(point: &Reps<'_, Row>) -> f64 {
    let shares = point
        .rows()
        .iter()
        .map(|row| row.figures.delivered_per_s / (row.asked_per_s * f64::from(row.subscribers)).max(1.0));
    shares.fold(f64::INFINITY, f64::min)
}

/// How many times Redis' figure it is, which was measured beside it.
fn of_redis(points: &[Reps<'_, Row>], point: &Reps<'_, Row>, of: impl Fn(&Row) -> f64) -> String {
    let ours = point.first();
    let is_redis = |row: &Row| row.system == System::Redis && row.is_reference_of(ours);
    let redis = points.iter().find(|other| is_redis(other.first())).filter(|_| ours.system != System::Redis);
    redis.and_then(|redis| point.times(redis, of)).map_or_else(String::new, |times| format!("{times:.2}×"))
}

/// Subscribers' and broker's cost over sizes, for each number of subscribers.
fn plots(rows: &[Row]) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    for subs in distinct(rows.iter().map(|row| row.subscribers)) {
        let some: Vec<Row> = rows.iter().filter(|row| row.subscribers == subs).cloned().collect();
        for side in ["subscriber", "broker"] {
            let figure = |row: &Row| match side {
                "broker" => row.figures.broker_cpu_s_per_million,
                _ => row.figures.subscriber_cpu_s_per_million,
            };
            let title = format!("CPU of the {side} per million messages, {subs} subscribers");
            let chart = plot::Chart::new(&title, "payload bytes", "CPU seconds").sizes().log_y();
            let chart = chart.points(&some, Row::series, |row| row.size_bytes as f64, figure);
            plots.push((format!("{side}-{subs}-subscribers"), chart.svg()));
        }
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_bytes_and_a_rate() {
        assert_eq!("256@500000".parse(), Ok(FixedLoad { size: 256, per_s: 500_000.0 }));
        for wrong in ["256", "@5", "0@5", "8@0", "8@x", "8@inf", "8@nan"] {
            assert!(wrong.parse::<FixedLoad>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_rows_make_an_empty_table_and_no_plots() {
        assert_eq!(table(&[]).lines().count(), 2);
        assert!(plots(&[]).is_empty());
    }
}
