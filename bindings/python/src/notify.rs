//! Descriptors for the event loop of Python: one that becomes readable when a Rust future is to be polled, and one that outlives the handle
//! that it reports.
//!
//! The threads of the library only write to the first one. They never wait for the interpreter, whose owner may wait for them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, epoll, eventfd};

struct Signal(OwnedFd);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A counter that is full is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// A descriptor that a result makes readable.
#[pyclass(frozen, module = "rocketbufs")]
pub struct Notifier(Arc<Signal>);

impl Notifier {
    /// The descriptor of a notifier that is made at the first call, and is readable then.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn descriptor(of: &OnceLock<Self>) -> PyResult<i32> {
        if of.get().is_none() {
            let made = Self::new()?;
            made.raise();
            // Another thread may have made one meanwhile.
            let _ = of.set(made);
        }
        Ok(of.get().map_or(-1, Self::fileno))
    }

    /// Makes the descriptor readable.
    pub fn raise(&self) {
        self.0.wake_by_ref();
    }

    /// A waker that makes the descriptor readable.
    pub fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }
}

#[pymethods]
impl Notifier {
    #[new]
    fn new() -> PyResult<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        Ok(Self(Arc::new(Signal(fd))))
    }

    /// The descriptor, which only this object closes.
    fn fileno(&self) -> i32 {
        self.0.0.as_raw_fd()
    }

    /// Makes the descriptor unreadable again.
    pub fn drain(&self) {
        // Nothing to read: it was unreadable.
        let _ = rustix::io::read(&self.0.0, &mut [0; 8]);
    }
}

/// The descriptor of an object that can be closed. It belongs to the Python object and not to the handle, so that an event loop that still has
/// the number never watches something else. A closed object is readable: its next call says that it is closed.
#[derive(Default)]
pub struct Pollable(OnceLock<OwnedFd>);

impl Pollable {
    /// The descriptor; `make` makes it at the first call, an epoll instance that is readable while the handle has something.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn descriptor(&self, make: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<RawFd> {
        if self.0.get().is_none() {
            // `end` needs it, and has nobody to tell that there is none.
            always_readable()?;
            let _ = self.0.set(make()?);
        }
        Ok(self.0.get().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// As [`Pollable::descriptor`], of a handle whose descriptor is no epoll instance.
    ///
    /// # Errors
    /// As [`Pollable::descriptor`].
    pub fn descriptor_of(&self, handle: io::Result<BorrowedFd<'_>>) -> io::Result<RawFd> {
        self.descriptor(|| {
            let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&poll, handle?, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            Ok(poll)
        })
    }

    /// The object is closed: the descriptor is readable from now on.
    pub fn end(&self) {
        if let (Some(poll), Ok(ready)) = (self.0.get(), always_readable()) {
            // Without memory for it in the kernel, event loops do not learn of the end.
            let _ = epoll::add(poll, ready, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        }
    }
}

/// The descriptor that is always readable.
fn always_readable() -> io::Result<&'static OwnedFd> {
    static READY: OnceLock<OwnedFd> = OnceLock::new();
    if READY.get().is_none() {
        let _ = READY.set(eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    }
    READY.get().ok_or_else(|| io::Error::other("no descriptor"))
}
