//! The receiving end.

use std::os::fd::AsRawFd;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::conn::Conn;
use super::in_reader::InReader;
use super::options;
use super::subscription::{Subscription, receive, received};
use super::view::{BufSeg, InView};
use crate::callbacks;
use crate::classes::detached;
use crate::errors::Raise;
use crate::guarded::Kept;
use crate::input::Input;

/// Receives buffers of one rOut over a connection: by callback, or with `recv`.
#[pyclass(frozen, weakref, module = "rocketbufs")]
pub struct RIn(Kept<rocketbufs::RIn>);

impl RIn {
    /// The handle.
    ///
    /// # Errors
    /// The rIn belongs to the process before a fork.
    pub fn handle(&self, py: Python<'_>) -> PyResult<&rocketbufs::RIn> {
        self.0.get(py)
    }
}

#[pymethods]
impl RIn {
    #[new]
    fn new(py: Python<'_>, conn: &Bound<'_, Conn>) -> PyResult<Self> {
        Ok(Self(Kept::new(rocketbufs::RIn::new(conn.get().handle(py)?))))
    }

    /// Resumes over another connection: every subscription continues where it stopped, or reports its loss.
    fn resume(&self, py: Python<'_>, conn: &Bound<'_, Conn>) -> PyResult<()> {
        self.handle(py)?.resume(conn.get().handle(py)?);
        Ok(())
    }

    /// The present connection.
    #[getter]
    fn conn(&self, py: Python<'_>) -> PyResult<Conn> {
        Ok(Conn::of(self.handle(py)?.conn()))
    }

    /// Subscribes to a buffer, into a ring of `size_bytes`. Returns at once; the sender's answer is an event. Options: `start`
    /// ("newest", "oldest", "last", "first", (epoch, position) or a timedelta), `policy` ("block", "drop", "disconnect",
    /// "overwrite"), `max_lag_bytes`, `block_timeout`, `name` and `hold` (seconds), `confirm` ("on_arrival", "on_consume"),
    /// `own_memory`, `max_view_bytes`, `budget`, `retain_bytes`, `linger` (seconds).
    #[pyo3(signature = (bid, size_bytes=None, **options))]
    fn subscribe(
        &self,
        py: Python<'_>,
        bid: u32,
        size_bytes: Option<u64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Subscription> {
        let options = options::subscribe_options(size_bytes, options)?;
        self.handle(py)?.subscribe_with(bid, options).map(Subscription::of).or_raise(py, "SubscribeError")
    }

    /// Ends the subscription of this buffer.
    fn unsubscribe(&self, py: Python<'_>, bid: u32) -> PyResult<()> {
        self.0.detached(py, |input| input.unsubscribe(bid))
    }

    /// The subscription of this buffer, or None.
    fn subscription(&self, py: Python<'_>, bid: u32) -> PyResult<Option<Subscription>> {
        Ok(self.handle(py)?.subscription(bid).map(Subscription::of))
    }

    /// The subscriptions, ordered by id.
    #[getter]
    fn subscriptions(&self, py: Python<'_>) -> PyResult<Vec<Subscription>> {
        Ok(self.handle(py)?.subscriptions().into_iter().map(Subscription::of).collect())
    }

    /// Calls `callback(bid, seg)` on a worker thread whenever new complete deliveries arrive. Set it before subscribing. Data
    /// stays until `data_consumed` releases it.
    fn set_data_in_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |input| {
            input.set_data_in_cb(move |bid, seg| {
                let given = std::cell::OnceCell::new();
                let arguments = |py: Python<'_>| {
                    let seg = Bound::new(py, BufSeg::of(py, bid, seg)?)?.unbind();
                    let _ = given.set(seg.clone_ref(py));
                    Ok((bid, seg))
                };
                callbacks::call_with(&callback, arguments, |py| {
                    if let Some(seg) = given.get() {
                        seg.get().end_of_callback(py);
                    }
                });
            })
        })
    }

    /// Calls `callback(event)` on a worker thread for every event that is not data.
    fn set_event_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |input| {
            input.set_event_cb(move |event| callbacks::call(&callback, |py| Ok((received(py, event)?,))))
        })
    }

    /// Calls `callback(rin, message)` on a worker thread for every control message of the peer's application.
    fn set_control_msg_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |input| {
            input.set_control_msg_cb(move |input, message| {
                callbacks::call(&callback, |py| {
                    Ok((Self(Kept::new(input.clone())), PyBytes::new(py, message).unbind()))
                });
            })
        })
    }

    /// Releases the oldest `size_bytes` of a buffer.
    fn data_consumed(&self, py: Python<'_>, bid: u32, size_bytes: u64) -> PyResult<()> {
        self.handle(py)?.data_consumed(bid, size_bytes).or_raise(py, "RecvError")
    }

    /// A view of all received bytes of a buffer that were not released.
    fn get_buf_ref(&self, py: Python<'_>, bid: u32) -> PyResult<InView> {
        self.handle(py)?.get_buf_ref(bid).map(InView::of).or_raise(py, "RecvError")
    }

    /// The next data (`InView`) or `Event` of any subscription, waiting at most `timeout` seconds; None if nothing came. Not to be
    /// combined with a data callback.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        let input = self.handle(py)?;
        receive(py, timeout, |step| input.recv(step))
    }

    /// Takes the right to receive, which costs less for each small delivery. Until the reader is closed, `recv` of the rIn and of
    /// its subscriptions raise `RecvError`.
    fn reader(&self, py: Python<'_>) -> PyResult<InReader> {
        self.handle(py)?.reader().map(InReader::of).or_raise(py, "RecvError")
    }

    /// A descriptor that is readable while `recv` would return something. The descriptor belongs to the rIn: only poll it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.handle(py)?.pollable()?.as_raw_fd())
    }

    /// Sends a control message of the application to the peer, in order with the data.
    fn send_control(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let message = Input::of(message)?;
        self.handle(py)?.send_control(message.bytes(py)).or_raise(py, "ControlError")
    }
}

detached! { RIn, handle:
    /// Removes the callback: later data waits for `recv`. When this has returned, no call of it runs, unless this is called
    /// inside it.
    unset_data_in_cb;
    /// Removes the callback, as `unset_data_in_cb` does.
    unset_event_cb;
    /// Removes the callback, as `unset_data_in_cb` does.
    unset_control_msg_cb;
}
