//! Rust errors as the exceptions of `rocketbufs._errors`.
//!
//! Each Rust enum is a class, each of its variants the `kind` of the exception, and the text is the same.

use std::fmt::{Debug, Display};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// An exception of the class, with a kind and a text.
pub fn raise(py: Python<'_>, class: &str, kind: &str, text: &str) -> PyErr {
    let make = || -> PyResult<Bound<'_, PyAny>> {
        let make =
            MAKE.get_or_try_init(py, || py.import("rocketbufs._errors")?.getattr("make").map(Bound::unbind))?;
        make.bind(py).call1((class, kind, text))
    };
    make().map_or_else(|error| error, PyErr::from_value)
}

/// The exception of a Rust error.
pub fn of<E: Display + Debug>(py: Python<'_>, class: &str, error: &E) -> PyErr {
    raise(py, class, &variant(error), &error.to_string())
}

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
        self.map_err(|error| of(py, class, &error))
    }
}

/// As [`of`], with attributes.
pub fn with<'py, E: Display + Debug>(
    py: Python<'py>,
    class: &str,
    error: &E,
    fields: impl IntoIterator<Item = (&'static str, Bound<'py, PyAny>)>,
) -> PyErr {
    let error = of(py, class, error);
    for (name, value) in fields {
        if let Err(other) = error.value(py).setattr(name, value) {
            return other;
        }
    }
    error
}

/// The name of the variant: a derived `Debug` begins with it.
pub fn variant(error: &impl Debug) -> String {
    let text = format!("{error:?}");
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    text[..end].to_owned()
}

/// An object was closed, and the call needs an open one.
pub fn closed(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "Closed", "Closed", &format!("the {what} is closed"))
}

/// Bytes were released, and the call needs them.
pub fn released(py: Python<'_>, what: &str) -> PyErr {
    raise(py, "Released", "Released", &format!("the {what} was released: its bytes may be others by now"))
}
