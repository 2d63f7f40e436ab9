//! Standard output of a server. Texts go through [`Lines`], so that an output that fails or has no reader neither delays the
//! server nor its end.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::Failure;
use crate::lines::{self, Lines};
use crate::output;

/// Writes texts to standard output until a write fails.
pub struct Printer {
    lines: Lines,
    failed: Arc<AtomicBool>,
    warn: fn(&str),
}

impl Printer {
    /// Starts the thread that writes. `warn` gets what a person should know of the output.
    ///
    /// # Errors
    /// `Failed`: the system refuses the thread.
    pub fn start(warn: fn(&str)) -> Result<Self, Failure> {
        let failed = Arc::new(AtomicBool::new(false));
        let output = Output { file: output::file(), failed: failed.clone(), warn };
        // Dropped tables need no report: the next one follows.
        let lines = Lines::start("printer", output, lines::MAX_BYTES, |_| ())
            .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { lines, failed, warn })
    }

    /// Writes a text and a newline, unless too much waits already. False if the output has failed.
    pub fn print(&self, text: &str) -> bool {
        self.lines.push(format!("{text}\n").into_bytes());
        !self.failed.load(Ordering::Relaxed)
    }
}

impl Drop for Printer {
    /// Waits a short time until all texts are written.
    fn drop(&mut self) {
        if !self.lines.flush() {
            (self.warn)("standard output has no reader; the last lines are not printed");
        }
    }
}

/// Accepts all bytes. The first failure is told, and later bytes are discarded.
struct Output {
    file: io::Result<File>,
    failed: Arc<AtomicBool>,
    warn: fn(&str),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.load(Ordering::Relaxed) {
            return Ok(bytes.len());
        }
        let error = match &mut self.file {
            Ok(file) => match file.write(bytes) {
                Err(error) if error.kind() != ErrorKind::Interrupted => error,
                written => return written,
            },
            Err(error) => io::Error::new(error.kind(), error.to_string()),
        };
        self.failed.store(true, Ordering::Relaxed);
        if error.kind() != ErrorKind::BrokenPipe {
            (self.warn)(&format!("cannot write to standard output, further output is discarded: {error}"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
