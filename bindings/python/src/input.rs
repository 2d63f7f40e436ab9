//! Bytes of Python objects: anything with the buffer protocol.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The exported buffer of an object, released when it is dropped.
pub struct Exported {
    view: Box<ffi::Py_buffer>,
}

// SAFETY: a Py_buffer may be moved to another thread; it is used and released only with the interpreter (`bytes` takes a token,
// and `Drop` attaches).
unsafe impl Send for Exported {}

impl Exported {
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        // Some arrays have no format, such as those of dates.
        let exported = Self::with_flags(object, ffi::PyBUF_ND | ffi::PyBUF_FORMAT)
            .or_else(|_| Self::with_flags(object, ffi::PyBUF_SIMPLE))?;
        if exported.has_objects() {
            return Err(PyTypeError::new_err(
                "an array of Python objects has no bytes, only addresses; give it a type of numbers first",
            ));
        }
        Ok(exported)
    }

    fn with_flags(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(MaybeUninit::<ffi::Py_buffer>::uninit());
        // SAFETY: the object lives, and `view` is memory for the structure.
        let code = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) };
        if code != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: the call filled the structure.
        Ok(Self { view: unsafe { view.assume_init() } })
    }

    /// Whether elements, or fields of them, are references to Python objects. Names of fields are between colons.
    fn has_objects(&self) -> bool {
        if self.view.format.is_null() {
            return false;
        }
        // SAFETY: the exporter keeps a string that ends with a zero until the release.
        let format = unsafe { CStr::from_ptr(self.view.format) };
        format.to_bytes().split(|byte| *byte == b':').step_by(2).any(|types| types.contains(&b'O'))
    }

    /// The bytes. Python code that runs meanwhile could change them, so the caller runs none.
    fn bytes(&self, _py: Python<'_>) -> &[u8] {
        let len = self.view.len as usize;
        if len == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `len` contiguous bytes (PyBUF_SIMPLE) at `buf` until the release. They do not change: the
        // caller has the interpreter and runs no Python code. On a free-threaded interpreter a program that writes into an
        // object while it passes the object to a call breaks Python's own rules for buffers.
        unsafe { std::slice::from_raw_parts(self.view.buf.cast::<u8>(), len) }
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        Python::attach(|_| {
            // SAFETY: the structure was filled and is released once.
            unsafe { ffi::PyBuffer_Release(&mut *self.view) };
        });
    }
}

/// The bytes of an object, for as long as no Python code runs.
pub enum Input<'a, 'py> {
    /// Of a `bytes` object, which never change.
    Bytes(&'a Bound<'py, PyBytes>),
    /// Of another object.
    Exported(Exported),
}

impl<'a, 'py> Input<'a, 'py> {
    /// The input of any object with the buffer protocol.
    ///
    /// # Errors
    /// `TypeError` for an object without, and for an array of objects; `BufferError` for a buffer that is not contiguous.
    pub fn of(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(_) => Exported::of(object).map(Self::Exported),
        }
    }

    /// The bytes.
    pub fn bytes(&self, py: Python<'py>) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Exported(exported) => exported.bytes(py),
        }
    }

    /// The bytes for a call that waits without the interpreter: a copy where they could change meanwhile.
    pub fn stable(&self, py: Python<'py>) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes.as_bytes()),
            Self::Exported(exported) => Cow::Owned(exported.bytes(py).to_vec()),
        }
    }
}

/// The inputs of several objects.
///
/// # Errors
/// As [`Input::of`].
pub fn inputs_of<'a, 'py>(objects: &'a [Bound<'py, PyAny>]) -> PyResult<Vec<Input<'a, 'py>>> {
    objects.iter().map(Input::of).collect()
}
