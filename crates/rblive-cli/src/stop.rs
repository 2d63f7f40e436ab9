//! Signals: SIGINT and SIGTERM ask the command to end in order, and a second SIGINT ends it at once.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::failure::Failure;

/// Whether the command was asked to end.
pub struct Stop {
    asked: Arc<AtomicBool>,
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
        let (wake, sender) = UnixStream::pair()?;
        // A handler must not block.
        sender.set_nonblocking(true)?;
        // Registered before the handler that sets the flag, so that only a second signal finds it set.
        signal_hook::flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, asked.clone())?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, asked.clone())?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { asked, wake })
    }

    /// Waits until the command is asked to end.
    pub fn wait(&self) {
        while !self.asked.load(Ordering::Acquire) {
            let mut polled = [PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
            // An interrupted poll only costs another turn.
            let _ = poll(&mut polled, None);
        }
    }
}
