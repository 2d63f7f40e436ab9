//! What other threads tell a gateway.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use locks::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::protocol::ConnId;

/// A message to the thread of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mail {
    /// A password was checked.
    LoggedIn(ConnId, bool),
    /// The users or their rights have changed.
    Changed,
    /// The gateway is to stop.
    Stop,
}

/// A queue with a descriptor that is readable while there is mail.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mail: Mutex<Vec<Mail>>,
    readable: OwnedFd,
}

impl Mailbox {
    /// An empty queue.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { mail: Mutex::default(), readable })))
    }

    /// Tells the gateway something.
    pub(crate) fn send(&self, mail: Mail) {
        self.0.mail.lock().push(mail);
        // A counter that is full is readable too.
        let _ = rustix::io::write(&self.0.readable, &1_u64.to_ne_bytes());
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> Vec<Mail> {
        let _ = rustix::io::read(&self.0.readable, &mut [0_u8; 8]);
        std::mem::take(&mut *self.0.mail.lock())
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.readable.as_fd()
    }
}
