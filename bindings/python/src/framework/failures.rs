//! The framework's errors as exceptions: the class of each enum.

use std::fmt::{Debug, Display};

use pyo3::prelude::*;

use crate::errors;

/// Makes a result of a Rust call a result of a Python call.
pub trait Raise<T> {
    /// Raises an error as this class.
    ///
    /// # Errors
    /// The exception.
    fn or_raise(self, py: Python<'_>, class: &str) -> PyResult<T>;
}

impl<T, E: Display + Debug> Raise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>, class: &str) -> PyResult<T> {
        self.map_err(|error| errors::of(py, class, &error))
    }
}
