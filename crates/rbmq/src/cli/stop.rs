//! SIGINT and SIGTERM ask the command to end in order; a second SIGINT (somebody is impatient) ends it at once.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::Failure;

/// Tells whether the command was asked to end.
pub(super) struct Stop {
    asked: Arc<AtomicBool>,
    /// Readable once it was asked.
    wake: UnixStream,
}

impl Stop {
    /// Takes over the signals.
    pub(super) fn install() -> Result<Self, Failure> {
        Self::register().map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")))
    }

    fn register() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        // Before the flag is registered: only a second signal finds it set. Not so SIGTERM, which supervisors may send
        // both to a process and to its group.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, asked.clone())?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, asked.clone())?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { asked, wake })
    }

    /// Whether the command was asked to end.
    pub(super) fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Waits until it is, at most `timeout` (none: for ever). True if it is.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> bool {
        // Whatever ends the poll, the flag says what is true.
        let _ = wait_readable(&[self.wake.as_fd()], timeout);
        self.asked()
    }

    /// Waits until `input` has something to read (or its end); false if the command was asked to end first.
    pub(super) fn wait_input(&self, input: BorrowedFd<'_>) -> io::Result<bool> {
        while !self.asked() {
            if wait_readable(&[input, self.wake.as_fd()], None)?[0] {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // What is left in the pair is of no use to anybody.
        let _ = self.wake.read(&mut [0; 16]);
    }
}

/// Which of the descriptors are readable, waiting at most `timeout`.
fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}
