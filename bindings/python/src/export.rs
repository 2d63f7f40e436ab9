//! Memory of Rust objects as buffers of Python objects.
//!
//! ```text
//!   memoryview(batch) ── export ──▶ count 1     release() ── refused: BufferError
//!   del view          ── unexport ▶ count 0     release() ── the space returns to the writer
//! ```

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::errors;
use crate::fork::Process;

/// Contiguous memory at one address.
#[derive(Clone, Copy)]
pub struct Memory {
    start: *const u8,
    len: usize,
    writable: bool,
}

impl Memory {
    /// Memory that Python code may read.
    pub fn readable(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len(), writable: false }
    }

    /// Memory that Python code may read and write.
    pub fn writable(bytes: &mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len(), writable: true }
    }

    /// A part of the memory. Offsets beyond its end are its end.
    pub fn part(self, from: usize, to: usize) -> Self {
        let to = to.min(self.len);
        let from = from.min(to);
        Self { start: self.start.wrapping_add(from), len: to - from, writable: self.writable }
    }
}

/// An object whose bytes can be exported.
pub trait Exports {
    /// Counts an export and returns the memory, which stays in place until [`Exports::unexport`].
    ///
    /// # Errors
    /// The bytes were released.
    fn export(&self, py: Python<'_>) -> PyResult<Memory>;

    /// Ends an export.
    fn unexport(&self, py: Python<'_>);
}

/// A Rust value with bytes at one address, which is kept while they are exported.
pub struct Exporter<T> {
    state: Mutex<State<T>>,
    process: Process,
    what: &'static str,
}

struct State<T> {
    value: Option<T>,
    exports: usize,
}

impl<T> Exporter<T> {
    /// Keeps `value`; `what` names it in errors.
    pub fn new(value: T, what: &'static str) -> Self {
        let state = State { value: Some(value), exports: 0 };
        Self { state: Mutex::new(state), process: Process::current(), what }
    }

    /// The state. A thread that must wait for the lock gives up the interpreter: the owner of the lock may need it to go on.
    fn state(&self, py: Python<'_>) -> MutexGuard<'_, State<T>> {
        self.state.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Calls `f`, which runs no Python code, with the value.
    ///
    /// # Errors
    /// The value was released, or belongs to the process before a fork.
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        self.process.check(py)?;
        let mut state = self.state(py);
        if let Some(value) = &mut state.value {
            return Ok(f(value));
        }
        drop(state);
        Err(errors::released(py, self.what))
    }

    /// Counts an export of the memory that `of` returns.
    ///
    /// # Errors
    /// As [`Exporter::with`], or an error of `of`.
    pub fn export(&self, py: Python<'_>, of: impl FnOnce(&mut T) -> PyResult<Memory>) -> PyResult<Memory> {
        self.process.check(py)?;
        let mut state = self.state(py);
        if let Some(value) = &mut state.value {
            let memory = of(value)?;
            state.exports += 1;
            return Ok(memory);
        }
        drop(state);
        Err(errors::released(py, self.what))
    }

    /// Ends an export.
    pub fn unexport(&self, py: Python<'_>) {
        if self.process.is_over() {
            return;
        }
        let mut state = self.state(py);
        state.exports = state.exports.saturating_sub(1);
    }

    /// Whether the value was taken.
    pub fn is_released(&self, py: Python<'_>) -> bool {
        !self.process.is_over() && self.state(py).value.is_none()
    }

    /// Takes the value out. None if that happened before.
    ///
    /// # Errors
    /// `BufferError`: a memoryview, or another buffer, of the bytes exists.
    pub fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.process.check(py)?;
        let mut state = self.state(py);
        self.check_exports(&state)?;
        Ok(state.value.take())
    }

    /// Calls `f`, which moves or shortens the bytes.
    ///
    /// # Errors
    /// As [`Exporter::with`] and [`Exporter::take`].
    pub fn change<R>(&self, py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        self.process.check(py)?;
        let mut state = self.state(py);
        self.check_exports(&state)?;
        if let Some(value) = &mut state.value {
            return Ok(f(value));
        }
        drop(state);
        Err(errors::released(py, self.what))
    }

    fn check_exports(&self, state: &State<T>) -> PyResult<()> {
        if state.exports == 0 {
            return Ok(());
        }
        let exist = match state.exports {
            1 => format!("a buffer of the {} still exists: release it", self.what),
            more => format!("{more} buffers of the {} still exist: release them", self.what),
        };
        Err(PyBufferError::new_err(format!("{exist} first (del view, or view.release())")))
    }

    /// Puts a value back that [`Exporter::take`] returned.
    pub fn put_back(&self, py: Python<'_>, value: T) {
        self.state(py).value = Some(value);
    }

    /// Takes the value when the object is destroyed: no buffer of it exists then. None in a child process, where it is leaked.
    pub fn take_last(&mut self) -> Option<T> {
        let value = self.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).value.take();
        if self.process.is_over() {
            let _never_dropped = ManuallyDrop::new(value);
            return None;
        }
        value
    }
}

impl<T> Drop for Exporter<T> {
    fn drop(&mut self) {
        drop(self.take_last());
    }
}

/// Fills a buffer request.
///
/// # Safety
/// `view` points to a structure that the interpreter wants filled, and `object` exports its own memory.
pub unsafe fn fill(
    object: &Bound<'_, PyAny>,
    exports: &impl Exports,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let py = object.py();
    let memory = exports.export(py)?;
    let readonly = c_int::from(!memory.writable);
    // SAFETY: `view` is the interpreter's. The memory stays in place until the release: the object counts it, and the
    // structure keeps the object alive.
    let code = unsafe {
        let start = memory.start.cast_mut().cast();
        ffi::PyBuffer_FillInfo(view, object.as_ptr(), start, memory.len as isize, readonly, flags)
    };
    if code != 0 {
        exports.unexport(py);
        return Err(PyErr::fetch(py));
    }
    Ok(())
}

/// Gives a frozen class the buffer protocol: one that [`Exports`], or with `InView.bytes, |value, py| memory`, whose field is an
/// [`Exporter`] of a value with this memory. A comment before the class documents a property `view`.
macro_rules! buffer_protocol {
    (#[doc = $doc:tt] $class:ident $($rest:tt)*) => {
        #[pyo3::pymethods]
        impl $class {
            #[doc = $doc]
            #[getter]
            fn view<'py>(
                slf: &pyo3::Bound<'py, Self>,
            ) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::types::PyMemoryView>> {
                pyo3::types::PyMemoryView::from(slf.as_any())
            }
        }

        $crate::export::buffer_protocol!($class $($rest)*);
    };
    ($class:ident.$field:tt, |$value:ident, $py:ident| $memory:expr) => {
        impl $crate::export::Exports for $class {
            fn export(&self, $py: pyo3::Python<'_>) -> pyo3::PyResult<$crate::export::Memory> {
                self.$field.export($py, |$value| $memory)
            }

            fn unexport(&self, py: pyo3::Python<'_>) {
                self.$field.unexport(py);
            }
        }

        $crate::export::buffer_protocol!($class);
    };
    ($class:ty) => {
        // The calls that PyO3 generates are not in blocks of their own.
        #[allow(unsafe_code, unsafe_op_in_unsafe_fn)]
        const _: () = {
            #[pyo3::pymethods]
            impl $class {
                unsafe fn __getbuffer__(
                    slf: pyo3::Bound<'_, Self>,
                    view: *mut pyo3::ffi::Py_buffer,
                    flags: std::ffi::c_int,
                ) -> pyo3::PyResult<()> {
                    // SAFETY: the interpreter calls this with a structure to fill.
                    unsafe { $crate::export::fill(slf.as_any(), slf.get(), view, flags) }
                }

                unsafe fn __releasebuffer__(&self, py: pyo3::Python<'_>, _view: *mut pyo3::ffi::Py_buffer) {
                    $crate::export::Exports::unexport(self, py);
                }
            }
        };
    };
}
pub(crate) use buffer_protocol;
