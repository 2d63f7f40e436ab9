//! Tables and plots of rows that were measured before.

use std::{fs, io, path::PathBuf};

use clap::Args;
use serde::{Serialize, de::DeserializeOwned};

use crate::{output::Output, sys};

/// The options of a command that makes tables and plots of rows.
#[derive(Debug, Args)]
pub struct Report {
    /// The rows: files that --json has written
    #[arg(required = true)]
    rows: Vec<PathBuf>,
    /// The command that made them, for the table
    #[arg(long)]
    made_by: String,
    #[command(flatten)]
    output: Output,
}

impl Report {
    /// The rows of all files, at least one.
    ///
    /// # Errors
    /// A file cannot be read, or there are no rows.
    pub fn rows<R: DeserializeOwned>(&self) -> io::Result<Vec<R>> {
        let mut rows = Vec::new();
        for path in &self.rows {
            let wrong =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let text = fs::read(path).map_err(wrong)?;
            rows.extend(serde_json::from_slice::<Vec<R>>(&text).map_err(|error| wrong(error.into()))?);
        }
        if rows.is_empty() { Err(io::Error::other("there are no rows")) } else { Ok(rows) }
    }

    /// The head of a page, with the kernel that the rows name.
    pub fn head(&self, title: &str, kernel: &str) -> String {
        let (cpu, made_by) = (sys::cpu(), &self.made_by);
        format!("# {title}\n\n{kernel}, {cpu}. Made by `{made_by}`. Medians of the repetitions.\n")
    }

    /// Prints the text, and writes it with its plots and all rows to the selected files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn publish<R: Serialize>(
        &self,
        name: &str,
        text: &str,
        plots: &[(String, String)],
        rows: &[R],
    ) -> io::Result<()> {
        self.output.publish(name, text, plots)?;
        self.output.write_rows(name, rows)
    }
}
