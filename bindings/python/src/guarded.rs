//! A handle that several Python threads share.
//!
//! One call uses the handle at a time. A call that waits lets others in between its steps, so that a thread can close what
//! another one waits for. No thread waits for a lock with the interpreter: the owner of the lock may need it to go on.

use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::callbacks;
use crate::errors;
use crate::fork::Process;
use crate::line::{Line, Number};
use crate::times::{self, Deadline};

/// A value that is destroyed without the interpreter, since its threads may run a callback; and never after a fork.
pub struct Kept<T: Send> {
    value: Option<T>,
    process: Process,
}

impl<T: Send> Kept<T> {
    /// Keeps the value.
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: Process::current() }
    }

    /// Calls `f` with the value.
    ///
    /// # Errors
    /// As [`Kept::get`].
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&T) -> R) -> PyResult<R> {
        self.get(py).map(f)
    }

    /// As [`Kept::with`], without the interpreter: a callback that needs it may have to end before the call does.
    ///
    /// # Errors
    /// As [`Kept::get`].
    pub fn detached<R: Send>(&self, py: Python<'_>, f: impl FnOnce(&T) -> R + Send) -> PyResult<R>
    where
        T: Sync,
    {
        let value = self.get(py)?;
        Ok(py.detach(|| f(value)))
    }

    /// The value.
    ///
    /// # Errors
    /// The value belongs to the process before a fork.
    pub fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.process.check(py)?;
        self.value.as_ref().ok_or_else(|| errors::closed(py, "object"))
    }
}

impl<T: Send> Drop for Kept<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if self.process.is_over() {
            let _never_dropped = ManuallyDrop::new(value);
            return;
        }
        Python::attach(|py| py.detach(|| drop(value)));
    }
}

/// A handle that one call uses at a time, until it is closed.
pub struct Guarded<T: Send> {
    value: Mutex<Option<Kept<T>>>,
    /// Who has this lock is the next one to use the value, and a step does not overtake it.
    turn: Mutex<()>,
    /// Of the calls that wait in steps, one has its turn at a time: other calls wait for one step.
    steps: Line,
    process: Process,
    what: &'static str,
}

impl<T: Send> Guarded<T> {
    /// Guards `value`; `what` names it in errors.
    pub fn new(value: T, what: &'static str) -> Self {
        let value = Mutex::new(Some(Kept::new(value)));
        let (turn, steps) = (Mutex::default(), Line::default());
        Self { value, turn, steps, process: Process::current(), what }
    }

    /// The lock, from a thread without the interpreter.
    fn lock(&self) -> MutexGuard<'_, Option<Kept<T>>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, from a thread that has the interpreter, and gives it up while it waits.
    fn lock_attached(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<Kept<T>>>> {
        self.process.check(py)?;
        if let Ok(guard) = self.value.try_lock() {
            return Ok(guard);
        }
        let _turn = self.turn.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        Ok(self.value.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `f`, which does not wait and runs no Python code, with the interpreter.
    ///
    /// # Errors
    /// The handle is closed, or belongs to the process before a fork.
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        let mut guard = self.lock_attached(py)?;
        if let Some(value) = guard.as_mut().and_then(|kept| kept.value.as_mut()) {
            return Ok(f(value));
        }
        // An exception is made by Python code, in which a handler of a signal may use the object.
        drop(guard);
        Err(errors::closed(py, self.what))
    }

    /// As [`Guarded::with`], with a value that comes back if the call is not made.
    ///
    /// # Errors
    /// As [`Guarded::with`], with the value.
    pub fn with_given<V, R>(
        &self,
        py: Python<'_>,
        given: V,
        f: impl FnOnce(&mut T, V) -> R,
    ) -> Result<R, (PyErr, V)> {
        let mut guard = match self.lock_attached(py) {
            Ok(guard) => guard,
            Err(error) => return Err((error, given)),
        };
        if let Some(value) = guard.as_mut().and_then(|kept| kept.value.as_mut()) {
            return Ok(f(value, given));
        }
        drop(guard);
        Err((errors::closed(py, self.what), given))
    }

    /// Calls `attempt` until it returns something; none if the deadline passed. `attempt` gets the longest time that it may
    /// wait itself: first zero, with the interpreter, and then more, without.
    ///
    /// # Errors
    /// As [`Guarded::with`]; or an exception of a signal's handler.
    pub fn wait<R: Send, E: Send>(
        &self,
        py: Python<'_>,
        deadline: &Deadline,
        mut attempt: impl FnMut(&mut T, Duration) -> Result<Option<R>, E> + Send,
    ) -> PyResult<Option<Result<R, E>>> {
        match self.with(py, |value| attempt(value, Duration::ZERO))?.transpose() {
            Some(done) => Ok(Some(done)),
            None if deadline.is_over() => Ok(None),
            None => self.wait_detached(py, deadline, attempt),
        }
    }

    /// Calls `call`, which waits and cannot be divided, without the interpreter.
    ///
    /// # Errors
    /// As [`Guarded::wait`].
    pub fn call<R: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut T) -> R + Send) -> PyResult<R> {
        let mut call = Some(call);
        let once = |value: &mut T, _| Ok::<_, Infallible>(call.take().map(|call| call(value)));
        match self.wait_detached(py, &Deadline::after(None), once)? {
            Some(Ok(done)) => Ok(done),
            _ => Err(errors::closed(py, self.what)),
        }
    }

    /// As [`Guarded::wait`], without the first attempt: for what has an effect if it is refused, and will wait.
    ///
    /// # Errors
    /// As [`Guarded::wait`].
    pub fn wait_detached<R: Send, E: Send>(
        &self,
        py: Python<'_>,
        deadline: &Deadline,
        mut attempt: impl FnMut(&mut T, Duration) -> Result<Option<R>, E> + Send,
    ) -> PyResult<Option<Result<R, E>>> {
        self.process.check(py)?;
        let mut number = Number::default();
        let waited = times::wait(py, deadline, |time| self.step(&mut number, time, &mut attempt))?;
        self.waited(py, waited)
    }

    /// The outcome of a wait whose error is none if the handle is closed.
    fn waited<R, E>(
        &self,
        py: Python<'_>,
        waited: Option<Result<R, Option<E>>>,
    ) -> PyResult<Option<Result<R, E>>> {
        match waited {
            None => Ok(None),
            Some(Ok(done)) => Ok(Some(Ok(done))),
            Some(Err(Some(error))) => Ok(Some(Err(error))),
            Some(Err(None)) => {
                self.process.check(py)?;
                Err(errors::closed(py, self.what))
            }
        }
    }

    /// One attempt within `time`; an error of none if the handle is closed, or a signal's handler has forked.
    fn step<R, E>(
        &self,
        number: &mut Number,
        time: Duration,
        attempt: &mut impl FnMut(&mut T, Duration) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, Option<E>> {
        if self.process.is_over() {
            return Err(None);
        }
        let began = Instant::now();
        let step = self.steps.step(number, time);
        // The last attempt, which does not wait, is made beside the others.
        if step.is_none() && !time.is_zero() {
            return Ok(None);
        }
        let mut guard = self.lock();
        match guard.as_mut().and_then(|kept| kept.value.as_mut()) {
            Some(value) => attempt(value, time.saturating_sub(began.elapsed())).map_err(Some),
            None => Err(None),
        }
    }

    /// Takes the handle out, which closes it. None if that happened before.
    ///
    /// # Errors
    /// The handle belongs to the process before a fork.
    pub fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        let kept = self.lock_attached(py)?.take();
        Ok(kept.and_then(|mut kept| kept.value.take()))
    }

    /// As [`Guarded::take`], to be closed by a call that waits. A callback, which must not wait, closes nothing.
    ///
    /// # Errors
    /// As [`Guarded::take`], or the thread runs a callback.
    pub fn take_waiting(&self, py: Python<'_>) -> PyResult<Option<T>> {
        if callbacks::is_inside() && !self.is_closed(py)? {
            return Err(callbacks::waits(py));
        }
        self.take(py)
    }

    /// Whether the handle was taken out.
    pub fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.lock_attached(py)?.is_none())
    }
}

/// How long the end of a shared handle waits for calls of other threads: those that wait end after their step.
const CALLS_TIMEOUT: Duration = Duration::from_secs(5);

/// When the end of a shared handle has waited long enough for calls of other threads. A callback, for whose end one of them may wait, waits
/// for none.
pub fn calls_deadline() -> Deadline {
    Deadline::after(Some(if callbacks::is_inside() { Duration::ZERO } else { CALLS_TIMEOUT }))
}

/// A handle that many calls use at a time.
impl<T: Send + Sync> Guarded<Arc<T>> {
    /// The handle, for a call that does not wait long: it is closed when the last one of these is dropped.
    ///
    /// # Errors
    /// As [`Guarded::with`].
    pub fn shared(&self, py: Python<'_>) -> PyResult<Arc<T>> {
        self.with(py, |value| value.clone())
    }

    /// As [`Guarded::wait`], beside other calls. Each attempt has the handle for itself, so that closing it ends the wait.
    ///
    /// # Errors
    /// As [`Guarded::wait`].
    pub fn wait_shared<R: Send, E: Send>(
        &self,
        py: Python<'_>,
        deadline: &Deadline,
        mut attempt: impl FnMut(&T, Duration) -> Result<Option<R>, E> + Send,
    ) -> PyResult<Option<Result<R, E>>> {
        match attempt(&*self.shared(py)?, Duration::ZERO).transpose() {
            Some(done) => return Ok(Some(done)),
            None if deadline.is_over() => return Ok(None),
            None => {}
        }
        let waited = times::wait(py, deadline, |time| {
            let handle = if self.process.is_over() { None } else { self.clone_detached() };
            attempt(&*handle.ok_or(None)?, time).map_err(Some)
        })?;
        self.waited(py, waited)
    }

    fn clone_detached(&self) -> Option<Arc<T>> {
        self.lock().as_ref()?.value.clone()
    }
}

/// The value of a handle that was taken out, when no call of another thread uses it any more; none if one still does at the deadline, and
/// drops it then.
pub fn alone<T>(mut handle: Arc<T>, deadline: &Deadline) -> Option<T> {
    loop {
        handle = match Arc::try_unwrap(handle) {
            Ok(value) => return Some(value),
            Err(_) if deadline.is_over() => return None,
            Err(handle) => handle,
        };
        std::thread::sleep(Duration::from_millis(1));
    }
}
