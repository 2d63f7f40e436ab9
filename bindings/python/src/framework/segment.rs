//! A free piece of an output buffer, to be filled in place.

use std::sync::Arc;

use pyo3::prelude::*;
use rocketbufs::error::DeliverError;

use crate::claimed::{Claimed, NotSent, Origin, claimed_methods};
use crate::errors;
use crate::guarded::{Guarded, Kept};

/// A buffer, as the origin of segments, and its writer if that claimed the segment.
pub struct OfBuffer {
    buffer: Kept<rocketbufs::OutBuffer>,
    writer: Option<Arc<Guarded<rocketbufs::OutWriter>>>,
}

impl OfBuffer {
    /// Makes the first `size` bytes a delivery of the writer, or of the buffer once the writer has given its right back.
    fn deliver(
        &self,
        py: Python<'_>,
        segment: rocketbufs::OutSegment,
        size: u64,
        context: Option<u64>,
    ) -> Result<u64, NotDelivered> {
        match &self.writer {
            Some(writer) if !writer.is_closed(py).unwrap_or(true) => {
                by_writer(py, writer, segment, size, context)
            }
            _ => match self.buffer.get(py) {
                Ok(buffer) => by_buffer(py, buffer, segment, size, context),
                Err(error) => Err(NotSent { error, segment: Some(segment) }),
            },
        }
    }
}

/// A segment that was not delivered.
pub type NotDelivered = NotSent<rocketbufs::OutSegment>;

/// Makes the first bytes of a segment a delivery of a buffer, with a context.
///
/// # Errors
/// [`DeliverError`].
pub fn by_buffer(
    py: Python<'_>,
    buffer: &rocketbufs::OutBuffer,
    segment: rocketbufs::OutSegment,
    size: u64,
    context: Option<u64>,
) -> Result<u64, NotDelivered> {
    buffer.deliver(segment, size, context).map_err(|error| not_delivered(py, error))
}

/// As [`by_buffer`], by the buffer's writer.
///
/// # Errors
/// As [`by_buffer`], or the writer has given its right back.
pub fn by_writer(
    py: Python<'_>,
    writer: &Guarded<rocketbufs::OutWriter>,
    segment: rocketbufs::OutSegment,
    size: u64,
    context: Option<u64>,
) -> Result<u64, NotDelivered> {
    let delivered = writer.with_given(py, segment, |writer, segment| writer.deliver(segment, size, context));
    let delivered = delivered.map_err(|(error, segment)| NotSent { error, segment: Some(segment) })?;
    delivered.map_err(|error| not_delivered(py, error))
}

/// The exception of a segment that was not delivered, with the segment if there is one.
fn not_delivered(py: Python<'_>, error: DeliverError) -> NotDelivered {
    NotSent { error: errors::of(py, "DeliverError", &error), segment: error.into_segment() }
}

impl Origin for OfBuffer {
    type Segment = rocketbufs::OutSegment;

    fn bytes(segment: &mut Self::Segment) -> &mut [u8] {
        segment.bytes_mut()
    }

    fn send(&self, py: Python<'_>, segment: Self::Segment, size: u64) -> Result<u64, NotSent<Self::Segment>> {
        self.deliver(py, segment, size, None)
    }

    fn give_back(&self, py: Python<'_>, segment: Self::Segment) -> Result<(), NotSent<Self::Segment>> {
        self.deliver(py, segment, 0, None).map(drop)
    }
}

/// A free piece of an output buffer: a writable buffer that is the program's until it is delivered. `deliver`, or the end of a
/// `with` without an exception, makes it a delivery. While a memoryview exists, both raise BufferError.
#[pyclass(frozen, module = "rocketbufs")]
pub struct OutSegment(
    Claimed<OfBuffer>,
    /// The position of the first byte in the log.
    #[pyo3(get, name = "position")]
    u64,
);

impl OutSegment {
    /// Makes a Python object of a segment that the buffer, or its writer, claimed.
    pub fn of(
        segment: rocketbufs::OutSegment,
        buffer: rocketbufs::OutBuffer,
        writer: Option<Arc<Guarded<rocketbufs::OutWriter>>>,
    ) -> Self {
        let position = segment.position();
        Self(Claimed::new(segment, OfBuffer { buffer: Kept::new(buffer), writer }), position)
    }

    /// The id of its buffer.
    ///
    /// # Errors
    /// The segment belongs to the process before a fork.
    pub fn buffer_id(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.0.origin().buffer.get(py)?.bid())
    }

    /// Makes the first `size` bytes (none: all) a delivery, with `deliver`.
    ///
    /// # Errors
    /// A memoryview exists, the segment was delivered already, or the error of `deliver`.
    pub fn deliver_with(
        &self,
        py: Python<'_>,
        size: Option<u64>,
        deliver: impl FnOnce(rocketbufs::OutSegment, u64) -> Result<u64, NotDelivered>,
    ) -> PyResult<u64> {
        let size = size.unwrap_or(self.0.len() as u64);
        self.0.end(py, |_, segment| deliver(segment, size))
    }
}

#[pymethods]
impl OutSegment {
    /// The id of the buffer.
    #[getter]
    fn bid(&self, py: Python<'_>) -> PyResult<u32> {
        self.buffer_id(py)
    }

    /// Makes the first `size` bytes (None: all) a delivery; 0 gives the segment back. Returns the end of the delivery.
    #[pyo3(signature = (size=None, context=None))]
    fn deliver(&self, py: Python<'_>, size: Option<u64>, context: Option<u64>) -> PyResult<u64> {
        let size = size.unwrap_or(self.0.len() as u64);
        self.0.end(py, |origin, segment| origin.deliver(py, segment, size, context))
    }
}

claimed_methods!(OutSegment);
