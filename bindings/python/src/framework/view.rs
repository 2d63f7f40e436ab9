//! Received bytes in place.

use pyo3::prelude::*;
use rocketbufs::Lapped;

use crate::classes::closing;
use crate::errors::Raise;
use crate::export::{Exporter, Memory, buffer_protocol};

/// A view, and a copy of its bytes where others may write its memory.
struct Bytes {
    view: rocketbufs::InView,
    copy: Option<Vec<u8>>,
}

impl Bytes {
    fn new(view: rocketbufs::InView) -> Self {
        Self { view, copy: None }
    }

    fn is_copied(&self) -> bool {
        self.view.as_slice().is_none()
    }

    /// The bytes, copied at the first use if necessary.
    fn get(&mut self) -> Result<&[u8], Lapped> {
        if self.is_copied() && self.copy.is_none() {
            self.copy = Some(self.view.to_vec()?);
        }
        let copy = self.copy.as_deref().unwrap_or_default();
        Ok(self.view.as_slice().unwrap_or(copy))
    }
}

/// Received data in the ring: whole deliveries of one buffer. The bytes are not overwritten while the view lives. `consume`, or
/// the end of a `with`, releases them, so that the writer may use the space again. While a memoryview exists, that raises
/// BufferError.
#[pyclass(frozen, module = "rocketbufs")]
pub struct InView {
    bytes: Exporter<Bytes>,
    /// The id of the buffer.
    #[pyo3(get)]
    bid: u32,
    /// The writer's log.
    #[pyo3(get)]
    epoch: u128,
    /// The position behind the last byte.
    #[pyo3(get)]
    end: u64,
    /// Whether reading copies the bytes: the buffer is overwritable, or in memory that others may write.
    #[pyo3(get)]
    copied: bool,
}

impl InView {
    /// Makes a Python object of a view.
    pub fn of(view: rocketbufs::InView) -> Self {
        let (bid, epoch, end) = (view.bid(), view.epoch().0, view.end());
        let bytes = Bytes::new(view);
        let copied = bytes.is_copied();
        Self { bytes: Exporter::new(bytes, "view"), bid, epoch, end, copied }
    }
}

#[pymethods]
impl InView {
    /// The position of the first byte.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        self.bytes.with(py, |bytes| bytes.view.position())
    }

    /// Whether the view was consumed or released.
    #[getter]
    fn released(&self, py: Python<'_>) -> bool {
        self.bytes.is_released(py)
    }

    /// Releases everything up to the end of the view. A second call does nothing.
    fn consume(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(bytes) = self.bytes.take(py)? {
            bytes.view.consume();
        }
        Ok(())
    }

    /// Releases everything below `position`, and ends the view. A durable subscription that resumes gets the rest again.
    fn consume_up_to(&self, py: Python<'_>, position: u64) -> PyResult<()> {
        if let Some(bytes) = self.bytes.take(py)? {
            bytes.view.consume_up_to(position);
        }
        Ok(())
    }

    /// Releases everything below `position`. The view shows only the rest from then on.
    fn consume_part(&self, py: Python<'_>, position: u64) -> PyResult<()> {
        self.bytes.change(py, |bytes| {
            bytes.copy = None;
            bytes.view.consume_part(position);
        })
    }

    /// Ends the view without consuming its bytes.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.bytes.take(py)?);
        Ok(())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.bytes.with(py, |bytes| bytes.view.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let released = if self.bytes.is_released(py) { ", released" } else { "" };
        format!("InView(bid={}, end={}{released})", self.bid, self.end)
    }
}

closing!(InView, consume);

buffer_protocol! {
    /// The bytes as a memoryview.
    InView.bytes, |bytes, py| bytes.get().map(Memory::readable).or_raise(py, "LappedError")
}

/// The data of a data callback: held in place, or copied if it cannot be held.
enum Held {
    View(Box<Bytes>),
    Copy(Vec<u8>),
}

/// Data that arrived, for the time of a data callback. Memoryviews may outlive the callback: they keep the bytes in place.
/// `data_consumed` releases bytes.
#[pyclass(frozen, module = "rocketbufs")]
pub struct BufSeg {
    bytes: Exporter<Held>,
    /// The id of the buffer.
    #[pyo3(get)]
    bid: u32,
    /// The writer's log.
    #[pyo3(get)]
    epoch: u128,
    /// The position of the first byte.
    #[pyo3(get)]
    position: u64,
    /// The position behind the last byte.
    #[pyo3(get)]
    end: u64,
    /// Whether reading copies the bytes.
    #[pyo3(get)]
    copied: bool,
}

impl BufSeg {
    /// Makes a Python object of a segment.
    ///
    /// # Errors
    /// The bytes were overwritten meanwhile.
    pub fn of(py: Python<'_>, bid: u32, seg: &rocketbufs::BufSeg<'_>) -> PyResult<Self> {
        let (held, copied) = match seg.to_view().map(Bytes::new) {
            Some(bytes) => {
                let copied = bytes.is_copied();
                (Held::View(Box::new(bytes)), copied)
            }
            None => {
                let mut copy = vec![0; seg.len()];
                seg.copy_to(0, &mut copy).or_raise(py, "LappedError")?;
                (Held::Copy(copy), true)
            }
        };
        let (epoch, position, end) = (seg.epoch().0, seg.position(), seg.end());
        Ok(Self { bytes: Exporter::new(held, "segment"), bid, epoch, position, end, copied })
    }

    /// The callback returned: no further use, unless a memoryview exists.
    pub fn end_of_callback(&self, py: Python<'_>) {
        // With a memoryview the bytes stay until it is gone.
        drop(self.bytes.take(py));
    }
}

#[pymethods]
impl BufSeg {
    fn __len__(&self) -> usize {
        (self.end - self.position) as usize
    }

    fn __repr__(&self) -> String {
        format!("BufSeg(bid={}, positions={}..{})", self.bid, self.position, self.end)
    }
}

buffer_protocol! {
    /// The bytes as a memoryview.
    BufSeg.bytes, |held, py| match held {
        Held::View(bytes) => bytes.get().map(Memory::readable).or_raise(py, "LappedError"),
        Held::Copy(copy) => Ok(Memory::readable(copy)),
    }
}
