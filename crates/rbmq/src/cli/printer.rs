//! What `serve` prints on standard output. A thread of its own writes it, so that an output that fails, or that nobody
//! reads, keeps nobody from serving, or from ending in order.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing::warn;

use super::Failure;

/// Texts that wait to be written; more are left out.
const WAITING: usize = 8;

/// How long the last words may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Writes texts to standard output, as long as that takes them.
pub(super) struct Printer {
    texts: SyncSender<String>,
    /// Disconnected when the thread has ended.
    end: Receiver<()>,
}

impl Printer {
    pub(super) fn start() -> Result<Self, Failure> {
        // Not as the library has it, which would write what is left of a failure once more at the end.
        let output = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let (texts, waiting) = sync_channel(WAITING);
        let (alive, end) = sync_channel(0);
        std::thread::Builder::new()
            .name("rbmq-printer".into())
            .spawn(move || {
                let _alive = alive;
                write_all(output, &waiting);
            })
            .map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { texts, end })
    }

    /// Writes a text and a newline, unless too much waits already. False if nothing can be written any more.
    pub(super) fn say(&self, text: &str) -> bool {
        !matches!(self.texts.try_send(format!("{text}\n")), Err(TrySendError::Disconnected(_)))
    }

    /// Waits until what was said is written, not for long.
    pub(super) fn finish(self) {
        drop(self.texts);
        if self.end.recv_timeout(LAST_WORDS) == Err(RecvTimeoutError::Timeout) {
            warn!("nobody reads the standard output; what was to be printed there is left out");
        }
    }
}

/// Writes what comes until there is no more, or the first failure, which is told once. Nobody needs to be there to read.
fn write_all(output: io::Result<File>, texts: &Receiver<String>) {
    let failure = match output {
        Ok(mut file) => texts.iter().find_map(|text| file.write_all(text.as_bytes()).err()),
        Err(error) => Some(error),
    };
    if let Some(error) = failure
        && error.kind() != ErrorKind::BrokenPipe
    {
        warn!("cannot write to standard output, nothing more is printed there: {error}");
    }
}
