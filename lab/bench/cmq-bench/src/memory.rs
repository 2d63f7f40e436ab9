//! `cmq-bench fig7`: the memory of both ends of a long exchange, over time.

use std::{
    thread,
    time::{Duration, Instant},
};

use benchkit::{
    output::{self, Output},
    view::Columns,
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
    for lossy in [false, true] {
        rows.extend(one(args, lossy)?);
        args.output.write_rows("fig7", &rows)?;
    }
    let text = format!("# fig7\n\n{}\n{}", output::head(&measured), COLUMNS.table(&rows)?);
    Ok(args.output.publish("fig7", &text)?)
}

const COLUMNS: Columns<'static> = Columns {
    who: &["system"],
    load: &["loss"],
    figures: &["driver_rss_bytes", "answerer_rss_bytes"],
    ours: "cmq-paper",
};

/// Makes one run.
fn one(args: &Args, lossy: bool) -> Result<Vec<Row>, BenchError> {
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
    pair.driver.numbers_within("done", Duration::from_secs(60))?;
    Ok(rows)
}
