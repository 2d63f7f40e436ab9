//! `cmq-bench fig7`: the memory of both ends of a long exchange, over time.

use std::{
    thread,
    time::{Duration, Instant},
};

use benchkit::{
    output::{self, Output},
    plot::Chart,
    stats,
    table::Table,
};
use serde::Serialize;

use super::error::BenchError;
use super::{
    field::{DROPPED_OF_1000, Field},
    point::{CONGESTION, Pair, Point},
    system::{Pattern, System},
};

/// Options of `cmq-bench fig7`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds of each run, with loss and without; the paper's longest run had 18,000
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    seconds: u64,
    /// The size of a message in bytes
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..=65_000))]
    size: u32,
    #[command(flatten)]
    output: Output,
}

/// The memory of both ends at one moment.
#[derive(Debug, Clone, Serialize)]
struct Row {
    system: System,
    size_bytes: u32,
    loss: f64,
    at_s: f64,
    driver_rss_bytes: u64,
    answerer_rss_bytes: u64,
}

/// Runs figure 7.
///
/// # Errors
/// Nothing could be measured.
pub fn run(args: &Args) -> Result<(), BenchError> {
    let mut rows = Vec::new();
    let measured = format!("two network namespaces, veth; {} B, up to 1,000 messages outstanding", args.size);
    let mut runs = Vec::new();
    for lossy in [false, true] {
        let (of_run, messages) = one(args, lossy)?;
        rows.extend(of_run.iter().cloned());
        args.output.write_rows("fig7", &rows)?;
        runs.push((of_run, messages));
    }
    let mib = |figure: fn(&Row) -> u64, late: bool| {
        move |(of_run, _): &(Vec<Row>, u64)| {
            // Medians of the second and of the last tenth: in the first tenth buffers and tables reach their size.
            let tenth = of_run.len().div_ceil(10);
            let from = if late { of_run.len() - tenth } else { tenth.min(of_run.len() - tenth) };
            let figures = of_run[from..from + tenth].iter().map(|row| figure(row) as f64);
            format!("{:.1}", stats::median(figures).unwrap_or(0.0) / f64::from(1 << 20))
        }
    };
    let table = Table::of(&runs)
        .right("loss", |(rows, _)| format!("{:.1} %", rows.first().map_or(0.0, |row| row.loss) * 100.0))
        .right("messages", |(_, messages)| *messages)
        .right("driver MiB, early", mib(|row| row.driver_rss_bytes, false))
        .right("late", mib(|row| row.driver_rss_bytes, true))
        .right("answerer MiB, early", mib(|row| row.answerer_rss_bytes, false))
        .right("late", mib(|row| row.answerer_rss_bytes, true));
    let text = format!("# fig7\n\n{}\n{}", output::head(&measured), table.text());
    Ok(args.output.publish("fig7", &text, &[("memory".to_owned(), plot(&rows))])?)
}

/// Makes one run. Returns its rows and the number of messages.
fn one(args: &Args, lossy: bool) -> Result<(Vec<Row>, u64), BenchError> {
    let time = Duration::from_secs(args.seconds);
    let point = Point {
        system: System::CmqPaper,
        pattern: Pattern::Pingping,
        size: args.size,
        dropped_of_1000: if lossy { DROPPED_OF_1000 } else { 0 },
        cut: lossy,
        outstanding: 1000,
        messages: 1000,
        least: 1,
        time,
    };
    let field = Field::new(CONGESTION, point.dropped_of_1000, lossy)?;
    let mut pair = Pair::start(&point, &field)?;
    pair.driver.send("go")?;
    let began = Instant::now();
    let every = (time / 200).max(Duration::from_millis(50));
    let mut rows = Vec::new();
    while began.elapsed() < time {
        rows.push(Row {
            system: point.system,
            size_bytes: point.size,
            loss: point.loss(),
            at_s: began.elapsed().as_secs_f64(),
            driver_rss_bytes: pair.driver.rss_bytes(),
            answerer_rss_bytes: pair.answerer.rss_bytes(),
        });
        thread::sleep(every);
    }
    let done = pair.driver.numbers_within("done", Duration::from_secs(60))?;
    Ok((rows, done.first().copied().unwrap_or(0)))
}

fn plot(rows: &[Row]) -> String {
    let mut chart = Chart::new("Resident memory of both ends", "seconds", "MiB");
    let mut losses: Vec<f64> = rows.iter().map(|row| row.loss).collect();
    losses.dedup();
    for loss in losses {
        let line = |figure: fn(&Row) -> u64| -> Vec<(f64, f64)> {
            let of_run = rows.iter().filter(|row| row.loss == loss);
            of_run.map(|row| (row.at_s, figure(row) as f64 / f64::from(1 << 20))).collect()
        };
        chart = chart.line(&format!("driver, {:.1} % loss", loss * 100.0), &line(|row| row.driver_rss_bytes));
        chart =
            chart.line(&format!("answerer, {:.1} % loss", loss * 100.0), &line(|row| row.answerer_rss_bytes));
    }
    chart.svg()
}
