//! The interpreter that the module works in: the main one of the process.
//!
//! Threads of the library know one interpreter, and callbacks of all objects share one state. In a sub-interpreter callbacks would run in the
//! wrong interpreter, and its end would end those of all others.

#![allow(unsafe_code)]

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The number of the main interpreter.
const MAIN: i64 = 0;

/// Refuses to be imported elsewhere.
///
/// # Errors
/// `ImportError` in a sub-interpreter.
pub fn check(_py: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached to an interpreter, whose state is asked for a number.
    let interpreter = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if interpreter == MAIN {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "rocketbufs works in the main interpreter only, and this is a sub-interpreter: its threads call back in the main one. Import it \
         there; with mod_wsgi: WSGIApplicationGroup %{GLOBAL}; with uWSGI: single-interpreter = true",
    ))
}
