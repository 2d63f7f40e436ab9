//! A list of points measured one after the other, several times each.
//!
//! Systems under the same load are measured in turn, so that what disturbs the machine disturbs them alike.

use std::time::Duration;

use benchkit::{
    named::Named,
    netns,
    output::{self, Output},
    table::distinct,
    turns::Series,
};
use clap::Args;

use crate::{
    error::BenchError,
    measure::{self, Method, Point},
    report::Row,
    systems::System,
    units,
};

/// A point during which others kept more cores busy than this is measured again.
const DISTURBED_CORES: f64 = 0.2;

/// How long and how often a bench measures.
#[derive(Debug, Args)]
pub struct Timing {
    /// The length of the measured window
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::seconds)]
    pub seconds: f64,
    /// How long it runs before the window
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = units::seconds)]
    pub warmup: f64,
    /// Repetitions of each point; the table shows medians and 95 % intervals
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub reps: u32,
    /// How often a disturbed point is measured again; the least disturbed one is kept
    #[arg(long, default_value_t = 3)]
    pub retries: u32,
}

impl Timing {
    /// How all points are measured with this congestion control, and with the default rings.
    ///
    /// # Errors
    /// A duration is out of range.
    pub fn method(&self, congestion: netns::Congestion) -> Result<Method, BenchError> {
        check_times(self.seconds, self.warmup)?;
        Ok(Method {
            warmup: Duration::from_secs_f64(self.warmup),
            window: Duration::from_secs_f64(self.seconds),
            congestion,
            ring_bytes: None,
            relay_read_bytes: 0,
        })
    }

    /// The head of a table: machine, programs (each once), how it was measured, and with which command.
    pub fn head(&self, programs: impl Iterator<Item = String>, how: &str) -> String {
        let programs = distinct(programs).join(", ");
        let Timing { seconds, warmup, reps, .. } = self;
        output::head(&format!("{programs}\n{how}; window {seconds} s after {warmup} s, {reps} repetitions"))
    }
}

/// Checks the seconds of a window, and of what is before it.
///
/// # Errors
/// A duration is out of range.
pub fn check_times(window: f64, before: f64) -> Result<(), BenchError> {
    let sane = |seconds: f64| (0.0..=3600.0).contains(&seconds);
    if sane(window) && window > 0.0 && sane(before) { Ok(()) } else { Err(BenchError::BadTime) }
}

/// The options of every bench.
#[derive(Debug, Args)]
pub struct Common {
    /// Systems to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rbmq")]
    pub system: Vec<System>,
    /// Systems to measure beside them, in turn
    #[arg(long, value_enum, value_delimiter = ',')]
    pub against: Vec<System>,
    #[command(flatten)]
    pub timing: Timing,
    /// TCP congestion control of all processes
    #[arg(long, default_value = "cubic")]
    pub congestion: String,
    /// Bytes of a topic's ring; default: the configured size, but at least 2 MiB, and room for 3 messages
    #[arg(long, value_name = "BYTES", value_parser = units::bytes)]
    pub ring_bytes: Option<u64>,
    /// Bytes that the relay reads at once
    #[arg(long, default_value_t = 1024 * 1024)]
    pub relay_read_bytes: usize,
    #[command(flatten)]
    pub output: Output,
}

impl Common {
    /// The systems that are installed here: ours first, each once.
    pub fn systems(&self) -> Vec<System> {
        System::installed(self.system.iter().chain(&self.against).copied())
    }

    /// Decides how all points are measured. May move this thread into a network namespace of its own.
    ///
    /// # Errors
    /// A duration is out of range.
    pub fn method(&self) -> Result<Method, BenchError> {
        let method = self.timing.method(netns::set_congestion(&self.congestion))?;
        Ok(Method { ring_bytes: self.ring_bytes, relay_read_bytes: self.relay_read_bytes, ..method })
    }

    /// The repetitions of a bench, load by load.
    pub fn series<'a>(&'a self, name: &'a str) -> Series<'a> {
        Series { reps: self.timing.reps, name, output: &self.output, by_load: true }
    }

    /// The head of a table: machine, versions, how it was measured, and with which command.
    pub fn head<'v>(&self, method: &Method, versions: impl Iterator<Item = (System, &'v str)>) -> String {
        let programs = versions.map(|(system, version)| format!("{} {version}", system.name()));
        self.timing.head(programs, &in_force(&method.congestion))
    }
}

/// Measures all points: those in one list have the same load.
///
/// # Errors
/// A worker could not be started, died, or found a wrong byte.
pub fn run(
    loads: &[Vec<Point>],
    method: &Method,
    common: &Common,
    name: &str,
) -> Result<Vec<Row>, BenchError> {
    common.series(name).run(loads, |point, rep| {
        let row = least_disturbed(point, method, rep, common.timing.retries)?;
        let summary = summary(&row);
        Ok((vec![row], summary))
    })
}

/// Measures a point, and again while other programs keep the machine busy. Returns the least disturbed measurement.
///
/// # Errors
/// As `run`.
pub fn least_disturbed(point: &Point, method: &Method, rep: u32, retries: u32) -> Result<Row, BenchError> {
    least_disturbed_of(retries, |row: &Row| row.figures.other_cores, || measure::measure(point, method, rep))
}

/// Repeats any measurement that other load disturbed, and returns the least disturbed one. `other_cores` is the number of cores
/// that other programs kept busy in a measurement.
///
/// # Errors
/// The errors of `measure`.
pub fn least_disturbed_of<R>(
    retries: u32,
    other_cores: impl Fn(&R) -> f64,
    mut measure: impl FnMut() -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    let mut best = measure()?;
    for _ in 0..retries {
        if other_cores(&best) <= DISTURBED_CORES {
            break;
        }
        eprintln!("  others kept {:.2} cores busy: once more", other_cores(&best));
        let again = measure()?;
        if other_cores(&again) < other_cores(&best) {
            best = again;
        }
    }
    Ok(best)
}

fn summary(row: &Row) -> String {
    format!(
        "{:>7} B  {} → {:<3} {:<14} #{}  {:>8} msg/s  {:6.2} GB/s  lost {}  others {:.2}",
        row.size_bytes,
        row.publishers,
        row.subscribers,
        row.series(),
        row.rep,
        output::human(row.rate()),
        row.rate() * row.size_bytes as f64 / 1e9,
        row.lost,
        row.figures.other_cores,
    )
}

/// The congestion control in force, and who sets it.
pub fn in_force(congestion: &netns::Congestion) -> String {
    match congestion {
        netns::Congestion::Namespace(name) => format!("{name} by the network namespace"),
        netns::Congestion::Sockets(name) => {
            let others = netns::default_congestion();
            format!("{name} set on every socket of ours; other systems' servers have {others}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_disturbed_measurement_is_kept_and_retries_are_limited() {
        let measured = |retries, disturbed: &[f64]| {
            let mut left = disturbed.iter().copied();
            let best = least_disturbed_of(retries, |row: &f64| *row, || Ok(left.next().unwrap())).unwrap();
            (best, left.count())
        };
        assert_eq!(measured(2, &[0.9, 0.5, 0.7, 0.0]), (0.5, 1));
        assert_eq!(measured(2, &[0.9, 0.1, 0.0]), (0.1, 1));
        assert_eq!(measured(0, &[0.9, 0.0]), (0.9, 1));
    }
}
