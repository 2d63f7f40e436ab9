//! Room in a ring that a program fills in place: what the segments of buffers and of topics have in common.
//!
//! ```text
//!   segment(size) ──▶ Claimed ── memoryview: filled in place
//!                        ├── sent:  deliver, publish, or the end of a `with`
//!                        └── given back:  cancel, a `with` that ends with an exception, or the last reference
//! ```

use pyo3::prelude::*;

use crate::errors;
use crate::export::{Exporter, Memory};

/// A segment that was not sent: the exception, and the segment if another try may succeed.
pub struct NotSent<S> {
    /// The exception that the call raises.
    pub error: PyErr,
    /// The segment.
    pub segment: Option<S>,
}

/// The object that a segment was claimed from, and that it goes back to.
pub trait Origin {
    /// The segment in Rust.
    type Segment: Send;

    /// The bytes of a segment. They stay at one address while the segment lives.
    fn bytes(segment: &mut Self::Segment) -> &mut [u8];

    /// Sends the first `size` bytes.
    ///
    /// # Errors
    /// [`NotSent`].
    fn send(&self, py: Python<'_>, segment: Self::Segment, size: u64) -> Result<u64, NotSent<Self::Segment>>;

    /// Gives the segment back: nothing is sent.
    ///
    /// # Errors
    /// [`NotSent`]: not the newest segment.
    fn give_back(&self, py: Python<'_>, segment: Self::Segment) -> Result<(), NotSent<Self::Segment>>;
}

/// A segment that is the program's until it is sent or given back, once.
pub struct Claimed<O: Origin> {
    segment: Exporter<O::Segment>,
    origin: O,
    size: usize,
}

impl<O: Origin> Claimed<O> {
    /// Keeps a segment of `origin`.
    pub fn new(mut segment: O::Segment, origin: O) -> Self {
        let size = O::bytes(&mut segment).len();
        Self { segment: Exporter::new(segment, "segment"), origin, size }
    }

    /// The object that the segment was claimed from.
    pub fn origin(&self) -> &O {
        &self.origin
    }

    /// The bytes of the segment.
    pub fn len(&self) -> usize {
        self.size
    }

    /// Whether the segment was sent or given back.
    pub fn is_released(&self, py: Python<'_>) -> bool {
        self.segment.is_released(py)
    }

    /// Calls `end` with the segment, which remains if the call fails and returns it.
    ///
    /// # Errors
    /// A memoryview exists, the segment was sent or given back before, or the error of `end`.
    pub fn end<R>(
        &self,
        py: Python<'_>,
        end: impl FnOnce(&O, O::Segment) -> Result<R, NotSent<O::Segment>>,
    ) -> PyResult<R> {
        let Some(segment) = self.segment.take(py)? else { return Err(errors::released(py, "segment")) };
        end(&self.origin, segment).map_err(|NotSent { error, segment }| {
            if let Some(segment) = segment {
                self.segment.put_back(py, segment);
            }
            error
        })
    }

    /// Sends the first `size` bytes (none: all).
    ///
    /// # Errors
    /// As [`Claimed::end`].
    pub fn send(&self, py: Python<'_>, size: Option<u64>) -> PyResult<u64> {
        self.end(py, |origin, segment| origin.send(py, segment, size.unwrap_or(self.size as u64)))
    }

    /// Gives the segment back.
    ///
    /// # Errors
    /// As [`Claimed::end`].
    pub fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, |origin, segment| origin.give_back(py, segment))
    }

    /// Counts an export, as [`Exporter::export`].
    ///
    /// # Errors
    /// As [`Exporter::export`].
    pub fn export(&self, py: Python<'_>, of: impl FnOnce(&mut [u8]) -> PyResult<Memory>) -> PyResult<Memory> {
        self.segment.export(py, |segment| of(O::bytes(segment)))
    }

    /// Ends an export.
    pub fn unexport(&self, py: Python<'_>) {
        self.segment.unexport(py);
    }

    /// The end of a `with`.
    ///
    /// # Errors
    /// As [`Claimed::end`].
    pub fn leave(&self, py: Python<'_>, exception: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.is_released(py) {
            return Ok(());
        }
        if exception.is_none() { self.send(py, None).map(drop) } else { self.give_back(py) }
    }
}

impl<O: Origin> Drop for Claimed<O> {
    /// A segment that nobody keeps is given back, so that the log can go on if it is the newest.
    fn drop(&mut self) {
        let Some(segment) = self.segment.take_last() else { return };
        // A closed writer, or an older segment: the next call on the writer says so.
        Python::attach(|py| drop(self.origin.give_back(py, segment)));
    }
}

/// Gives a class around a [`Claimed`] the buffer protocol, the `with`, and what else all segments have.
macro_rules! claimed_methods {
    ($class:ident) => {
        #[pyo3::pymethods]
        impl $class {
            /// Whether the segment was sent or given back.
            #[getter]
            fn released(&self, py: pyo3::Python<'_>) -> bool {
                self.0.is_released(py)
            }

            fn __len__(&self) -> usize {
                self.0.len()
            }

            fn __enter__(slf: pyo3::Py<Self>) -> pyo3::Py<Self> {
                slf
            }

            #[pyo3(signature = (exception, *_more))]
            fn __exit__(
                &self,
                py: pyo3::Python<'_>,
                exception: &pyo3::Bound<'_, pyo3::PyAny>,
                _more: &pyo3::Bound<'_, pyo3::PyAny>,
            ) -> pyo3::PyResult<()> {
                self.0.leave(py, exception)
            }

            fn __repr__(&self, py: pyo3::Python<'_>) -> String {
                let released = if self.0.is_released(py) { ", released" } else { "" };
                format!("{}({} bytes{released})", stringify!($class), self.0.len())
            }
        }

        $crate::export::buffer_protocol! {
            /// The memory, as a writable memoryview.
            $class.0, |bytes, py| Ok($crate::export::Memory::writable(bytes))
        }
    };
}

pub(crate) use claimed_methods;
