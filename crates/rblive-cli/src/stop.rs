//! Signals: SIGINT and SIGTERM ask the command to end in order, and a second SIGINT ends it at once. SIGHUP asks it to read its
//! certificate again.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::failure::Failure;

/// Requests to the command by signals.
pub struct Stop {
    asked: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Readable after a signal.
    wake: UnixStream,
}

impl Stop {
    /// Installs the handlers.
    pub fn install() -> Result<Self, Failure> {
        Self::register().map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")))
    }

    fn register() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let reload = Arc::new(AtomicBool::new(false));
        let (wake, sender) = UnixStream::pair()?;
        // A handler must not block.
        sender.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        // Registered before the handler that sets the flag, so that only a second signal finds it set.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, asked.clone())?;
        for (signal, flag) in [(SIGINT, &asked), (SIGTERM, &asked), (SIGHUP, &reload)] {
            signal_hook::flag::register(signal, flag.clone())?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { asked, reload, wake })
    }

    /// Waits until the command is asked to end, and calls `reload` each time that it is asked to read its certificate again.
    pub fn wait(&self, reload: impl Fn()) {
        while !self.asked.load(Ordering::Acquire) {
            self.until_signal(None);
            if self.reload.swap(false, Ordering::AcqRel) {
                reload();
            }
        }
    }

    /// Waits for this long, or until the command is asked to end; returns whether it is.
    pub fn wait_for(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.asked.load(Ordering::Acquire) || left.is_zero() {
                return self.asked.load(Ordering::Acquire);
            }
            self.until_signal(Some(left));
        }
    }

    fn until_signal(&self, time: Option<Duration>) {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let mut polled = [PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
        // An interrupted poll only costs another turn, and so does a byte that stays.
        let _ = poll(&mut polled, time.as_ref());
        let _ = (&self.wake).read(&mut [0; 64]);
    }
}
