//! A descriptor for the event loop of Python, which becomes readable when a Rust future is to be polled.
//!
//! The threads of the library only write to it. They never wait for the interpreter, whose owner may wait for them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::task::{Wake, Waker};

use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

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
    fn drain(&self) {
        // Nothing to read: it was unreadable.
        let _ = rustix::io::read(&self.0.0, &mut [0; 8]);
    }
}
