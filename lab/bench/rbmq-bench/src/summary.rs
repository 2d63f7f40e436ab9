//! `rbmq-bench summary`: a folder of results as a few tables for a README.
//!
//! The command reads the files of the benches (`libraries.json`, `throughput-batch.json`, `latency.json`, `latency-beside.json`,
//! `cpu.json`, `recovery.json`, if they exist) and prints the tables; with `--readme` the tables go between two marks of that
//! file.

use std::{
    fmt::Write,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use benchkit::{
    output::human,
    stats,
    table::{Table, distinct},
};
use clap::Args;
use serde_json::Value;

use crate::{error::BenchError, library_rows, library_table};

/// Marks around the tables of a file: of the client libraries, and all others.
const LIBRARY_MARKS: [&str; 2] = ["<!-- libraries:begin -->", "<!-- libraries:end -->"];
const MARKS: [&str; 2] = ["<!-- bench:begin -->", "<!-- bench:end -->"];

/// The file of the table of client libraries.
const LIBRARIES: &str = "libraries";

/// The files of the other tables.
const READ: [&str; 5] = ["throughput-batch", "latency", "cpu", "latency-beside", "recovery"];

/// The order of columns.
const COLUMNS: [&str; 6] = ["rbmq", "rbmq wire", "relay", "redis", "nats", "rabbitmq"];

/// A row's: its system, and ours once more where the broker was measured without the client library.
fn is_of(row: &Value, column: &str) -> bool {
    match column.split_once(' ') {
        Some((system, api)) => row["system"] == system && row["api"] == api,
        None => row["system"] == column && row["api"] != "wire",
    }
}

/// The options of `rbmq-bench summary`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rbmq-bench summary results
  rbmq-bench summary results --readme README.md --libraries")]
pub struct SummaryArgs {
    /// A folder that benches wrote to with --out
    folder: PathBuf,
    /// A file that gets the tables between its marks <!-- bench:begin --> and <!-- bench:end -->; the table of client
    /// libraries between <!-- libraries:begin --> and <!-- libraries:end -->
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,
    /// The table of client libraries, instead of the others
    #[arg(long)]
    libraries: bool,
}

/// Prints the tables, or puts them into the file.
///
/// # Errors
/// The folder has no results, or the file has no marks.
pub fn run(args: &SummaryArgs) -> Result<(), BenchError> {
    let (text, marks) = if args.libraries {
        (library_overview(&args.folder)?, LIBRARY_MARKS)
    } else {
        (summary(&args.folder)?, MARKS)
    };
    let Some(readme) = &args.readme else {
        print!("{text}");
        return Ok(());
    };
    let old = fs::read_to_string(readme)?;
    let no_marks = || BenchError::NoMarks { file: readme.clone(), marks: marks.join(" and ") };
    let new = between_marks(&old, &text, marks).ok_or_else(no_marks)?;
    Ok(fs::write(readme, new)?)
}

fn between_marks(old: &str, text: &str, [begin, end]: [&str; 2]) -> Option<String> {
    let (before, rest) = old.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{text}{end}{after}"))
}

/// Rows of one kind.
struct Rows(Vec<Value>);

impl Rows {
    /// The rows of a file; none without the file.
    fn read(folder: &Path, name: &str) -> Result<Rows, BenchError> {
        let path = folder.join(format!("{name}.json"));
        if !path.exists() {
            return Ok(Rows(Vec::new()));
        }
        let text = fs::read_to_string(&path)?;
        let rows = serde_json::from_str(&text).map_err(|error| BenchError::System(Box::new(error)))?;
        Ok(Rows(rows))
    }

    fn with(&self, right: impl Fn(&Value) -> bool) -> Rows {
        Rows(self.0.iter().filter(|row| right(row)).cloned().collect())
    }

    fn of(&self, column: &str) -> Rows {
        self.with(|row| is_of(row, column))
    }

    fn columns(&self) -> Vec<&'static str> {
        COLUMNS.into_iter().filter(|column| self.0.iter().any(|row| is_of(row, column))).collect()
    }

    /// The distinct values of a key, in the order of the rows.
    fn values(&self, key: &str) -> Vec<Value> {
        distinct(self.0.iter().filter_map(|row| row.get(key)).cloned())
    }

    fn median(&self, key: &str) -> Option<f64> {
        stats::median(self.0.iter().filter_map(|row| row[key].as_f64()))
    }
}

fn no_results(folder: &Path, wanted: &[&str]) -> BenchError {
    let wanted: Vec<String> = wanted.iter().map(|name| format!("{name}.json")).collect();
    BenchError::NoResults { folder: folder.into(), wanted: wanted.join(", ") }
}

/// The table of client libraries.
fn library_overview(folder: &Path) -> Result<String, BenchError> {
    let path = folder.join(format!("{LIBRARIES}.json"));
    let rows: Vec<library_rows::Row> = match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| BenchError::System(Box::new(error)))?,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let any = rows.first().ok_or_else(|| no_results(folder, &[LIBRARIES]))?;
    Ok(format!(
        "Each system through its own client library (Rust, or C), one call per message published and one item per message received: \
         messages\nper second that each subscriber gets from one publisher ({}, loopback TCP with {}). Round trips of 64 bytes, \
         1,000 per\nsecond; processor time of both ends and the server, at 20,000 messages of 256 bytes per second.\n\n{}\n",
        any.setting.cpu,
        any.setting.congestion_control,
        library_table::overview(&rows)
    ))
}

fn summary(folder: &Path) -> Result<String, BenchError> {
    let mut out = String::new();
    let [throughput, latency, cpu, beside, recovery] = READ.map(|name| Rows::read(folder, name));
    let all = [throughput?, latency?, cpu?, beside?, recovery?];
    let [throughput, latency, cpu, beside, recovery] = &all;
    let Some(any) = all.iter().find_map(|rows| rows.0.first()) else {
        return Err(no_results(folder, &READ));
    };
    let text = |key: &str| any[key].as_str().unwrap_or("unknown").to_owned();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "Measured on {}, {}, loopback TCP with {}; versions, intervals and commands are with the results.\n",
        text("cpu"),
        text("kernel"),
        text("congestion_control")
    );
    for subscribers in throughput.values("subscribers") {
        let rows = throughput.with(|row| row["subscribers"] == subscribers);
        let key = if subscribers == 0 { "published_per_s" } else { "delivered_per_s" };
        let title =
            format!("Messages per second in batches, {subscribers} subscriber(s), payload bytes down");
        by_system(&mut out, &title, &rows, "size_bytes", key, human);
    }
    let whole = |us: f64| format!("{us:.0}");
    let title = "Round trip of small messages, median in microseconds, messages per second down";
    by_system(&mut out, title, latency, "asked_per_s", "p50_us", whole);
    let title = "The same alone (false) and beside a topic at full rate (true)";
    by_system(&mut out, title, beside, "beside_saturated", "p50_us", whole);
    for (side, key) in
        [("broker", "broker_cpu_s_per_million"), ("subscriber", "subscriber_cpu_s_per_million")]
    {
        let title =
            format!("CPU seconds of the {side} per million messages at a fixed load, payload bytes down");
        let one = cpu.with(|row| row["subscribers"] == 1);
        by_system(&mut out, &title, &one, "size_bytes", key, |seconds| format!("{seconds:.2}"));
    }
    let title = "Milliseconds until messages come again after a client was cut off, or the broker was killed and started again";
    by_system(&mut out, title, recovery, "cut", "resume_ms", whole);
    Ok(out)
}

/// A table with a line for each value of `key` and a column for each system.
fn by_system(
    out: &mut String,
    title: &str,
    rows: &Rows,
    key: &str,
    figure: &str,
    words: impl Fn(f64) -> String,
) {
    let columns = rows.columns();
    if columns.is_empty() {
        return;
    }
    let key_of = |value: &Value| value.as_str().map_or_else(|| number(value), str::to_owned);
    let values = rows.values(key);
    let mut table = Table::of(&values).right("", key_of);
    for column in columns {
        let (own, words) = (rows.of(column), &words);
        table = table.right(column, move |value| {
            own.with(|row| row[key] == *value).median(figure).map_or_else(String::new, words)
        });
    }
    let _ = writeln!(out, "{title}:\n\n{}", table.text());
}

/// Without a fraction where there is none, and anything else as it is.
fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_between_the_marks_is_replaced() {
        for [begin, end] in [MARKS, LIBRARY_MARKS] {
            let old = format!("head\n{begin}\nold\n{end}\ntail\n");
            let new = between_marks(&old, "new\n", [begin, end]).unwrap();
            assert_eq!(new, format!("head\n{begin}\nnew\n{end}\ntail\n"));
            assert_eq!(between_marks(&new, "new\n", [begin, end]).unwrap(), new);
            assert_eq!(between_marks("no marks", "new", [begin, end]), None);
        }
    }

    #[test]
    fn results_become_tables() {
        let folder = tempfile::tempdir().unwrap();
        let nothing = summary(folder.path()).unwrap_err().to_string();
        assert!(nothing.ends_with("has none of throughput-batch.json, latency.json, cpu.json, latency-beside.json, recovery.json, of which the tables are made"), "{nothing}");
        let row = |system: &str, rate: f64| {
            format!(
                "{{\"system\":\"{system}\",\"subscribers\":1,\"size_bytes\":64,\"delivered_per_s\":{rate},\
                 \"cpu\":\"2 cores\",\"kernel\":\"Linux\",\"congestion_control\":\"cubic\"}}"
            )
        };
        let wire = row("rbmq", 9e6).replace("\"cpu\"", "\"api\":\"wire\",\"cpu\"");
        let rows = [row("redis", 2e6), row("rbmq", 1e6), row("rbmq", 3e6), wire].join(",");
        fs::write(folder.path().join("throughput-batch.json"), format!("[{rows}]")).unwrap();
        let text = summary(folder.path()).unwrap();
        assert!(text.contains("Measured on 2 cores, Linux, loopback TCP with cubic"));
        assert!(
            text.contains(
                "| | rbmq | rbmq wire | redis |\n|---:|---:|---:|---:|\n| 64 | 2.00 M | 9.00 M | 2.00 M |"
            ),
            "{text}"
        );
        let row = "{\"system\":\"rbmq\",\"cut\":\"broker\",\"resume_ms\":80.4}";
        fs::write(folder.path().join("recovery.json"), format!("[{row}]")).unwrap();
        let row = "{\"system\":\"rbmq\",\"beside_saturated\":true,\"asked_per_s\":1000.0,\"p50_us\":90}";
        fs::write(folder.path().join("latency.json"), format!("[{row}]")).unwrap();
        let text = summary(folder.path()).unwrap();
        assert!(text.contains("| broker | 80 |") && text.contains("| 1000 | 90 |"), "{text}");
    }
}
