//! A free piece of an output buffer, to be filled in place.

use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use rocketbufs::error::DeliverError;

use crate::errors;
use crate::export::{Exporter, Exports, Memory, buffer_protocol};
use crate::guarded::Kept;

/// A free piece of an output buffer: a writable buffer that is the program's until it is delivered. `deliver`, or the end of a
/// `with` without an exception, makes it a delivery. While a memoryview exists, both raise BufferError.
#[pyclass(frozen, module = "rocketbufs")]
pub struct OutSegment {
    segment: Exporter<rocketbufs::OutSegment>,
    buffer: Kept<rocketbufs::OutBuffer>,
    size: usize,
    position: u64,
}

impl OutSegment {
    /// Makes a Python object of a segment.
    pub fn of(segment: rocketbufs::OutSegment, buffer: rocketbufs::OutBuffer) -> Self {
        let (size, position) = (segment.len(), segment.position());
        Self { segment: Exporter::new(segment, "segment"), buffer: Kept::new(buffer), size, position }
    }

    /// The id of its buffer.
    pub fn buffer_id(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.buffer.get(py)?.bid())
    }

    /// Makes the first `size` bytes a delivery, of the buffer that it is given to.
    ///
    /// # Errors
    /// A memoryview exists, the segment was delivered already, or [`DeliverError`].
    pub fn deliver_to(
        &self,
        py: Python<'_>,
        buffer: &rocketbufs::OutBuffer,
        size: Option<u64>,
        context: Option<u64>,
    ) -> PyResult<u64> {
        let Some(segment) = self.segment.take(py)? else { return Err(errors::released(py, "segment")) };
        let size = size.unwrap_or(self.size as u64);
        match buffer.deliver(segment, size, context) {
            Ok(end) => Ok(end),
            Err(error) => {
                let raised = errors::of(py, "DeliverError", &error);
                if let Some(segment) = DeliverError::into_segment(error) {
                    self.segment.put_back(segment);
                }
                Err(raised)
            }
        }
    }
}

#[pymethods]
impl OutSegment {
    /// The id of the buffer.
    #[getter]
    fn bid(&self, py: Python<'_>) -> PyResult<u32> {
        self.buffer_id(py)
    }

    /// The position of the first byte in the log.
    #[getter]
    fn position(&self) -> u64 {
        self.position
    }

    /// The memory, as a writable memoryview.
    #[getter]
    fn view<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// Whether the segment was delivered or given back.
    #[getter]
    fn released(&self) -> bool {
        self.segment.is_released()
    }

    /// Makes the first `size` bytes (None: all) a delivery; 0 gives the segment back. Returns the end of the delivery.
    #[pyo3(signature = (size=None, context=None))]
    fn deliver(&self, py: Python<'_>, size: Option<u64>, context: Option<u64>) -> PyResult<u64> {
        self.deliver_to(py, self.buffer.get(py)?, size, context)
    }

    fn __len__(&self) -> usize {
        self.size
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exception, *_more))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: &Bound<'_, PyAny>,
        _more: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if self.segment.is_released() {
            return Ok(());
        }
        let size = if exception.is_none() { None } else { Some(0) };
        self.deliver(py, size, None).map(drop)
    }

    fn __repr__(&self) -> String {
        let released = if self.segment.is_released() { ", released" } else { "" };
        format!("OutSegment({} bytes{released})", self.size)
    }
}

impl Drop for OutSegment {
    /// A segment that nobody keeps is given back, so that the log can go on if it is the newest.
    fn drop(&mut self) {
        let Some(segment) = self.segment.take_last() else { return };
        Python::attach(|py| {
            if let Ok(buffer) = self.buffer.get(py) {
                // A destroyed buffer, or an older segment: the next call on the buffer says so.
                drop(buffer.deliver(segment, 0, None));
            }
        });
    }
}

impl Exports for OutSegment {
    fn export(&self, py: Python<'_>) -> PyResult<Memory> {
        self.segment.export(py, |segment| Ok(Memory::writable(segment.bytes_mut())))
    }

    fn unexport(&self) {
        self.segment.unexport();
    }
}

buffer_protocol!(OutSegment);
