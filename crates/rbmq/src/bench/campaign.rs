//! A list of points measured one after the other, several times each.
//!
//! Systems under the same load are measured in turn, so that what disturbs the machine disturbs them alike.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;

use super::{
    BenchError, System,
    measure::{self, Method, Point},
    report::{self, Row},
    sys,
};

/// A point during which others kept more cores busy than this is measured again.
const DISTURBED_CORES: f64 = 0.2;

/// What every bench can be told.
#[derive(Debug, Args)]
pub struct Common {
    /// What is measured
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rbmq")]
    pub system: Vec<System>,
    /// What is measured beside it, in turn
    #[arg(long, value_enum, value_delimiter = ',')]
    pub against: Vec<System>,
    /// Seconds of the window that is measured
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Seconds before the window
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// Repetitions of each point; the table shows medians and 95 % intervals
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub reps: u32,
    /// How often a disturbed point is measured again; the least disturbed one is kept
    #[arg(long, default_value_t = 3)]
    pub retries: u32,
    /// TCP congestion control of everybody
    #[arg(long, default_value = "cubic")]
    pub congestion: String,
    /// Bytes of a topic's ring; else what is configured, or room for 8 messages where that is more
    #[arg(long)]
    pub ring_bytes: Option<u64>,
    /// Bytes that the relay reads at once
    #[arg(long, default_value_t = 1024 * 1024)]
    pub relay_read_bytes: usize,
    /// File for the rows, one flat JSON object per measurement
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder for the rows, the table and the plots
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// What the files in that folder are called, instead of the name of the bench
    #[arg(long, requires = "out")]
    pub name: Option<String>,
}

impl Common {
    /// Whoever can be measured here: ours first, nobody twice.
    pub fn systems(&self) -> Vec<System> {
        System::installed(self.system.iter().chain(&self.against).copied())
    }

    /// Settles how everything is measured. May move this thread into a network namespace of its own.
    ///
    /// # Errors
    /// A time is no time.
    pub fn method(&self) -> Result<Method, BenchError> {
        let sane = |seconds: f64| (0.0..=3600.0).contains(&seconds);
        if !(sane(self.seconds) && self.seconds > 0.0 && sane(self.warmup)) {
            return Err(BenchError::BadTime);
        }
        Ok(Method {
            warmup: Duration::from_secs_f64(self.warmup),
            window: Duration::from_secs_f64(self.seconds),
            congestion: sys::settle_congestion(&self.congestion),
            ring_bytes: self.ring_bytes,
            relay_read_bytes: self.relay_read_bytes,
        })
    }

    /// The head of a table: machine, versions, how it was measured, and with which command.
    pub fn head<'v>(&self, method: &Method, versions: impl Iterator<Item = (System, &'v str)>) -> String {
        let mut named: Vec<String> = Vec::new();
        for (system, version) in versions {
            let name = format!("{} {version}", system.name());
            if !named.contains(&name) {
                named.push(name);
            }
        }
        format!(
            "{}, {}; {}\n{}; window {} s after {} s, {} repetitions\n\n    {}\n",
            sys::cpu(),
            sys::kernel(),
            named.join(", "),
            in_force(&method.congestion),
            self.seconds,
            self.warmup,
            self.reps,
            sys::command(),
        )
    }

    /// Prints what there is to say, and writes it with its plots where that was asked for.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn publish(&self, name: &str, text: &str, plots: &[(String, String)]) -> Result<(), BenchError> {
        print!("{text}");
        let Some(folder) = &self.out else { return Ok(()) };
        std::fs::create_dir_all(folder)?;
        let name = self.name.as_deref().unwrap_or(name);
        let images: Vec<String> =
            plots.iter().map(|(which, _)| format!("![{which}]({name}-{which}.svg)\n")).collect();
        std::fs::write(folder.join(format!("{name}.md")), format!("{text}\n{}", images.join("\n")))?;
        for (which, svg) in plots {
            std::fs::write(folder.join(format!("{name}-{which}.svg")), svg)?;
        }
        Ok(())
    }

    /// Writes the rows wherever they were asked for.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_rows<R: serde::Serialize>(&self, name: &str, rows: &[R]) -> Result<(), BenchError> {
        if let Some(path) = &self.json {
            report::write_json(path, rows)?;
        }
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder)?;
            let file = format!("{}.json", self.name.as_deref().unwrap_or(name));
            report::write_json(&Path::new(folder).join(file), rows)?;
        }
        Ok(())
    }
}

/// How many measurements there are, how many are done, and how long that took.
pub struct Progress {
    began: Instant,
    done: usize,
    all: usize,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new(all: usize) -> Progress {
        Progress { began: Instant::now(), done: 0, all }
    }

    /// One more is done: says so on standard error, with the time that the rest will take.
    pub fn one(&mut self, what: &str) {
        self.done += 1;
        let left = self.began.elapsed().as_secs_f64() / self.done as f64 * (self.all - self.done) as f64;
        eprintln!("[{}/{}, {} left] {what}", self.done, self.all, minutes(left));
    }
}

fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
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
    let mut rows: Vec<Row> = Vec::new();
    let mut progress = Progress::new(loads.iter().map(Vec::len).sum::<usize>() * common.reps as usize);
    for load in loads {
        for rep in 0..common.reps {
            for point in load {
                let row = least_disturbed(point, method, rep, common.retries)?;
                progress.one(&told(&row));
                rows.push(row);
            }
        }
        common.write_rows(name, &rows)?;
    }
    Ok(rows)
}

fn least_disturbed(point: &Point, method: &Method, rep: u32, retries: u32) -> Result<Row, BenchError> {
    let mut best = measure::measure(point, method, rep)?;
    for _ in 0..retries {
        if best.other_cores <= DISTURBED_CORES {
            break;
        }
        eprintln!("  others kept {:.2} cores busy: once more", best.other_cores);
        let row = measure::measure(point, method, rep)?;
        if row.other_cores < best.other_cores {
            best = row;
        }
    }
    Ok(best)
}

fn told(row: &Row) -> String {
    format!(
        "{:>7} B  {} → {:<3} {:<14} #{}  {:>8} msg/s  {:6.2} GB/s  lost {}  others {:.2}",
        row.size_bytes,
        row.publishers,
        row.subscribers,
        row.series(),
        row.rep,
        report::human(row.rate()),
        row.rate() * row.size_bytes as f64 / 1e9,
        row.lost,
        row.other_cores,
    )
}

/// Who sees to the congestion control.
pub fn in_force(congestion: &sys::Congestion) -> String {
    match congestion {
        sys::Congestion::Namespace(name) => format!("{name} by the network namespace"),
        sys::Congestion::Sockets(name) => {
            let others = sys::default_congestion();
            format!("{name} set on every socket of ours; other systems' servers have {others}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_minutes_and_seconds() {
        assert_eq!([minutes(0.4), minutes(61.0), minutes(600.2)], ["0:00", "1:01", "10:00"]);
    }
}
