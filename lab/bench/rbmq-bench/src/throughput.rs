//! `rbmq-bench throughput`: how many messages per second get through.
//!
//! With 0 subscribers it is figure 5a and 5b of paper 1 and figure 1 of paper 2, with 1, 2 and 4 the rest of
//! figure 5 and figure 2 of paper 2; figure 3 has also Redis with threads, and as several servers.

use std::str::FromStr;

use benchkit::named::Named;
use clap::Args;

use crate::{
    campaign::{self, Common},
    error::BenchError,
    measure::{Method, Point},
    report::COLUMNS,
    search,
    systems::{Api, Confirm, System},
    ways::{Way, Ways},
};

/// The options of `rbmq-bench throughput`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench throughput --sizes 256 --subscribers 1 --seconds 1 --reps 1
  rbmq-bench throughput --against relay,redis --out results")]
pub struct ThroughputArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    ways: Ways,
    /// Publishers make one public call per message, fill a segment with many, or make such batches without RBMQ's client
    /// library, since the other systems run without one here; the relay has batches only
    #[arg(long, value_enum, value_delimiter = ',', default_value = "batch")]
    api: Vec<Api>,
    /// The confirmation that publishers wait for; the relay has none, other systems have no consumed
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none")]
    confirm: Vec<Confirm>,
    /// Payload bytes of a message, 1 to 16777216
    #[arg(long, value_delimiter = ',', default_value = "8,64,256,1024,4096,16384,65536,524288")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    sizes: Vec<u32>,
    /// Publishers, each with its own topic: 1 to 64, or auto, the number with the highest rate
    #[arg(long, value_delimiter = ',', default_value = "2")]
    publishers: Vec<Publishers>,
    /// The most that auto tries
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    most_publishers: u8,
    /// Subscribers, each with all topics; 0 measures the publishers' rate alone
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=256))]
    subscribers: Vec<u32>,
}

/// How many publishers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Publishers {
    Number(u8),
    Auto,
}

impl FromStr for Publishers {
    type Err = String;

    fn from_str(text: &str) -> Result<Publishers, String> {
        match text.parse() {
            Ok(number @ 1..=64) => Ok(Publishers::Number(number)),
            _ if text == "auto" => Ok(Publishers::Auto),
            _ => Err("it must be 1 to 64, or auto".to_owned()),
        }
    }
}

/// Runs the bench.
///
/// # Errors
/// Why there is no result.
pub fn run(args: &ThroughputArgs) -> Result<(), BenchError> {
    const NAME: &str = "throughput";
    let method = args.common.method()?;
    let mut loads = loads(args, &args.common.systems());
    if loads.is_empty() {
        return Err(BenchError::NothingToMeasure);
    }
    search_publishers(&mut loads, &method, args)?;
    let rows = campaign::run(&loads, &method, &args.common, NAME)?;
    let versions = rows.iter().map(|row| (row.system, row.setting.system_version.as_str()));
    let text = format!("{}\n{}", args.common.head(&method, versions), COLUMNS.table(&rows)?);
    Ok(args.common.output.publish(NAME, &text)?)
}

/// All points, those with the same load together: they are measured in turn.
fn loads(args: &ThroughputArgs, systems: &[System]) -> Vec<Vec<Point>> {
    let mut loads = Vec::new();
    for &subscribers in &args.subscribers {
        for &publishers in &args.publishers {
            for &size in &args.sizes {
                let mut load: Vec<Point> = Vec::new();
                for (system, way, confirm) in kinds(args, systems) {
                    let apis = way.apis(system, &args.api, confirm);
                    load.extend(apis.into_iter().map(|api| Point {
                        system,
                        way,
                        api,
                        size: size as usize,
                        // Of auto the number is found later.
                        publishers: if let Publishers::Number(n) = publishers { n } else { 1 },
                        publishers_auto: publishers == Publishers::Auto,
                        subscribers,
                        confirm,
                        rate: None,
                    }));
                }
                if !load.is_empty() {
                    loads.push(load);
                }
            }
        }
    }
    loads
}

/// Every system over everything that carries it, with and without confirmations.
fn kinds(args: &ThroughputArgs, systems: &[System]) -> Vec<(System, Way, Confirm)> {
    let ways = systems.iter().flat_map(|&system| args.ways.of(system).iter().map(move |&way| (system, way)));
    ways.flat_map(|(system, way)| args.confirm.iter().map(move |&confirm| (system, way, confirm))).collect()
}

/// Finds for each point the number of publishers that carries the most, with one undisturbed measurement per number.
fn search_publishers(
    loads: &mut [Vec<Point>],
    method: &Method,
    args: &ThroughputArgs,
) -> Result<(), BenchError> {
    for point in loads.iter_mut().flatten().filter(|point| point.publishers_auto) {
        point.publishers = search::best_number(args.most_publishers, |publishers| {
            let some = Point { publishers, ..*point };
            Ok::<_, BenchError>(
                campaign::least_disturbed(&some, method, 0, args.common.timing.retries)?.rate(),
            )
        })?;
        eprintln!(
            "{} B, {} subscribers: {} carries the most with {} publishers",
            point.size,
            point.subscribers,
            point.system.name(),
            point.publishers
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_are_a_number_or_auto() {
        let parsed = ["1", "64", "auto"].map(|text| text.parse::<Publishers>().unwrap());
        assert_eq!(parsed, [Publishers::Number(1), Publishers::Number(64), Publishers::Auto]);
        assert!(["0", "65", "many", ""].iter().all(|text| text.parse::<Publishers>().is_err()));
    }
}
