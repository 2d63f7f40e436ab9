//! A descriptor for the event loop of Python, which becomes readable when a Rust future is to be polled.
//!
//! The threads of the library only write to it. They never wait for the interpreter, whose owner may wait for them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
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
    /// The descriptor of a notifier that is made at the first call, and is readable then.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn descriptor(of: &OnceLock<Self>) -> PyResult<i32> {
        if of.get().is_none() {
            let made = Self::new()?;
            made.waker().wake();
            // Another thread may have made one meanwhile.
            let _ = of.set(made);
        }
        Ok(of.get().map_or(-1, Self::fileno))
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
