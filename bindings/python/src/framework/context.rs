//! The memory and the threads of a process.

use std::time::Duration;

use pyo3::prelude::*;

use super::rate_limit::RateLimit;
use crate::classes::{closing, getters};
use crate::errors::Raise;
use crate::guarded::Kept;
use crate::settings::{self, Config};
use crate::times;

/// Memory, configuration and worker threads; one for each process is enough. `config` is a `Config`, a dict of settings or the
/// path of a file. The end of a `with` shuts it down.
#[pyclass(frozen, weakref, module = "rocketbufs")]
pub struct Context(Kept<rocketbufs::Context>);

impl Context {
    /// The handle.
    ///
    /// # Errors
    /// The context belongs to the process before a fork.
    pub fn handle(&self, py: Python<'_>) -> PyResult<&rocketbufs::Context> {
        self.0.get(py)
    }
}

#[pymethods]
impl Context {
    #[new]
    #[pyo3(signature = (config=None))]
    fn new(py: Python<'_>, config: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let config = settings::of_argument(config)?;
        let context = py.detach(|| rocketbufs::Context::new(config)).or_raise(py, "ContextError")?;
        Ok(Self(Kept::new(context)))
    }

    /// A copy of the settings.
    #[getter]
    fn config(&self, py: Python<'_>) -> PyResult<Config> {
        Ok(Config::of(self.handle(py)?.config().clone()))
    }

    /// Whether the bucket of a limit of this context's connections is full, so that a new limit would delay no less.
    fn is_rate_limit_full(&self, py: Python<'_>, limit: &Bound<'_, RateLimit>) -> PyResult<bool> {
        Ok(self.handle(py)?.is_rate_limit_full(limit.get().limit()))
    }

    /// Sends BYE to every peer, gives queued data at most `grace` seconds to leave, and stops the threads.
    #[pyo3(signature = (grace=1.0))]
    fn shutdown(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let context = self.handle(py)?;
        if crate::callbacks::is_inside() {
            return Err(crate::callbacks::waits(py));
        }
        let grace = times::timeout(Some(grace))?.unwrap_or(Duration::MAX);
        py.detach(|| context.shutdown(grace));
        Ok(())
    }
}

getters! { Context.0:
    /// The bytes of all present rings.
    memory_in_use: u64;
    /// The number of mapped rings of other processes, and the sum of their capacities in bytes.
    mapped: (usize, u64);
    /// The random name of this process's endpoint, which every peer learns.
    instance: u128;
}

closing!(Context, shutdown, 1.0);
