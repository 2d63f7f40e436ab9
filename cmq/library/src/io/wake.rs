//! The descriptors that threads sleep on: the socket, and an eventfd that wakes the background thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::socket::Socket;
use crate::error::OpenError;

/// Wakes the background thread.
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub fn new() -> Result<Waker, OpenError> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        fd.map(Waker).map_err(|e| OpenError::System(e.into()))
    }

    pub fn wake(&self) {
        // The write fails only if the counter is full. The thread is being woken then.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// The descriptor that becomes readable when the thread is woken.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Resets the counter, so that the next poll sleeps.
    pub fn drain(&self) {
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8]);
    }
}

/// Sleeps until the socket is readable or `until` has passed. True if the socket is readable.
pub(crate) fn sleep_on(socket: &Socket, until: Option<Instant>, now: Instant) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN)];
    matches!(poll(&mut fds, timespec(until, now).as_ref()), Ok(count) if count > 0)
}

/// The time left until a deadline, as `poll` takes it. `None` is no limit.
pub(crate) fn timespec(until: Option<Instant>, now: Instant) -> Option<Timespec> {
    let time = until?.saturating_duration_since(now);
    Timespec::try_from(time).ok()
}
