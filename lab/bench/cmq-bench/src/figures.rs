//! `cmq-bench fig5` and `fig6`: exchanges of 1,000 messages, without and with loss.

use std::time::Duration;

use benchkit::{
    named::Named,
    output::{self, Output, human},
    turns::Series,
    view::Columns,
};

use super::error::BenchError;
use super::{
    field::DROPPED_OF_1000,
    point::{self, CONGESTION, Point, Row},
    system::{Pattern, System},
};

/// Options of `cmq-bench fig5` and `fig6`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The systems to measure, in turn [default: all that the bench compares]
    #[arg(long, value_enum, value_delimiter = ',')]
    systems: Vec<System>,
    /// The patterns to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "pingpong,pingping,oneway")]
    patterns: Vec<Pattern>,
    /// Sizes of a message in bytes
    #[arg(long, value_delimiter = ',', default_value = "4,16,64,256,1024,4096,16384")]
    #[arg(value_parser = clap::value_parser!(u32).range(4..=65_000))]
    sizes: Vec<u32>,
    /// Packets of each thousand that are dropped, for `fig6` [default: 0,14] and `reliable` [default: 0,10,20,50]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(0..=500))]
    loss_of_1000: Vec<u32>,
    /// Outstanding messages at most, also limited to 1 MiB (pingpong: 1)
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    outstanding: u32,
    /// Messages in an exchange
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    messages: u32,
    /// Timed exchanges at least
    #[arg(long, default_value_t = 3)]
    least: u32,
    /// Milliseconds of timed exchanges at least
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    time_ms: u64,
    /// Repetitions of each point; the table shows medians and 95 % intervals
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    reps: u32,
    #[command(flatten)]
    output: Output,
}

impl Args {
    /// All measurements. The points of one list have the same load, and are measured in turn.
    fn loads(&self, systems: &[System], losses: &[u32]) -> Vec<Vec<Point>> {
        let systems = System::installed(systems);
        let cut = losses.iter().any(|&loss| loss > 0);
        let mut loads = Vec::new();
        for &pattern in &self.patterns {
            for &size in &self.sizes {
                let points = losses.iter().flat_map(|&loss| {
                    let carries = systems.iter().filter(move |s| s.carries(pattern, size, loss > 0));
                    carries.map(move |&system| Point {
                        system,
                        pattern,
                        size,
                        dropped_of_1000: loss,
                        cut,
                        outstanding: self.outstanding,
                        messages: self.messages,
                        least: self.least,
                        time: Duration::from_millis(self.time_ms),
                    })
                });
                loads.push(points.collect::<Vec<Point>>());
            }
        }
        loads.retain(|points| !points.is_empty());
        loads
    }
}

/// A bench of exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Figure 5: without loss.
    Five,
    /// Figure 6: with and without loss.
    Six,
    /// Systems that repeat what is lost, and encryption, with more and more loss.
    Reliable,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::Five => "fig5",
            Figure::Six => "fig6",
            Figure::Reliable => "reliable",
        }
    }

    fn systems(self) -> &'static [System] {
        match self {
            Figure::Five | Figure::Six => &[
                System::Cmq,
                System::CmqPaper,
                System::CmqParity,
                System::Udp,
                System::Gso,
                System::Zeromq,
                System::MsgpackRpc,
                System::Nng,
                System::Nats,
                System::Quic,
            ],
            Figure::Reliable => &[
                System::Cmq,
                System::CmqSealed,
                System::CmqReliable,
                System::CmqReliableSealed,
                System::QuicStream,
                System::Zeromq,
            ],
        }
    }

    fn losses(self) -> &'static [u32] {
        match self {
            Figure::Five => &[0],
            Figure::Six => &[0, DROPPED_OF_1000],
            Figure::Reliable => &[0, 10, 20, 50],
        }
    }
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system"],
    load: &["pattern", "size_bytes", "loss", "outstanding"],
    figures: &[
        "messages_per_s",
        "mean_ms",
        "stddev_ms",
        "sent",
        "received",
        "lost_reported",
        "lost_by_filter",
        "given_up",
    ],
    ours: "cmq",
};

/// Runs a bench of exchanges.
///
/// # Errors
/// Nothing could be measured.
pub fn run(args: &Args, figure: Figure) -> Result<(), BenchError> {
    let name = figure.name();
    let systems = if args.systems.is_empty() { figure.systems() } else { &args.systems };
    let chosen = figure != Figure::Five && !args.loss_of_1000.is_empty();
    let losses = if chosen { &args.loss_of_1000 } else { figure.losses() };
    let loads = args.loads(systems, losses);
    if loads.is_empty() {
        return Err(BenchError::Nothing);
    }
    let mut failed = Vec::new();
    let series = Series { reps: args.reps, name, output: &args.output, by_load: true };
    let rows = series.run(&loads, |point, rep| {
        let measured = point::measure(point, rep).map(|row| (describe(&row), row));
        // A failed system does not stop the measurement of the others.
        let (summary, rows) = match measured {
            Ok((summary, row)) => (summary, vec![row]),
            Err(error) => {
                let (system, pattern) = (point.system.name(), point.pattern.name());
                failed.push(format!("{system} {pattern} {} B: {error}", point.size));
                (format!("FAILED: {}", failed[failed.len() - 1]), Vec::new())
            }
        };
        Ok::<_, BenchError>((rows, summary))
    })?;
    let mut text = head(name, args);
    text.push_str(&COLUMNS.table(&rows)?);
    for failure in &failed {
        text.push_str(&format!("\nFAILED: {failure}\n"));
    }
    args.output.publish(name, &text)?;
    verdict(failed.len(), failed.len() + rows.len())
}

/// A partial result must show in the exit status.
fn verdict(failed: usize, all: usize) -> Result<(), BenchError> {
    if failed > 0 { Err(BenchError::Failed { failed, all }) } else { Ok(()) }
}

fn describe(row: &Row) -> String {
    format!(
        "{:>6} B  {:<8} {:<14} #{}  {:>8} msg/s  {:9.3} ± {:.3} ms  lost {} of {}{}",
        row.size_bytes,
        row.pattern.name(),
        row.system.name(),
        row.rep,
        human(row.messages_per_s),
        row.mean_ms,
        row.stddev_ms,
        row.sent.saturating_sub(row.received),
        row.sent,
        if row.loss > 0.0 {
            format!(" (reported {}, dropped {})", row.lost_reported, row.lost_by_filter)
        } else {
            String::new()
        },
    )
}

fn head(name: &str, args: &Args) -> String {
    let measured = format!(
        "two network namespaces, veth, TCP with {CONGESTION}; exchanges of {} messages, {} ms, {} repetitions in turn",
        args.messages, args.time_ms, args.reps,
    );
    format!("# {name}\n\n{}\n", output::head(&measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_with_failed_measurements_fails() {
        assert!(verdict(0, 7).is_ok());
        let error = verdict(2, 7).expect_err("two of them failed").to_string();
        assert!(error.starts_with("2 of 7 measurements failed"), "{error}");
    }
}
