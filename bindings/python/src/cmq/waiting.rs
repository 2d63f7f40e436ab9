//! Popping messages: at once, in steps, selectively, and for an event loop. The common part of queues and mailboxes.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cmq::{Key as From, MessageStream, Popped};
use futures_core::Stream;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::key::Key;
use crate::guarded::Guarded;
use crate::notify::Notifier;
use crate::times::{self, Deadline};

/// A message and its sender, as Python has them.
pub type Item = (Py<PyBytes>, Key);

/// Copies a message into a Python object.
pub fn item(py: Python<'_>, message: &[u8], from: From) -> Item {
    (PyBytes::new(py, message).unbind(), Key(from))
}

/// The common operations of a queue and a mailbox in Rust.
pub trait Source: Send + Sync {
    /// The next message.
    fn pop(&self) -> Option<(Bytes, From)>;

    /// The next message, waiting.
    fn pop_timeout(&self, timeout: Duration) -> Option<(Bytes, From)>;

    /// The oldest message that is wanted.
    fn pop_where(&self, wanted: &mut dyn FnMut(&Bytes, &From) -> bool) -> Option<(Bytes, From)>;

    /// All messages, waiting for one.
    fn pop_all(&self, into: &mut Popped<Bytes>, timeout: Duration) -> bool;

    /// A count of arrivals.
    fn arrivals(&self) -> u64;

    /// Waits until the count differs.
    fn wait_arrival(&self, seen: u64, timeout: Duration) -> bool;

    /// The messages as a stream, which wakes a task.
    fn stream(&self) -> MessageStream<'_, Bytes>;

    /// The number of messages that wait.
    fn waiting(&self) -> usize;
}

macro_rules! source {
    ($class:ident) => {
        impl Source for cmq::$class<Bytes> {
            fn pop(&self) -> Option<(Bytes, From)> {
                self.cw_pop()
            }

            fn pop_timeout(&self, timeout: Duration) -> Option<(Bytes, From)> {
                cmq::$class::pop_timeout(self, timeout)
            }

            fn pop_where(&self, wanted: &mut dyn FnMut(&Bytes, &From) -> bool) -> Option<(Bytes, From)> {
                cmq::$class::pop_where(self, wanted)
            }

            fn pop_all(&self, into: &mut Popped<Bytes>, timeout: Duration) -> bool {
                cmq::$class::pop_all(self, into, Some(timeout))
            }

            fn arrivals(&self) -> u64 {
                cmq::$class::arrivals(self)
            }

            fn wait_arrival(&self, seen: u64, timeout: Duration) -> bool {
                cmq::$class::wait_arrival(self, seen, timeout)
            }

            fn stream(&self) -> MessageStream<'_, Bytes> {
                cmq::$class::stream(self)
            }

            fn waiting(&self) -> usize {
                cmq::$class::waiting(self)
            }
        }
    };
}

source!(Cmq);
source!(Mailbox);

/// A queue or a mailbox that Python threads share, and the descriptor of its event loop.
pub struct Popping<S: Source> {
    source: Guarded<Arc<S>>,
    notify: OnceLock<Notifier>,
}

impl<S: Source> Popping<S> {
    /// Shares a queue or a mailbox; `what` names it in errors.
    pub fn new(source: S, what: &'static str) -> Self {
        Self { source: Guarded::new(Arc::new(source), what), notify: OnceLock::new() }
    }

    /// The queue or the mailbox, for a call that runs code of the program.
    ///
    /// # Errors
    /// The queue or the mailbox is closed, or belongs to the process before a fork.
    pub fn handle(&self, py: Python<'_>) -> PyResult<Arc<S>> {
        self.source.shared(py)
    }

    /// Calls `f`, which does not wait.
    ///
    /// # Errors
    /// As [`Popping::handle`].
    pub fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&S) -> R) -> PyResult<R> {
        self.source.with(py, |source| f(source))
    }

    /// As [`Guarded::wait_shared`].
    ///
    /// # Errors
    /// As [`Guarded::wait_shared`].
    pub fn wait<R: Send>(
        &self,
        py: Python<'_>,
        deadline: &Deadline,
        mut attempt: impl FnMut(&S, Duration) -> Option<R> + Send,
    ) -> PyResult<Option<R>> {
        let attempt = |source: &S, step| Ok::<_, Infallible>(attempt(source, step));
        Ok(self.source.wait_shared(py, deadline, attempt)?.and_then(Result::ok))
    }

    /// Takes the queue or the mailbox out, to be closed by a call that waits, and tells its event loop. None if that happened before.
    ///
    /// # Errors
    /// As [`Guarded::take_waiting`].
    pub fn take_waiting(&self, py: Python<'_>) -> PyResult<Option<Arc<S>>> {
        let taken = self.source.take_waiting(py)?;
        if let (Some(_), Some(notify)) = (&taken, self.notify.get()) {
            notify.raise();
        }
        Ok(taken)
    }

    /// Whether it was taken out.
    ///
    /// # Errors
    /// The queue or the mailbox belongs to the process before a fork.
    pub fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.source.is_closed(py)
    }

    /// The descriptor for an event loop.
    ///
    /// # Errors
    /// As [`Popping::handle`], or the process has no descriptor left.
    pub fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.with(py, |_| Notifier::descriptor(&self.notify))?
    }

    /// The next message, without waiting. If there is none, the next one makes the descriptor readable.
    ///
    /// # Errors
    /// As [`Popping::handle`].
    pub fn pop_now(&self, py: Python<'_>) -> PyResult<Option<Item>> {
        let popped = self.with(py, |source| {
            let message = source.pop();
            match self.notify.get() {
                Some(notify) if message.is_none() => pop_or_notify(source, notify),
                _ => message,
            }
        })?;
        Ok(popped.map(|(message, from)| item(py, &message, from)))
    }

    /// The next message, waiting at most `timeout` seconds.
    ///
    /// # Errors
    /// As [`Popping::handle`], a wrong time-out, or an exception of a signal's handler.
    pub fn pop(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Item>> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let popped = self.wait(py, &deadline, |source, step| source.pop_timeout(step))?;
        Ok(popped.map(|(message, from)| item(py, &message, from)))
    }

    /// All messages, waiting for one at most `timeout` seconds.
    ///
    /// # Errors
    /// As [`Popping::pop`].
    pub fn pop_all<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let mut popped = Popped::default();
        self.wait(py, &deadline, |source, step| source.pop_all(&mut popped, step).then_some(()))?;
        let items = popped.map(|(message, from)| item(py, &message, from));
        PyList::new(py, items.collect::<Vec<_>>())
    }

    /// The oldest message that `wanted(message, key)` accepts, waiting at most `timeout` seconds.
    ///
    /// # Errors
    /// As [`Popping::pop`], or an exception of `wanted`.
    pub fn pop_where(
        &self,
        py: Python<'_>,
        wanted: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Item>> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let mut looked_at = LookedAt::default();
        loop {
            let over = deadline.is_over();
            // The handle is not kept: `wanted` may close the queue, which waits for calls that have it.
            let (seen, messages) = self.with(py, |source| (source.arrivals(), looked_at.new_of(source)))?;
            for message in messages {
                let (bytes, key) = item(py, &message.0, message.1);
                if !wanted.call1((&bytes, key))?.is_truthy()? {
                    continue;
                }
                // Another thread may have taken the message meanwhile.
                let same =
                    |bytes: &Bytes, from: &From| identity(bytes, from) == identity(&message.0, &message.1);
                if self.with(py, |source| source.pop_where(&mut { same }))?.is_some() {
                    return Ok(Some((bytes, key)));
                }
            }
            if over {
                return Ok(None);
            }
            self.wait(py, &deadline, |source, step| source.wait_arrival(seen, step).then_some(()))?;
        }
    }
}

/// The identity of a message among all others that exist: a message stays where it is while a copy of its handle exists.
fn identity(bytes: &Bytes, from: &From) -> (usize, usize, From) {
    (bytes.as_ptr() as usize, bytes.len(), *from)
}

/// The messages that a selective pop has shown to its program. The program chooses outside of the lock of the mailbox: it may use
/// the queue itself, and a thread that waits for the lock may have the interpreter.
#[derive(Default)]
struct LookedAt {
    messages: Vec<Bytes>,
    identities: HashSet<(usize, usize, From)>,
}

impl LookedAt {
    /// The messages that wait and were not looked at, oldest first.
    fn new_of(&mut self, source: &impl Source) -> Vec<(Bytes, From)> {
        let mut found = Vec::new();
        source.pop_where(&mut |message, from| {
            if self.identities.insert(identity(message, from)) {
                self.messages.push(message.clone());
                found.push((message.clone(), *from));
            }
            false
        });
        found
    }
}

/// Makes the descriptor unreadable until the next message, unless there is one now.
fn pop_or_notify(source: &impl Source, notify: &Notifier) -> Option<(Bytes, From)> {
    // In this order: a message that arrives in between makes the descriptor readable again.
    notify.drain();
    let waker = notify.waker();
    match pin!(source.stream()).poll_next(&mut Context::from_waker(&waker)) {
        Poll::Ready(message) => message,
        Poll::Pending => None,
    }
}

/// Gives a class around a [`Popping`] the methods that pop.
macro_rules! popping_methods {
    ($class:ty) => {
        #[pyo3::pymethods]
        impl $class {
            /// The next message with the key of its sender, if there is one. Never waits.
            fn cw_pop(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<Option<$crate::cmq::waiting::Item>> {
                self.0.pop_now(py)
            }

            /// The next message with the key of its sender, waiting at most `timeout` seconds; None if none came.
            #[pyo3(signature = (timeout=None))]
            fn pop(
                &self,
                py: pyo3::Python<'_>,
                timeout: Option<f64>,
            ) -> pyo3::PyResult<Option<$crate::cmq::waiting::Item>> {
                self.0.pop(py, timeout)
            }

            /// All messages that arrived, waiting for one at most `timeout` seconds.
            #[pyo3(signature = (timeout=None))]
            fn pop_all<'py>(
                &self,
                py: pyo3::Python<'py>,
                timeout: Option<f64>,
            ) -> pyo3::PyResult<pyo3::Bound<'py, pyo3::types::PyList>> {
                self.0.pop_all(py, timeout)
            }

            /// The oldest message that `wanted(message, key)` accepts, waiting at most `timeout` seconds; None if none came.
            /// The others stay in their order. `wanted` is called once for each message, and may use the queue.
            #[pyo3(signature = (wanted, timeout=None))]
            fn pop_where(
                &self,
                py: pyo3::Python<'_>,
                wanted: &pyo3::Bound<'_, pyo3::PyAny>,
                timeout: Option<f64>,
            ) -> pyo3::PyResult<Option<$crate::cmq::waiting::Item>> {
                self.0.pop_where(py, wanted, timeout)
            }

            fn __iter__(slf: pyo3::Py<Self>) -> pyo3::Py<Self> {
                slf
            }

            fn __next__(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<Option<$crate::cmq::waiting::Item>> {
                self.0.pop(py, None)
            }

            /// The number of messages that wait to be popped here.
            #[getter]
            fn waiting(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<usize> {
                self.0.with(py, |source| $crate::cmq::waiting::Source::waiting(source))
            }

            /// A descriptor for an event loop: readable at first, after `cw_pop` returned None as soon as a message comes, and when
            /// the object is closed. Pop until None then. The descriptor belongs to the object: only poll it.
            fn fileno(&self, py: pyo3::Python<'_>) -> pyo3::PyResult<i32> {
                self.0.fileno(py)
            }
        }
    };
}

pub(crate) use popping_methods;
