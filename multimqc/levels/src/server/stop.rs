//! The request to the threads of a server to end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

pub(crate) struct Stop {
    asked: AtomicBool,
    /// Readable from the request on.
    event: OwnedFd,
}

impl Stop {
    pub fn new() -> io::Result<Stop> {
        Ok(Stop { asked: AtomicBool::new(false), event: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        // A write of 8 bytes to an eventfd whose count is 0 does not fail.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    pub fn is_asked(&self) -> bool {
        // Acquire pairs with the Release in `ask`.
        self.asked.load(Ordering::Acquire)
    }

    /// Readable once the threads were asked to end.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
