//! A mailbox of its own for one integer.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::waiting::{self, Item};
use crate::guarded::Guarded;
use crate::notify::Notifier;

/// The messages for one integer, like a mailbox of Erlang. It keeps its queue open.
#[pyclass(frozen, module = "rocketbufs.cmq")]
pub struct Mailbox {
    mailbox: Guarded<Arc<cmq::Mailbox<Bytes>>>,
    notify: OnceLock<Notifier>,
    id: u32,
}

impl Mailbox {
    /// Makes a Python object of a mailbox.
    pub fn of(mailbox: cmq::Mailbox<Bytes>) -> Self {
        let id = mailbox.id();
        Self { mailbox: Guarded::new(Arc::new(mailbox), "mailbox"), notify: OnceLock::new(), id }
    }

    fn handle(&self, py: Python<'_>) -> PyResult<Arc<cmq::Mailbox<Bytes>>> {
        self.mailbox.with(py, |mailbox| mailbox.clone())
    }
}

#[pymethods]
impl Mailbox {
    /// The integer of the mailbox.
    #[getter]
    fn id(&self) -> u32 {
        self.id
    }

    /// The next message with the key of its sender, if there is one. Never waits.
    fn cw_pop(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        let popped = self.mailbox.with(py, |mailbox| waiting::pop_now(&**mailbox, self.notify.get()))?;
        Ok(popped.map(|message| waiting::item(py, message)))
    }

    /// The next message with the key of its sender, waiting at most `timeout` seconds; None if none came.
    #[pyo3(signature = (timeout=None))]
    fn pop(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Item>> {
        waiting::pop(py, &*self.handle(py)?, timeout)
    }

    /// All messages that arrived, waiting for one at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn pop_all<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        waiting::pop_all(py, &*self.handle(py)?, timeout)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        self.pop(py, None)
    }

    /// The number of messages that wait here.
    #[getter]
    fn waiting(&self, py: Python<'_>) -> PyResult<usize> {
        self.mailbox.with(py, |mailbox| mailbox.waiting())
    }

    /// A descriptor for an event loop, as that of the queue.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.handle(py)?;
        Notifier::descriptor(&self.notify)
    }

    /// Closes the mailbox: later messages for its integer come to the queue. Returns the messages that wait here; an empty list
    /// if another thread still pops here. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<Vec<Item>> {
        let mailbox = self.mailbox.take(py)?.and_then(Arc::into_inner);
        let left = mailbox.map(|mailbox| mailbox.close()).unwrap_or_default();
        Ok(left.into_iter().map(|message| waiting::item(py, message)).collect())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py).map(drop)
    }
}
