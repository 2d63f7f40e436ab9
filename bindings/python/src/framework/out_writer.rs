//! The right to write into a buffer alone.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use rocketbufs::SegmentError;

use super::segment::{OutSegment, by_writer};
use crate::classes::{closing, getters};
use crate::errors::Raise;
use crate::guarded::{Guarded, Kept};
use crate::input::{Input, inputs_of};
use crate::times::{self, Deadline};

/// The right to write into a buffer alone, which costs less for each delivery. `OutBuffer.writer` takes the right; until `close`,
/// the end of a `with`, or the last reference, `segment` and `append` of the buffer fail.
#[pyclass(frozen, module = "rocketbufs")]
pub struct OutWriter {
    writer: Arc<Guarded<rocketbufs::OutWriter>>,
    buffer: Kept<rocketbufs::OutBuffer>,
}

impl OutWriter {
    /// Makes a Python object of a writer.
    pub fn of(writer: rocketbufs::OutWriter) -> Self {
        let buffer = Kept::new(writer.buffer().clone());
        Self { writer: Arc::new(Guarded::new(writer, "writer")), buffer }
    }

    /// Tries until the ring has room. A full ring without a time to wait stays `Full`.
    fn trying<R: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        attempt: impl Fn(&mut rocketbufs::OutWriter, Duration) -> Result<R, SegmentError> + Send + Sync,
    ) -> PyResult<R> {
        let waited =
            self.writer.wait(py, &Deadline::after(timeout), |writer, step| match attempt(writer, step) {
                Ok(done) => Ok(Some(done)),
                Err(SegmentError::Full | SegmentError::TimedOut) => Ok(None),
                Err(error) => Err(error),
            })?;
        waited.unwrap_or(Err(SegmentError::TimedOut)).or_raise(py, "SegmentError")
    }

    /// One delivery of the parts.
    fn deliver_parts(
        &self,
        py: Python<'_>,
        parts: &[Input<'_, '_>],
        timeout: Option<Duration>,
    ) -> PyResult<u64> {
        let bytes: Vec<&[u8]> = parts.iter().map(|part| part.bytes(py)).collect();
        let size: usize = bytes.iter().map(|part| part.len()).sum();
        // As in `append_if_free`.
        let done = self.writer.with(py, |writer| {
            let may_try = timeout == Some(Duration::ZERO) || writer.free_bytes() >= size as u64;
            may_try.then(|| writer.append(&bytes))
        })?;
        match done.unwrap_or(Err(SegmentError::Full)) {
            Err(SegmentError::Full) if timeout != Some(Duration::ZERO) => {}
            done => return done.or_raise(py, "SegmentError"),
        }
        let stable: Vec<_> = parts.iter().map(|part| part.stable(py)).collect();
        let stable: Vec<&[u8]> = stable.iter().map(|part| &**part).collect();
        self.trying(py, timeout, |writer, step| writer.append_blocking(&stable, Some(step)))
    }
}

/// One delivery, if there is room for it. None if not, or for any other reason.
fn append_if_free(writer: &mut rocketbufs::OutWriter, bytes: &[u8]) -> Option<u64> {
    // A writer that is refused asks the subscribers for room, which one that waits does only in time.
    let fits = writer.free_bytes() >= bytes.len() as u64;
    fits.then(|| writer.append(&[bytes])).and_then(Result::ok)
}

#[pymethods]
impl OutWriter {
    /// The id of the buffer.
    #[getter]
    fn bid(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.buffer.get(py)?.bid())
    }

    /// One delivery with a copy of any object with the buffer protocol. Waits for room at most `timeout` seconds. Returns the end
    /// of the delivery.
    #[pyo3(signature = (data, timeout=None))]
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<u64> {
        let (input, timeout) = (Input::of(data)?, times::timeout(timeout)?);
        let appended = self.writer.with(py, |writer| append_if_free(writer, input.bytes(py)))?;
        if let Some(end) = appended { Ok(end) } else { self.deliver_parts(py, &[input], timeout) }
    }

    /// One delivery made of these parts, one behind the other, as `append`.
    #[pyo3(signature = (parts, timeout=None))]
    fn append_parts(&self, py: Python<'_>, parts: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<u64> {
        let parts = parts.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        self.deliver_parts(py, &inputs_of(&parts)?, times::timeout(timeout)?)
    }

    /// One delivery for each of the objects, as `append`. `timeout` is for each wait for room. Returns the end of the last
    /// delivery. An exception has the number of deliveries as `published`.
    #[pyo3(signature = (deliveries, timeout=None))]
    fn append_many(
        &self,
        py: Python<'_>,
        deliveries: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let timeout = times::timeout(timeout)?;
        let objects = deliveries.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let mut inputs = inputs_of(&objects)?.into_iter();
        let mut published = 0;
        let mut end = self.head(py)?;
        loop {
            // With one lock for all parts that fit; the others wait for room.
            let refused = self.writer.with(py, |writer| {
                inputs.find(|input| {
                    let appended = append_if_free(writer, input.bytes(py));
                    if let Some(position) = appended {
                        (published, end) = (published + 1, position);
                    }
                    appended.is_none()
                })
            })?;
            let Some(input) = refused else { return Ok(end) };
            match self.deliver_parts(py, &[input], timeout) {
                Ok(position) => (published, end) = (published + 1, position),
                Err(error) => {
                    error.value(py).setattr("published", published)?;
                    return Err(error);
                }
            }
        }
    }

    /// A free segment of exactly `size` bytes, as `OutBuffer.segment`.
    #[pyo3(signature = (size, timeout=None))]
    fn segment(&self, py: Python<'_>, size: u64, timeout: Option<f64>) -> PyResult<OutSegment> {
        let timeout = times::timeout(timeout)?;
        let segment = self.trying(py, timeout, |writer, step| writer.segment(size, Some(step)))?;
        Ok(OutSegment::of(segment, self.buffer.get(py)?.clone(), Some(self.writer.clone())))
    }

    /// Makes the first `size` bytes (None: all) of a segment a delivery, as `OutBuffer.deliver`.
    #[pyo3(signature = (segment, size=None, context=None))]
    fn deliver(
        &self,
        py: Python<'_>,
        segment: &Bound<'_, OutSegment>,
        size: Option<u64>,
        context: Option<u64>,
    ) -> PyResult<u64> {
        let deliver = |segment, size| by_writer(py, &self.writer, segment, size, context);
        segment.get().deliver_with(py, size, deliver)
    }

    /// Notes the time without a subscriber, so that a subscription with a `start` in the past finds later deliveries.
    fn note_time(&self, py: Python<'_>) -> PyResult<()> {
        self.writer.with(py, |writer| writer.note_time())
    }

    /// Gives the right back. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.writer.take(py)?);
        Ok(())
    }

    /// Whether the right was given back.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.writer.is_closed(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("OutWriter({})", self.buffer.get(py)?.bid()))
    }
}

getters! { OutWriter.writer:
    /// How many bytes could be appended now without asking the subscribers.
    free_bytes: u64;
    /// The end of the written bytes.
    head: u64;
}

closing!(OutWriter, close);
