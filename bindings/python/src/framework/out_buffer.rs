//! A buffer of an rOut.

use std::convert::Infallible;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use rocketbufs::{Progress, SegmentError, SubscriptionLimits, WaitError};

use super::options;
use super::out_writer::OutWriter;
use super::segment::{OutSegment, by_buffer};
use crate::classes::getters;
use crate::errors::Raise;
use crate::event::{Event, event};
use crate::guarded::Kept;
use crate::input::Input;
use crate::times::{self, Deadline};

/// A buffer of an `ROut`. The buffer lives until `destroy`; the object is a handle.
#[pyclass(frozen, weakref, module = "rocketbufs")]
pub struct OutBuffer(Kept<rocketbufs::OutBuffer>);

impl OutBuffer {
    /// Makes a Python object of a handle.
    pub fn of(buffer: rocketbufs::OutBuffer) -> Self {
        Self(Kept::new(buffer))
    }
}

/// A segment, waiting for room without the interpreter.
pub fn segment(
    py: Python<'_>,
    buffer: &rocketbufs::OutBuffer,
    size: u64,
    timeout: Option<Duration>,
) -> PyResult<rocketbufs::OutSegment> {
    let waited =
        times::now_or_wait(py, &Deadline::after(timeout), |step| match buffer.segment(size, Some(step)) {
            Ok(segment) => Ok(Some(segment)),
            Err(SegmentError::Full | SegmentError::TimedOut) => Ok(None),
            Err(error) => Err(error),
        })?;
    let late = if timeout == Some(Duration::ZERO) { SegmentError::Full } else { SegmentError::TimedOut };
    waited.unwrap_or(Err(late)).or_raise(py, "SegmentError")
}

/// Waits in steps for the event that `attempt` waits for.
pub fn wait_for(
    py: Python<'_>,
    timeout: Option<f64>,
    attempt: impl Fn(Option<Duration>) -> Result<(), WaitError> + Send + Sync,
) -> PyResult<()> {
    let deadline = Deadline::after(times::timeout(timeout)?);
    let waited = times::now_or_wait(py, &deadline, |step| match attempt(Some(step)) {
        Err(WaitError::TimedOut { .. }) => Ok(None),
        done => Ok::<_, Infallible>(Some(done)),
    })?;
    let done = match waited {
        Some(Ok(done)) => done,
        None => attempt(Some(Duration::ZERO)),
    };
    done.or_raise(py, "WaitError")
}

#[pymethods]
impl OutBuffer {
    /// A free segment of exactly `size` bytes, to be filled and delivered. Waits for room at most `timeout` seconds.
    #[pyo3(signature = (size, timeout=None))]
    fn segment(&self, py: Python<'_>, size: u64, timeout: Option<f64>) -> PyResult<OutSegment> {
        let buffer = self.0.get(py)?;
        let segment = segment(py, buffer, size, times::timeout(timeout)?)?;
        Ok(OutSegment::of(segment, buffer.clone(), None))
    }

    /// Makes the first `size` bytes (None: all) of a segment a delivery; 0 gives the segment back. `context` comes back in the
    /// data-out callback or event. Returns the end of the delivery.
    #[pyo3(signature = (segment, size=None, context=None))]
    fn deliver(
        &self,
        py: Python<'_>,
        segment: &Bound<'_, OutSegment>,
        size: Option<u64>,
        context: Option<u64>,
    ) -> PyResult<u64> {
        let buffer = self.0.get(py)?;
        segment.get().deliver_with(py, size, |segment, size| by_buffer(py, buffer, segment, size, context))
    }

    /// Takes the right to write, which costs less for each delivery. Until the writer is closed, `segment` and `append` of the
    /// buffer raise `SegmentError`.
    fn writer(&self, py: Python<'_>) -> PyResult<OutWriter> {
        self.0.get(py)?.writer().map(OutWriter::of).or_raise(py, "OutBufferError")
    }

    /// One delivery with a copy of any object with the buffer protocol. Waits for room at most `timeout` seconds. Returns the end
    /// of the delivery.
    #[pyo3(signature = (data, timeout=None, context=None))]
    fn append(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        context: Option<u64>,
    ) -> PyResult<u64> {
        let buffer = self.0.get(py)?;
        let input = Input::of(data)?;
        let size = input.bytes(py).len();
        let mut segment = segment(py, buffer, size as u64, times::timeout(timeout)?)?;
        segment.bytes_mut().copy_from_slice(input.bytes(py));
        buffer.deliver(segment, size as u64, context).or_raise(py, "DeliverError")
    }

    /// Sets what subscriptions may ask for from now on. `block_timeout` is "default", seconds, or None for no limit.
    #[pyo3(signature = (*, policies=None, max_lag_bytes=None, block_timeout=None, max_hold=None))]
    fn set_limits(
        &self,
        py: Python<'_>,
        policies: Option<Vec<String>>,
        max_lag_bytes: Option<u64>,
        block_timeout: Option<&Bound<'_, PyAny>>,
        max_hold: Option<f64>,
    ) -> PyResult<()> {
        let mut limits =
            SubscriptionLimits::new().max_lag_bytes(max_lag_bytes).max_hold(times::timeout(max_hold)?);
        if let Some(names) = policies {
            let policies = names.iter().map(|name| options::policy(name)).collect::<PyResult<Vec<_>>>()?;
            limits = limits.policies(policies.into_iter().collect());
        }
        if let Some(timeout) = block_timeout {
            limits = limits.block_timeout(options::block_timeout(timeout)?);
        }
        self.0.get(py)?.set_limits(limits);
        Ok(())
    }

    /// How far the buffer is confirmed: `landed`, `delivered`, `consumed`, and for how many `subscriptions`.
    fn confirmed(&self, py: Python<'_>) -> PyResult<Event> {
        let confirmed = self.0.get(py)?.confirmed();
        Ok(event!(py, "Confirmed"; of confirmed: landed, delivered, consumed, subscriptions))
    }

    /// Waits until everything below `position` is confirmed at `level` ("landed", "delivered", "consumed") by every subscriber
    /// present.
    #[pyo3(signature = (level, position, timeout=None))]
    fn wait(&self, py: Python<'_>, level: &str, position: u64, timeout: Option<f64>) -> PyResult<()> {
        let (buffer, level) = (self.0.get(py)?, options::level(level)?);
        wait_for(py, timeout, |step| buffer.wait(level, position, step))
    }

    /// Asks the subscribers to report as soon as `position` is confirmed at `level`, without waiting for it.
    fn request_confirm(&self, py: Python<'_>, level: &str, position: u64) -> PyResult<()> {
        self.0.get(py)?.request_confirm(options::level(level)?, position);
        Ok(())
    }

    /// Reports a `Progress` event once: when there is room again ("room"), or when everything below a position was released.
    fn notify_progress(&self, py: Python<'_>, what: &Bound<'_, PyAny>) -> PyResult<()> {
        let progress = match what.cast::<PyString>() {
            Ok(name) if &*name.to_cow()? == "room" => Progress::Room,
            Ok(_) => return Err(PyTypeError::new_err("what is 'room' or a position")),
            Err(_) => Progress::Consumed(what.extract()?),
        };
        self.0.get(py)?.notify_progress(progress);
        Ok(())
    }

    /// Waits until every subscriber present has everything, and of a destroyed buffer has heard that this was all.
    #[pyo3(signature = (timeout=None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let buffer = self.0.get(py)?;
        wait_for(py, timeout, |step| buffer.drain(step))
    }

    /// Ends the buffer: its subscribers get the rest, and then that this was all. Returns the end of its log.
    fn destroy(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.detached(py, |buffer| buffer.destroy())
    }

    /// The state of the buffer; None if it is spliced and its subscription was not answered yet.
    fn info(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        let Some(info) = self.0.get(py)?.info() else { return Ok(None) };
        let (epoch, traffic) = (info.epoch.0, info.traffic);
        Ok(Some(event!(py, "BufferInfo"; epoch;
            of info: start, head, boundary, tail, horizon, capacity_bytes, retain_bytes, max_delivery_bytes, subscribers, ended;
            of traffic: received_bytes, delivered_bytes, dropped_bytes)))
    }

    /// The durable subscriptions whose connections are gone.
    fn durable_cursors(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let of = |cursor: rocketbufs::inspect::DurableCursorInfo| -> PyResult<Event> {
            Ok(
                event!(py, "DurableCursorInfo"; name = PyBytes::new(py, &cursor.name), policy = cursor.policy.as_str();
                of cursor: landed, delivered, consumed, retains_from; expires_in = cursor.expires_in.as_secs_f64()),
            )
        };
        self.0.get(py)?.durable_cursors().into_iter().map(of).collect()
    }

    /// The subscriptions: which are slow, and by how much.
    fn subscribers(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let of = |sub: rocketbufs::inspect::SubscriberInfo| -> PyResult<Event> {
            Ok(
                event!(py, "SubscriberInfo"; conn = sub.conn, name = PyBytes::new(py, &sub.name), policy = sub.policy.as_str();
                of sub: start, sent, landed, delivered, consumed, lag_bytes, dropped_bytes, retains_from;
                idle = sub.idle.as_secs_f64()),
            )
        };
        self.0.get(py)?.subscribers().into_iter().map(of).collect()
    }

    /// Asks the subscribers how far they are; a later look shows their answers.
    fn refresh_subscribers(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get(py)?.refresh_subscribers();
        Ok(())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("OutBuffer({})", self.bid(py)?))
    }
}

getters! { OutBuffer.0:
    /// The id of the buffer.
    bid: u32;
    /// The number of subscriptions.
    subscriber_count: usize;
}
