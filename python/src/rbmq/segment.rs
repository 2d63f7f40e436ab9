//! The memory of one message, to be filled in place.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use super::failures::publish_error;
use crate::export::{Exporter, Exports, Memory, buffer_protocol};
use crate::guarded::Guarded;

/// Room for one message in the memory that it is sent from: a writable buffer (`memoryview(segment)`,
/// `numpy.frombuffer(segment)`). `publish` publishes it, or the end of a `with` without an exception. While a memoryview of it
/// exists, both raise BufferError: the memory is not the program's any more afterwards.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct MessageSegment {
    segment: Exporter<rbmq::MessageSegment>,
    writer: Arc<Guarded<rbmq::TopicWriter>>,
    size: usize,
}

impl MessageSegment {
    /// Makes a Python object of a segment.
    pub fn of(segment: rbmq::MessageSegment, writer: Arc<Guarded<rbmq::TopicWriter>>) -> Self {
        let size = segment.len();
        Self { segment: Exporter::new(segment, "segment"), writer, size }
    }

    /// Publishes, or with none returns the segment.
    fn end(&self, py: Python<'_>, bytes: Option<u64>) -> PyResult<u64> {
        let Some(segment) = self.segment.take(py)? else {
            return Err(crate::errors::released(py, "segment"));
        };
        let mut segment = Some(segment);
        let ended = self
            .writer
            .with(py, |writer| segment.take().map(|segment| writer.publish_segment(segment, bytes)));
        match ended {
            Ok(Some(Ok(position))) => Ok(position),
            Ok(Some(Err(refused))) => {
                if let Some(segment) = refused.segment {
                    self.segment.put_back(segment);
                }
                Err(publish_error(py, &refused.error))
            }
            Ok(None) => Err(PyValueError::new_err("the segment is in use")),
            Err(error) => Err(error),
        }
    }
}

#[pymethods]
impl MessageSegment {
    /// The memory, as a writable memoryview.
    #[getter]
    fn view<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// Whether the segment was published or returned.
    #[getter]
    fn released(&self) -> bool {
        self.segment.is_released()
    }

    /// Publishes the first `size` bytes (None: all). Only the newest open segment can be published short. Returns the position
    /// behind the message.
    #[pyo3(signature = (size=None))]
    fn publish(&self, py: Python<'_>, size: Option<u64>) -> PyResult<u64> {
        self.end(py, Some(size.unwrap_or(self.size as u64)))
    }

    /// Returns the segment: nothing is published. Only the newest open segment can be returned.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, None).map(drop)
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
        if exception.is_none() { self.publish(py, None).map(drop) } else { self.cancel(py) }
    }

    fn __repr__(&self) -> String {
        let released = if self.segment.is_released() { ", released" } else { "" };
        format!("MessageSegment({} bytes{released})", self.size)
    }
}

impl Drop for MessageSegment {
    /// A segment that nobody keeps is returned, so that the topic can continue if it is the newest.
    fn drop(&mut self) {
        let Some(segment) = self.segment.take_last() else { return };
        Python::attach(|py| {
            // A closed topic, or an older segment: the next call on the topic says so.
            let _ = self.writer.with(py, |writer| writer.publish_segment(segment, None).map(drop));
        });
    }
}

impl Exports for MessageSegment {
    fn export(&self, py: Python<'_>) -> PyResult<Memory> {
        self.segment.export(py, |segment| Ok(Memory::writable(segment.bytes_mut())))
    }

    fn unexport(&self) {
        self.segment.unexport();
    }
}

buffer_protocol!(MessageSegment);
