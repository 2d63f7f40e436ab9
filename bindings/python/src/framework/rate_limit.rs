//! Limits on the bytes per second of connections.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rocketbufs::RateLimits;

/// A limit on bytes per second, which any number of connections of one context share. Bytes beyond it are delayed and never
/// dropped. `bytes_per_second`: 0 is no limit. `burst_bytes`: how much may go at once after a pause; at least 4 KiB.
#[pyclass(frozen, module = "rocketbufs")]
pub struct RateLimit(rocketbufs::RateLimit);

impl RateLimit {
    /// The limit of the framework.
    pub fn limit(&self) -> &rocketbufs::RateLimit {
        &self.0
    }
}

#[pymethods]
impl RateLimit {
    #[new]
    fn new(bytes_per_second: u64, burst_bytes: u64) -> Self {
        Self(rocketbufs::RateLimit::new(bytes_per_second, burst_bytes))
    }

    /// Sets another rate and burst, for later bytes. A present delay ends when it would have.
    fn set(&self, bytes_per_second: u64, burst_bytes: u64) {
        self.0.set(bytes_per_second, burst_bytes);
    }

    /// Bytes per second; 0: no limit.
    #[getter]
    fn bytes_per_second(&self) -> u64 {
        self.0.bytes_per_second()
    }

    /// The bytes that may go at once after a pause.
    #[getter]
    fn burst_bytes(&self) -> u64 {
        self.0.burst_bytes()
    }

    /// The bytes that counted for the limit so far.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.usage().bytes
    }

    /// How long anything was delayed, in seconds. A present delay is in it up to its expected end.
    #[getter]
    fn delayed(&self) -> f64 {
        self.0.usage().delayed.as_secs_f64()
    }

    /// Whether a connection has the limit.
    #[getter]
    fn in_use(&self) -> bool {
        self.0.is_shared()
    }

    fn __repr__(&self) -> String {
        format!("RateLimit({}, {})", self.0.bytes_per_second(), self.0.burst_bytes())
    }
}

/// Adds the limits of an iterable.
fn add(
    to: RateLimits,
    given: Option<&Bound<'_, PyAny>>,
    add: fn(RateLimits, rocketbufs::RateLimit) -> RateLimits,
) -> PyResult<RateLimits> {
    let Some(given) = given else { return Ok(to) };
    given.try_iter()?.try_fold(to, |limits, limit| {
        let limit = limit?;
        let limit = limit.cast::<RateLimit>().map_err(|_| PyTypeError::new_err("a limit is a RateLimit"))?;
        Ok(add(limits, limit.get().0.clone()))
    })
}

/// The limits of a connection, from iterables.
///
/// # Errors
/// Something that is no iterable of `RateLimit`s.
pub fn limits(received: Option<&Bound<'_, PyAny>>, sent: Option<&Bound<'_, PyAny>>) -> PyResult<RateLimits> {
    let limits = add(RateLimits::new(), received, RateLimits::received)?;
    add(limits, sent, RateLimits::sent)
}
