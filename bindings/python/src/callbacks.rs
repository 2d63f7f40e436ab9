//! Callbacks on the threads of the library.
//!
//! ```text
//!   worker ── enter ──▶ attach ──▶ call ──▶ leave        the interpreter ends: stop ── no call begins any more,
//!                                                        and the end waits for those that run
//! ```
//!
//! A thread that asks for the interpreter while it ends would be killed in the middle of a call, or hang. So none asks.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::call::PyCallArgs;
use pyo3::prelude::*;

use crate::errors;

/// The longest time for which the end of the interpreter waits for callbacks.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Set in [`STATE`] when no callback may begin any more.
const STOPPED: usize = 1 << (usize::BITS - 1);

/// The number of callbacks that run, and [`STOPPED`]. Both are one word, whose changes have one order: a callback that begins
/// before the stop is counted when the stop is seen, and one that begins after it sees the stop.
static STATE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The callbacks of this thread that run, each inside of the one before.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The end of a callback.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        // Release pairs with the Acquire in `_stop_callbacks`: what the callback did is done.
        STATE.fetch_sub(1, Ordering::Release);
    }
}

/// Whether this thread runs a callback, which must not wait.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// In a child process, after a fork: the callbacks of the parent do not run here.
pub fn reset() {
    // The child has this one thread, which may have forked in a callback.
    let stopped = STATE.load(Ordering::Relaxed) & STOPPED;
    STATE.store(stopped | DEPTH.get(), Ordering::Relaxed);
}

/// The exception of a call that would wait in a callback.
pub fn waits(py: Python<'_>) -> PyErr {
    let text = "this call waits and was made from a callback, which runs on the thread it would wait for";
    errors::raise(py, "CalledFromWorker", "CalledFromWorker", text)
}

/// Calls a Python callback with the arguments that `arguments` makes. An exception goes to `sys.unraisablehook`, and then ends the
/// connection that the callback was called for, as a panic of a callback in Rust does.
pub fn call<A>(callback: &Py<PyAny>, arguments: impl FnOnce(Python<'_>) -> PyResult<A>)
where
    A: for<'py> PyCallArgs<'py>,
{
    call_with(callback, arguments, |_| ());
}

/// As [`call`], with something to do afterwards.
pub fn call_with<A>(
    callback: &Py<PyAny>,
    arguments: impl FnOnce(Python<'_>) -> PyResult<A>,
    after: impl FnOnce(Python<'_>),
) where
    A: for<'py> PyCallArgs<'py>,
{
    call_for(callback, arguments, |_| Ok(()), after);
}

/// As [`call_with`], for a result, which `result` converts. None if the interpreter ends.
pub fn call_for<A, R>(
    callback: &Py<PyAny>,
    arguments: impl FnOnce(Python<'_>) -> PyResult<A>,
    result: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    after: impl FnOnce(Python<'_>),
) -> Option<R>
where
    A: for<'py> PyCallArgs<'py>,
{
    let before = STATE.fetch_add(1, Ordering::Acquire);
    DEPTH.set(DEPTH.get() + 1);
    let leave = Leave;
    if before & STOPPED != 0 {
        return None;
    }
    let called = Python::attach(|py| {
        let called = arguments(py).and_then(|arguments| result(&callback.bind(py).call1(arguments)?));
        after(py);
        called.map_err(|error| error.write_unraisable(py, Some(callback.bind(py))))
    });
    drop(leave);
    match called {
        Ok(result) => Some(result),
        Err(()) => std::panic::resume_unwind(Box::new("a Python callback raised an exception")),
    }
}

/// Ends all callbacks, and waits for those that run.
#[pyfunction]
fn _stop_callbacks(py: Python<'_>) {
    // Release pairs with the Acquire of a callback that begins too late.
    STATE.fetch_or(STOPPED, Ordering::Release);
    py.detach(|| {
        let until = Instant::now() + END_TIMEOUT;
        while STATE.load(Ordering::Acquire) != STOPPED && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Lets the end of the interpreter stop callbacks.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_stop_callbacks, module)?)?;
    let stop = module.getattr("_stop_callbacks")?;
    module.py().import("atexit")?.call_method1("register", (stop,)).map(drop)
}
