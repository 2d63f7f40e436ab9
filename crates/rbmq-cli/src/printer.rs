//! What `serve` prints on standard output. It goes through [`Lines`], so that an output that fails, or that nobody reads,
//! keeps nobody from serving, or from ending in order.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use super::failure::Failure;
use super::lines::{self, Lines};

/// Writes texts to standard output, as long as that takes them.
pub(super) struct Printer {
    lines: Lines,
    failed: Arc<AtomicBool>,
}

impl Printer {
    pub(super) fn start() -> Result<Self, Failure> {
        let failed = Arc::new(AtomicBool::new(false));
        // Not as the library has it, which would write what is left of a failure once more at the end.
        let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let output = Output { file, failed: failed.clone() };
        // What is left out is printed anew a while later, or not at all.
        let lines = Lines::start("rbmq-printer", output, lines::MAX_BYTES, |_| ())
            .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { lines, failed })
    }

    /// Writes a text and a newline, unless too much waits already. False if nothing can be written any more.
    pub(super) fn say(&self, text: &str) -> bool {
        self.lines.push(format!("{text}\n").into_bytes());
        !self.failed.load(Ordering::Relaxed)
    }

    /// Waits until what was said is written, not for long.
    pub(super) fn finish(self) {
        if !self.lines.flush() {
            warn!("nobody reads the standard output; what was to be printed there is left out");
        }
    }
}

/// Takes everything: its first failure is told once, and what comes behind that is left out. Nobody needs to be there to
/// read.
struct Output {
    file: io::Result<File>,
    failed: Arc<AtomicBool>,
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
            warn!("cannot write to standard output, nothing more is printed there: {error}");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
