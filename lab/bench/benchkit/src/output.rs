//! Files for rows and tables, and the format of figures.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use serde::Serialize;

use crate::sys;

/// The files for the results of a bench, in addition to standard output.
#[derive(Debug, Args)]
pub struct Output {
    /// File for the rows, one flat JSON object for each measurement
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Folder for the rows and the table
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// The name of the files in that folder [default: the name of the bench]
    #[arg(long, requires = "out")]
    pub name: Option<String>,
}

impl Output {
    /// Prints the text, and writes it to the folder, if there is one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn publish(&self, name: &str, text: &str) -> io::Result<()> {
        print!("{text}");
        let Some(folder) = &self.out else { return Ok(()) };
        fs::create_dir_all(folder)?;
        let name = self.name.as_deref().unwrap_or(name);
        fs::write(folder.join(format!("{name}.md")), text)
    }

    /// Writes the rows to the selected files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_rows<R: Serialize>(&self, name: &str, rows: &[R]) -> io::Result<()> {
        if let Some(path) = &self.json {
            write_json(path, rows)?;
        }
        if let Some(folder) = &self.out {
            fs::create_dir_all(folder)?;
            let file = format!("{}.json", self.name.as_deref().unwrap_or(name));
            write_json(&Path::new(folder).join(file), rows)?;
        }
        Ok(())
    }
}

/// The progress of a bench.
pub struct Progress {
    began: Instant,
    done: usize,
    all: usize,
}

impl Progress {
    /// The progress before the first of this many measurements.
    pub fn new(all: usize) -> Progress {
        Progress { began: Instant::now(), done: 0, all }
    }

    /// Counts a measurement, and prints it to standard error with the remaining time.
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

/// The head of a page: the machine, what was measured on it, and with which command.
pub fn head(measured: &str) -> String {
    format!("{}, {}; {measured}\n\n    {}\n", sys::cpu(), sys::kernel(), sys::command())
}

/// Writes all rows as one JSON array.
///
/// # Errors
/// The file cannot be written.
pub fn write_json<R: Serialize>(path: &Path, rows: &[R]) -> io::Result<()> {
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    let written = fs::write(path, format!("[\n{}\n]\n", lines?.join(",\n")));
    written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// An interval as text, empty if there is none.
pub fn span(interval: Option<(f64, f64)>, words: impl Fn(f64) -> String) -> String {
    interval.map_or_else(String::new, |(low, high)| format!("{}..{}", words(low), words(high)))
}

/// A rate with three significant digits.
pub fn human(rate: f64) -> String {
    let (scaled, unit) = match rate {
        _ if rate >= 1e6 => (rate / 1e6, " M"),
        _ if rate >= 1e3 => (rate / 1e3, " k"),
        _ => (rate, ""),
    };
    let digits = if scaled >= 100.0 {
        0
    } else if scaled >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_minutes_and_seconds() {
        assert_eq!([minutes(0.4), minutes(61.0), minutes(600.2)], ["0:00", "1:01", "10:00"]);
    }

    #[test]
    fn rates_keep_three_digits() {
        assert_eq!(["5.00", "42.0 k", "193 M"].map(str::to_owned), [5.0, 42_000.0, 193.4e6].map(human));
    }
}
