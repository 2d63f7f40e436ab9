//! What other threads tell a gateway: that there is something new, or that it is to stop. And what it tells them: that it serves.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that is readable after a call of another thread.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    readable: OwnedFd,
    stops: AtomicBool,
    serves: AtomicBool,
}

impl Bell {
    /// A bell that nobody has rung.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Inner { readable, stops: AtomicBool::new(false), serves: AtomicBool::new(false) })))
    }

    /// There is something new.
    pub(crate) fn ring(&self) {
        self.0.ring();
    }

    /// Rings the bell when a task is woken.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }

    /// The gateway is to stop.
    pub(crate) fn stop(&self) {
        // Release: pairs with the acquire of `is_stopping`.
        self.0.stops.store(true, Ordering::Release);
        self.ring();
    }

    /// Makes the descriptor unreadable. What happened before is seen by calls that follow.
    pub(crate) fn hear(&self) {
        let _ = rustix::io::read(&self.0.readable, &mut [0_u8; 8]);
    }

    /// Whether the gateway is to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stops.load(Ordering::Acquire)
    }

    /// The gateway serves clients from now on.
    pub(super) fn set_serving(&self) {
        // Release: pairs with the acquire of `is_serving`.
        self.0.serves.store(true, Ordering::Release);
    }

    /// Whether the gateway serves clients.
    pub(super) fn is_serving(&self) -> bool {
        self.0.serves.load(Ordering::Acquire)
    }
}

impl Inner {
    fn ring(&self) {
        // A counter that is full is readable too.
        let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
    }
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.readable.as_fd()
    }
}
