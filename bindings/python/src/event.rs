//! Events: reports besides data, as Python sees them.

use std::borrow::Cow;

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// Something that happened. `kind` is the name of the Rust variant, and every field is an attribute.
#[pyclass(frozen, module = "rocketbufs")]
pub struct Event {
    /// The name of the variant.
    kind: Cow<'static, str>,
    fields: Py<PyDict>,
}

impl Event {
    /// An event without fields.
    pub fn new(py: Python<'_>, kind: &'static str) -> Self {
        Self { kind: kind.into(), fields: PyDict::new(py).unbind() }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// The value cannot be converted.
    pub fn with<'py>(self, py: Python<'py>, name: &str, value: impl IntoPyObject<'py>) -> PyResult<Self> {
        self.fields.bind(py).set_item(name, value)?;
        Ok(self)
    }
}

/// Adds fields to an event: `fields!(py, event; start = from, end; of counts: received, lost)`. A field without a value has that of the
/// variable with its name, or of the structure. An error ends the calling function.
macro_rules! fields {
    (@ $name:ident) => { $name };
    (@ $name:ident, $value:expr) => { $value };
    ($py:expr, $event:expr) => { $event };
    ($py:expr, $event:expr; of $from:ident: $($field:ident),+ $(; $($rest:tt)+)?) => {
        $crate::event::fields!($py, $event$(.with($py, stringify!($field), $from.$field)?)+ $(; $($rest)+)?)
    };
    ($py:expr, $event:expr; $($name:ident $(= $value:expr)?),+ $(; $($rest:tt)+)?) => {
        $crate::event::fields!(
            $py,
            $event$(.with($py, stringify!($name), $crate::event::fields!(@ $name $(, $value)?))?)+ $(; $($rest)+)?
        )
    };
}
pub(crate) use fields;

/// Makes an event with [`fields!`]: `event!(py, "Lost"; start = from, end)`.
macro_rules! event {
    ($py:expr, $kind:expr $(; $($fields:tt)+)?) => {
        $crate::event::fields!($py, $crate::event::Event::new($py, $kind) $(; $($fields)+)?)
    };
}
pub(crate) use event;

#[pymethods]
impl Event {
    /// An event, as for tests of a program.
    #[new]
    #[pyo3(signature = (kind, /, **fields))]
    fn of(py: Python<'_>, kind: String, fields: Option<Bound<'_, PyDict>>) -> Self {
        Self { kind: kind.into(), fields: fields.unwrap_or_else(|| PyDict::new(py)).unbind() }
    }

    /// The name of the variant.
    #[getter]
    fn kind(&self) -> &str {
        &self.kind
    }

    /// For copies, and pickle.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((&str,), Bound<'py, PyDict>)> {
        Ok(((&self.kind,), self.fields.bind(py).copy()?))
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.fields.bind(py).get_item(name)?.ok_or_else(|| {
            PyAttributeError::new_err(format!("an event of kind '{}' has no attribute '{name}'", self.kind))
        })
    }

    fn __dir__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let names = self.fields.bind(py).keys();
        names.append("kind")?;
        Ok(names)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!("Event({}", self.kind);
        for (name, value) in self.fields.bind(py).iter() {
            text += &format!(", {name}={}", value.repr()?);
        }
        Ok(text + ")")
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else { return Ok(false) };
        let other = other.get();
        Ok(self.kind == other.kind && self.fields.bind(py).eq(other.fields.bind(py))?)
    }
}
