//! Listening for connections.

use std::sync::Arc;

use pyo3::prelude::*;

use super::conn::Conn;
use super::context::Context;
use crate::callbacks;
use crate::classes::{closing, detached};
use crate::errors::{self, Raise};
use crate::event::event;
use crate::guarded::{self, Guarded};
use crate::notify::Pollable;
use crate::times::{self, Deadline};

/// Takes connections on an address such as "127.0.0.1:7400"; port 0 takes a free one. `close`, or the end of a `with`, stops
/// listening; connections that were taken go on.
#[pyclass(frozen, weakref, module = "rocketbufs")]
pub struct Listener {
    listener: Guarded<Arc<rocketbufs::Listener>>,
    poll: Pollable,
    /// The address in use.
    #[pyo3(get)]
    local_addr: String,
}

impl Listener {
    /// The handle, for a call that may wait for a callback, which may call the listener too.
    fn shared(&self, py: Python<'_>) -> PyResult<Arc<rocketbufs::Listener>> {
        self.listener.shared(py)
    }
}

#[pymethods]
impl Listener {
    #[new]
    fn new(py: Python<'_>, context: &Bound<'_, Context>, addr: &str) -> PyResult<Self> {
        if callbacks::is_inside() {
            return Err(callbacks::waits(py));
        }
        let context = context.get().handle(py)?;
        let listener = py.detach(|| rocketbufs::Listener::bind(context, addr)).or_raise(py, "ListenError")?;
        let local_addr = listener.local_addr();
        let listener = Guarded::new(Arc::new(listener), "listener");
        Ok(Self { listener, poll: Pollable::default(), local_addr })
    }

    /// Calls `callback(conn)` on a worker thread for every connection.
    fn set_conn_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let call = move |conn| callbacks::call(&callback, |_| Ok((Conn::of(conn),)));
        let listener = self.shared(py)?;
        py.detach(|| listener.set_conn_cb(call));
        Ok(())
    }

    /// Calls `callback(event)` on a worker thread for every connection that ended before it could be offered, with an event
    /// `Foreign`: its `peer`, the `reason` ("Protocol", "Version", "Silent", "Left", …) and the text `why`. A peer that floods the
    /// address calls it as often.
    fn set_foreign_conn_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let call = move |foreign: &rocketbufs::ForeignConnection| {
            callbacks::call(&callback, |py| {
                let (peer, why, reason) = (&foreign.peer, &foreign.why, errors::variant(&foreign.reason));
                Ok((event!(py, "Foreign"; peer, reason, why),))
            });
        };
        let listener = self.shared(py)?;
        py.detach(|| listener.set_foreign_conn_cb(call));
        Ok(())
    }

    /// The next connection, waiting at most `timeout` seconds; None if none came.
    #[pyo3(signature = (timeout=None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Conn>> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let accept = |listener: &rocketbufs::Listener, step| listener.accept(Some(step));
        let waited = self.listener.wait_shared(py, &deadline, accept)?;
        Ok(waited.transpose().or_raise(py, "RecvError")?.map(Conn::of))
    }

    /// A descriptor that is readable while `accept` would return a connection, or say that the listener is closed. The descriptor
    /// belongs to the listener: only poll it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.listener.with(py, |listener| self.poll.descriptor_of(listener.pollable()))??)
    }

    /// Stops listening. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(listener) = self.listener.take(py)? else { return Ok(()) };
        self.poll.end();
        let deadline = guarded::calls_deadline();
        py.detach(|| drop(guarded::alone(listener, &deadline)));
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("Listener('{}')", self.local_addr)
    }
}

detached! { Listener, shared:
    /// Removes the callback. When this has returned, no call of it runs, unless this is called inside it.
    unset_conn_cb;
    /// Removes the callback, as `unset_conn_cb` does.
    unset_foreign_conn_cb;
}

closing!(Listener, close);
