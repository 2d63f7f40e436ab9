//! Macros for the parts that many classes have: a `with`, and methods that only ask the handle.

/// Gives a class a `with`, whose end calls a method: `closing!(Publisher, close, Some(10.0))`.
macro_rules! closing {
    ($class:ty, $close:ident $(, $argument:expr)*) => {
        #[pyo3::pymethods]
        impl $class {
            fn __enter__(slf: pyo3::Py<Self>) -> pyo3::Py<Self> {
                slf
            }

            #[pyo3(signature = (*_exception))]
            fn __exit__(
                &self,
                py: pyo3::Python<'_>,
                _exception: &pyo3::Bound<'_, pyo3::PyAny>,
            ) -> pyo3::PyResult<()> {
                self.$close(py $(, $argument)*).map(drop)
            }
        }
    };
}
pub(crate) use closing;

/// Gives a class properties, which the handle in its field has as methods: `getters! { Conn.0: /** … */ id: u64; }`.
macro_rules! getters {
    ($class:ident.$field:tt: $($(#[doc = $doc:tt])* $name:ident: $type:ty;)*) => {
        #[pyo3::pymethods]
        impl $class {
            $(
                $(#[doc = $doc])*
                #[getter]
                fn $name(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<$type> {
                    self.$field.with(py, |handle| handle.$name())
                }
            )*
        }
    };
}
pub(crate) use getters;

/// Gives a class methods without arguments and results, which call those of the handle without the interpreter: a callback that needs
/// it may have to end first. `handle` returns the handle.
macro_rules! detached {
    ($class:ident, $handle:ident: $($(#[doc = $doc:tt])* $name:ident;)*) => {
        #[pyo3::pymethods]
        impl $class {
            $(
                $(#[doc = $doc])*
                fn $name(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<()> {
                    let handle = self.$handle(py)?;
                    py.detach(|| handle.$name());
                    Ok(())
                }
            )*
        }
    };
}
pub(crate) use detached;
