//! The readiness of a descriptor, for tasks of tokio. The libraries on top of this crate use it for their own descriptors.

// Registering a descriptor with tokio is unsafe, since the descriptor must stay the same.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{self, Poll, ready};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::coop;

/// A descriptor of an event queue, registered with the runtime of tokio in which it was made.
#[derive(Debug)]
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// Registers a copy of the descriptor.
    ///
    /// # Errors
    /// The process has no descriptor left, or the caller is not in a runtime of tokio.
    pub fn new(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        Handle::try_current().map_err(io::Error::other)?;
        let descriptor = descriptor.try_clone_to_owned()?;
        // SAFETY: An `OwnedFd` is open until it is dropped and always names the same descriptor. This type gives no access
        // to it, and drops it only with the registration.
        let registered = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
        Ok(Self(registered.map_err(io::Error::from)?))
    }

    /// Calls `attempt` until it gives something, at once and whenever the descriptor becomes readable. None when the runtime
    /// shuts down. A source that always has something yields to the other tasks of its thread now and then.
    pub fn poll_for<T>(
        &self,
        task: &mut task::Context<'_>,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Poll<Option<T>> {
        let budget = ready!(coop::poll_proceed(task));
        loop {
            if let Some(got) = attempt() {
                budget.made_progress();
                return Poll::Ready(Some(got));
            }
            let Ok(mut readable) = ready!(self.0.poll_read_ready(task)) else { return Poll::Ready(None) };
            // An item that comes after this attempt makes the descriptor ready anew.
            if let Some(got) = attempt() {
                budget.made_progress();
                return Poll::Ready(Some(got));
            }
            readable.clear_ready();
        }
    }

    /// Waits until the descriptor is readable, or the runtime shuts down.
    pub async fn readable(&self) {
        let _ = self.0.readable().await;
    }
}
