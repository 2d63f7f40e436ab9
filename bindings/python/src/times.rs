//! Time-outs of Python calls: seconds, or none for no limit.

use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::callbacks;

/// The longest wait before a waiting call looks for signals such as Ctrl-C.
const STEP: Duration = Duration::from_millis(100);

/// A time-out in seconds as Rust has it.
///
/// # Errors
/// A negative number, or none.
pub fn timeout(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    match seconds {
        None => Ok(None),
        Some(seconds) if seconds.is_nan() || seconds < 0.0 => Err(PyValueError::new_err(format!(
            "a time-out of {seconds} seconds; expected 0 or more, or None"
        ))),
        // Beyond the range of durations: no limit.
        Some(seconds) => Ok(Duration::try_from_secs_f64(seconds).ok()),
    }
}

/// A time in seconds.
///
/// # Errors
/// No number, or none for no limit.
pub fn seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    timeout(Some(value.extract()?))?
        .ok_or_else(|| PyValueError::new_err(format!("{name} has a limit: a number of seconds")))
}

/// When a call has waited long enough.
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline after this time; none: never.
    pub fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }

    /// The time that is left; none: no limit.
    pub fn left(&self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// How long to wait before the next look for signals.
    pub fn step(&self) -> Duration {
        self.0.map_or(STEP, |at| at.saturating_duration_since(Instant::now()).min(STEP))
    }
}

/// As [`wait`], and tries at once first, with the interpreter: a thread that gives the interpreter up may get it back milliseconds
/// later. With a time of zero `attempt` must not wait.
///
/// # Errors
/// As [`wait`].
pub fn now_or_wait<T: Send, E: Send>(
    py: Python<'_>,
    deadline: &Deadline,
    mut attempt: impl FnMut(Duration) -> Result<Option<T>, E> + Send,
) -> PyResult<Option<Result<T, E>>> {
    match attempt(Duration::ZERO).transpose() {
        Some(done) => Ok(Some(done)),
        None if deadline.is_over() => Ok(None),
        None => wait(py, deadline, attempt),
    }
}

/// Waits until `attempt` returns something, which waits at most the given time itself, without the interpreter. None if the
/// deadline passed.
///
/// # Errors
/// An exception of a signal's handler, such as `KeyboardInterrupt`, or an error of the attempt.
pub fn wait<T: Send, E: Send>(
    py: Python<'_>,
    deadline: &Deadline,
    mut attempt: impl FnMut(Duration) -> Result<Option<T>, E> + Send,
) -> PyResult<Option<Result<T, E>>> {
    loop {
        let over = deadline.is_over();
        if !over && callbacks::is_inside() {
            return Err(callbacks::waits(py));
        }
        let step = deadline.step();
        match py.detach(|| attempt(step)) {
            Ok(Some(done)) => return Ok(Some(Ok(done))),
            Ok(None) => {}
            Err(error) => return Ok(Some(Err(error))),
        }
        if over {
            return Ok(None);
        }
        py.check_signals()?;
    }
}

/// Runs a call that waits and cannot be divided, on a thread of its own. After an interrupt the thread finishes alone, and its
/// result is dropped.
///
/// # Errors
/// An exception of a signal's handler, or the system refuses a thread.
pub fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if callbacks::is_inside() {
        return Err(callbacks::waits(py));
    }
    let (send, result) = std::sync::mpsc::sync_channel(1);
    threads::spawn("rocketbufs-call", move || drop(send.send(call())))?;
    let waited = wait(py, &Deadline::after(None), move |step| match result.recv_timeout(step) {
        Ok(done) => Ok(Some(done)),
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Ok(None),
        Err(error) => Err(error),
    })?;
    match waited {
        Some(Ok(done)) => Ok(done),
        _ => Err(crate::errors::raise(py, "Error", "Panicked", "the call failed; standard error says why")),
    }
}
