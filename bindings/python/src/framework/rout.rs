//! The sending end.

use std::os::fd::AsRawFd;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rocketbufs::BufferOptions;
use rocketbufs::error::SegmentError;

use super::admission;
use super::conn::Conn;
use super::context::Context;
use super::events;
use super::options;
use super::out_buffer::{self, OutBuffer};
use super::rin::RIn;
use super::segment::{OutSegment, by_buffer};
use crate::arguments::given;
use crate::callbacks;
use crate::classes::detached;
use crate::errors::Raise;
use crate::event::{Event, event};
use crate::guarded::Kept;
use crate::input::Input;
use crate::times::{self, Deadline};

/// Makes buffers and sends them to any number of rIns.
#[pyclass(frozen, weakref, module = "rocketbufs")]
pub struct ROut(Kept<rocketbufs::ROut>);

impl ROut {
    fn handle(&self, py: Python<'_>) -> PyResult<&rocketbufs::ROut> {
        self.0.get(py)
    }

    fn buffer_of(&self, py: Python<'_>, bid: u32) -> PyResult<rocketbufs::OutBuffer> {
        let buffer = self.0.get(py)?.buffer(bid);
        buffer.ok_or(SegmentError::NoSuchBuffer(bid)).or_raise(py, "SegmentError")
    }
}

#[pymethods]
impl ROut {
    #[new]
    fn new(py: Python<'_>, context: &Bound<'_, Context>) -> PyResult<Self> {
        Ok(Self(Kept::new(rocketbufs::ROut::new(context.get().handle(py)?))))
    }

    /// Lets the other end of this connection subscribe to the buffers here.
    fn add_conn(&self, py: Python<'_>, conn: &Bound<'_, Conn>) -> PyResult<()> {
        self.0.get(py)?.add_conn(conn.get().handle(py)?);
        Ok(())
    }

    /// Asks `callback(asking)` on a worker thread about each subscription of a peer before it is accepted; `asking` has `conn` (the
    /// `id` of the connection), `bid` and `name`. The callback returns an `Admitted`, or None: to that peer the buffer
    /// looks as if it did not exist. An exception refuses too, and closes the connection. Existing subscriptions stay until
    /// `review_admissions`.
    fn set_admission(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |out| out.set_admission(move |asking| admission::decide(&callback, asking)))
    }

    /// Asks the callback of `set_admission` again about all subscriptions. A subscription that is not allowed any more
    /// ends, and its peer is told. Returns at once.
    fn review_admissions(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get(py)?.review_admissions();
        Ok(())
    }

    /// Makes a buffer.
    #[pyo3(signature = (bid, size_bytes=None, *, retain_bytes=None, max_delivery_bytes=None, flow_control=true,
        keep_until_delivered=false, start=0))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn create_buffer(
        &self,
        py: Python<'_>,
        bid: u32,
        size_bytes: Option<u64>,
        retain_bytes: Option<u64>,
        max_delivery_bytes: Option<u64>,
        flow_control: bool,
        keep_until_delivered: bool,
        start: u64,
    ) -> PyResult<OutBuffer> {
        let mut options = BufferOptions::new()
            .retain_bytes(retain_bytes)
            .max_delivery_bytes(max_delivery_bytes)
            .flow_control(flow_control)
            .keep_until_delivered(keep_until_delivered)
            .start(start);
        given!(options; size_bytes);
        let buffer = self.0.get(py)?.create_buffer_with(bid, options);
        buffer.map(OutBuffer::of).or_raise(py, "OutBufferError")
    }

    /// The buffer of this id, or None.
    fn buffer(&self, py: Python<'_>, bid: u32) -> PyResult<Option<OutBuffer>> {
        Ok(self.0.get(py)?.buffer(bid).map(OutBuffer::of))
    }

    /// The buffers, in no order.
    #[getter]
    fn buffers(&self, py: Python<'_>) -> PyResult<Vec<OutBuffer>> {
        Ok(self.0.get(py)?.buffers().into_iter().map(OutBuffer::of).collect())
    }

    /// Ends the buffer of this id. Returns the end of its log.
    fn destroy_buffer(&self, py: Python<'_>, bid: u32) -> PyResult<u64> {
        self.0.detached(py, |out| out.destroy_buffer(bid))?.or_raise(py, "OutBufferError")
    }

    /// Takes the ring of the rIn's buffer `bid` as a buffer of this rOut, with the id `out_bid` (None: the same). The bytes
    /// that arrive there go out here without a copy.
    #[pyo3(signature = (input, bid, out_bid=None))]
    fn splice(
        &self,
        py: Python<'_>,
        input: &Bound<'_, RIn>,
        bid: u32,
        out_bid: Option<u32>,
    ) -> PyResult<OutBuffer> {
        let spliced = self.0.get(py)?.splice_as(input.get().handle(py)?, bid, out_bid.unwrap_or(bid));
        spliced.map(OutBuffer::of).or_raise(py, "OutBufferError")
    }

    /// Subscribes the rIn to the buffer `bid`, with the options of `RIn.subscribe`, and splices it, in one step.
    #[pyo3(signature = (input, bid, out_bid=None, size_bytes=None, **options))]
    fn splice_with(
        &self,
        py: Python<'_>,
        input: &Bound<'_, RIn>,
        bid: u32,
        out_bid: Option<u32>,
        size_bytes: Option<u64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<OutBuffer> {
        let options = options::subscribe_options(size_bytes, options)?;
        let input = input.get().handle(py)?;
        let spliced = self.0.get(py)?.splice_with(input, bid, out_bid.unwrap_or(bid), options);
        spliced.map(OutBuffer::of).or_raise(py, "OutBufferError")
    }

    /// A free segment of exactly `size` bytes. With `blocking` it waits for room, and otherwise raises `Full`.
    #[pyo3(signature = (bid, size, blocking=true))]
    fn get_output_segment(
        &self,
        py: Python<'_>,
        bid: u32,
        size: u64,
        blocking: bool,
    ) -> PyResult<OutSegment> {
        let buffer = self.buffer_of(py, bid)?;
        let timeout = if blocking { None } else { Some(Duration::ZERO) };
        let segment = out_buffer::segment(py, &buffer, size, timeout)?;
        Ok(OutSegment::of(segment, buffer, None))
    }

    /// Makes the first `size` bytes (None: all) of a segment a delivery.
    #[pyo3(signature = (segment, size=None, context=None))]
    fn deliver(
        &self,
        py: Python<'_>,
        segment: &Bound<'_, OutSegment>,
        size: Option<u64>,
        context: Option<u64>,
    ) -> PyResult<u64> {
        let buffer = self.buffer_of(py, segment.get().buffer_id(py)?)?;
        segment.get().deliver_with(py, size, |segment, size| by_buffer(py, &buffer, segment, size, context))
    }

    /// Calls `callback(bid, context)` on a worker thread when a delivery with a context has landed with every subscriber.
    fn set_data_out_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |out| {
            out.set_data_out_cb(move |bid, context| callbacks::call(&callback, |_| Ok((bid, context))))
        })
    }

    /// Calls `callback(event)` on a worker thread whenever a subscriber has told how far it is.
    fn set_subscriber_progress_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |out| {
            out.set_subscriber_progress_cb(move |told| {
                callbacks::call(&callback, |py| Ok((events::progress(py, &told)?,)));
            })
        })
    }

    /// Calls `callback(conn, message)` on a worker thread for every control message of the application at another end.
    fn set_control_msg_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |out| {
            out.set_control_msg_cb(move |conn, message| {
                callbacks::call(&callback, |py| {
                    Ok((Conn::of(conn.clone()), PyBytes::new(py, message).unbind()))
                });
            })
        })
    }

    /// Calls `callback(event)` on a worker thread for every event; for those that wait already, on this thread.
    fn set_event_cb(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        self.0.detached(py, |out| {
            out.set_event_cb(move |event| {
                callbacks::call(&callback, |py| Ok((events::of_out(py, event)?,)));
            })
        })
    }

    /// The next event, waiting at most `timeout` seconds; None if nothing happened. An event that has a callback does not
    /// come here.
    #[pyo3(signature = (timeout=None))]
    fn recv_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        let out = self.0.get(py)?;
        let deadline = Deadline::after(times::timeout(timeout)?);
        let waited = times::now_or_wait(py, &deadline, |step| out.recv_event(Some(step)))?;
        waited.transpose().or_raise(py, "RecvError")?.map(|event| events::of_out(py, event)).transpose()
    }

    /// A descriptor that is readable while `recv_event` would return an event. The descriptor belongs to the rOut: only
    /// poll it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.0.get(py)?.pollable()?.as_raw_fd())
    }

    /// As `OutBuffer.drain`, for all buffers.
    #[pyo3(signature = (timeout=None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let out = self.0.get(py)?;
        out_buffer::wait_for(py, timeout, |step| out.drain(step))
    }

    /// Sends a control message of the application over a connection of this rOut.
    fn send_control(
        &self,
        py: Python<'_>,
        conn: &Bound<'_, Conn>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let message = Input::of(message)?;
        self.0.get(py)?.send_control(conn.get().handle(py)?, message.bytes(py)).or_raise(py, "ControlError")
    }

    /// The traffic of all buffers there ever were: `received_bytes`, `delivered_bytes`, `dropped_bytes`.
    fn traffic(&self, py: Python<'_>) -> PyResult<Event> {
        let traffic = self.0.get(py)?.traffic();
        Ok(event!(py, "Traffic"; of traffic: received_bytes, delivered_bytes, dropped_bytes))
    }
}

detached! { ROut, handle:
    /// Removes the callback, as `unset_data_out_cb` does: everything is allowed again.
    unset_admission;
    /// Removes the callback. When this has returned, no call of it runs, unless this is called inside it.
    unset_data_out_cb;
    /// Removes the callback, as `unset_data_out_cb` does.
    unset_subscriber_progress_cb;
    /// Removes the callback, as `unset_data_out_cb` does.
    unset_control_msg_cb;
    /// Removes the callback, as `unset_data_out_cb` does.
    unset_event_cb;
}
