//! `rbmq-bench cpu`: the cost of a message at a load that every system carries.
//!
//! Publishers hand over a fixed number of messages per second, in ticks of a millisecond. The bench compares the CPU time
//! of each side. With 8 KiB and four subscribers it corresponds to Table 1 of paper 1, and for subscribers to its figure 6;
//! both show shares of whole machines, which this bench does not.

use std::str::FromStr;

use clap::Args;

use crate::{
    campaign::{self, Common},
    error::BenchError,
    measure::Point,
    report::COLUMNS,
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
    let text = format!("{}\n{}", args.common.head(&method, versions), COLUMNS.table(&rows)?);
    Ok(args.common.output.publish(NAME, &text)?)
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
}
