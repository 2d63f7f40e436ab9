//! Connections.

use std::convert::Infallible;
use std::os::fd::AsRawFd;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketbufs::error::ConnError;

use super::context::Context;
use super::events;
use super::rate_limit;
use crate::classes::{closing, getters};
use crate::errors::Raise;
use crate::event::Event;
use crate::guarded::Kept;
use crate::input::Input;
use crate::times::{self, Deadline};

/// A connection to a peer. `hello` is what the peer learns first: a role, a name, credentials. A connection that is dropped stays
/// open: `close`, or the end of a `with`, closes it.
#[pyclass(frozen, weakref, module = "rocketbufs")]
pub struct Conn(Kept<rocketbufs::Conn>);

impl Conn {
    /// Makes a Python object of a handle.
    pub fn of(conn: rocketbufs::Conn) -> Self {
        Self(Kept::new(conn))
    }

    /// The handle.
    ///
    /// # Errors
    /// The connection belongs to the process before a fork.
    pub fn handle(&self, py: Python<'_>) -> PyResult<&rocketbufs::Conn> {
        self.0.get(py)
    }
}

/// Waits in steps until the connection is up.
fn wait_up(py: Python<'_>, conn: &rocketbufs::Conn, timeout: Option<Duration>) -> PyResult<()> {
    let waited = times::now_or_wait(py, &Deadline::after(timeout), |step| match conn.wait_up(Some(step)) {
        Err(ConnError::TimedOut { .. }) => Ok(None),
        done => Ok::<_, Infallible>(Some(done)),
    })?;
    let whole = timeout.unwrap_or_default();
    let done = match waited {
        Some(Ok(done)) => done,
        None => Err(ConnError::TimedOut { addr: conn.peer_addr(), waited_ms: whole.as_millis() as u64 }),
    };
    done.or_raise(py, "ConnError")
}

#[pymethods]
impl Conn {
    /// Connects, and waits until the other end has accepted, at most `session.connect_timeout_ms`.
    #[new]
    #[pyo3(signature = (context, addr, hello=None))]
    fn new(
        py: Python<'_>,
        context: &Bound<'_, Context>,
        addr: &str,
        hello: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let conn = Self::start(py, context, addr, hello)?;
        let timeout = context.get().handle(py)?.config().session.connect_timeout_ms;
        let up = wait_up(py, conn.handle(py)?, Some(Duration::from_millis(timeout.into())));
        match up {
            Ok(()) => Ok(conn),
            Err(error) => {
                conn.handle(py)?.close("gave up connecting");
                Err(error)
            }
        }
    }

    /// Begins to connect, and returns at once. The connection can be given to an rIn or an rOut while it is not up yet.
    #[staticmethod]
    #[pyo3(signature = (context, addr, hello=None))]
    fn start(
        py: Python<'_>,
        context: &Bound<'_, Context>,
        addr: &str,
        hello: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let hello =
            hello.map(|hello| Ok::<_, PyErr>(Input::of(hello)?.stable(py).into_owned())).transpose()?;
        let context = context.get().handle(py)?;
        let conn = rocketbufs::Conn::connect_start(context, addr, &hello.unwrap_or_default());
        conn.map(Self::of).or_raise(py, "ConnError")
    }

    /// Waits until the connection is up.
    #[pyo3(signature = (timeout=None))]
    fn wait_up(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        wait_up(py, self.handle(py)?, times::timeout(timeout)?)
    }

    /// Waits until the connection is down; the reason if it is, None after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait_down(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        let conn = self.handle(py)?;
        let deadline = Deadline::after(times::timeout(timeout)?);
        let waited = times::now_or_wait(py, &deadline, |step| conn.wait_down(Some(step)))?;
        waited
            .transpose()
            .or_raise(py, "RecvError")?
            .map(|reason| events::down_reason(py, &reason))
            .transpose()
    }

    /// The next event (`Up`, `Down`), waiting at most `timeout` seconds; None if nothing happened.
    #[pyo3(signature = (timeout=None))]
    fn recv_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        let conn = self.handle(py)?;
        let deadline = Deadline::after(times::timeout(timeout)?);
        let waited = times::now_or_wait(py, &deadline, |step| conn.recv_event(Some(step)))?;
        waited.transpose().or_raise(py, "RecvError")?.map(|event| events::of_conn(py, &event)).transpose()
    }

    /// A descriptor that is readable while `recv_event` would return an event. The descriptor belongs to the connection:
    /// only poll it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.handle(py)?.pollable()?.as_raw_fd())
    }

    /// Why it is down; None while it is not.
    #[getter]
    fn down_reason(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        self.handle(py)?.down_reason().map(|reason| events::down_reason(py, &reason)).transpose()
    }

    /// The other end's hello: empty until it was read.
    #[getter]
    fn peer_hello<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.handle(py)?.peer_hello()))
    }

    /// The facts that the transport has verified about the other end: its `certificate` in DER (TLS; or None), the `process` with `pid`, `uid`
    /// and `gid` (shared memory; or None), and whether bytes on the way are `encrypted`. Known before a listener's callback gets the
    /// connection; nothing is known until the other end's hello was read.
    #[getter]
    fn peer_identity(&self, py: Python<'_>) -> PyResult<Event> {
        let known = self.handle(py)?.peer_identity();
        events::identity(py, &known)
    }

    /// Limits the bytes per second of the payload, in place of earlier limits: iterables of `RateLimit`s for what arrives and for
    /// what is sent. Everything is delayed and nothing dropped. Without limits there are none.
    #[pyo3(signature = (*, received=None, sent=None))]
    fn set_rate_limits(
        &self,
        py: Python<'_>,
        received: Option<&Bound<'_, PyAny>>,
        sent: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.handle(py)?.set_rate_limits(rate_limit::limits(received, sent)?);
        Ok(())
    }

    /// The transport that carries the connection, and why it was chosen: ("tcp", "…"). None until the other end's hello was
    /// read.
    #[getter]
    fn carrier(&self, py: Python<'_>) -> PyResult<Option<(&'static str, String)>> {
        Ok(self.handle(py)?.carrier().map(|carrier| (carrier.name, carrier.why)))
    }

    /// Sends a control message of the application, in order with the data. Returns at once.
    fn send_control(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let message = Input::of(message)?;
        self.handle(py)?.send_control(message.bytes(py)).or_raise(py, "ControlError")
    }

    /// Closes in order: queued bytes leave first, and the peer is told why.
    #[pyo3(signature = (why=""))]
    fn close(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        self.handle(py)?.close(why);
        Ok(())
    }

    /// Refuses a connection that was offered.
    #[pyo3(signature = (why=""))]
    fn reject(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        self.handle(py)?.reject(why);
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let conn = self.handle(py)?;
        Ok(format!("Conn(id={}, peer='{}')", conn.id(), conn.peer_addr()))
    }
}

closing!(Conn, close, "");

getters! { Conn.0:
    /// Whether both ends have accepted it and it is not down.
    is_up: bool;
    /// Names this connection in this process.
    id: u64;
    /// The other end's address.
    peer_addr: String;
    /// The random name of the other end's process.
    peer_instance: u128;
    /// The largest control message in bytes.
    max_control_bytes: usize;
    /// Bytes of control messages that wait to be sent.
    control_waiting: usize;
}
