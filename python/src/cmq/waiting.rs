//! Popping messages: at once, in steps, and for an event loop.

use std::convert::Infallible;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cmq::{Key as From, MessageStream, Popped};
use futures_core::Stream;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::key::Key;
use crate::notify::Notifier;
use crate::times::{self, Deadline};

/// A message and its sender, as Python has them.
pub type Item = (Py<PyBytes>, Key);

/// Copies a message into a Python object.
pub fn item(py: Python<'_>, (message, from): (Bytes, From)) -> Item {
    (PyBytes::new(py, &message).unbind(), Key(from))
}

/// What a queue and a mailbox have in common.
pub trait Source: Sync {
    /// The next message.
    fn pop(&self) -> Option<(Bytes, From)>;
    /// The next message, waiting.
    fn pop_timeout(&self, timeout: Duration) -> Option<(Bytes, From)>;
    /// All messages, waiting for one.
    fn pop_all(&self, into: &mut Popped<Bytes>, timeout: Duration) -> bool;
    /// The messages as a stream, which wakes a task.
    fn stream(&self) -> MessageStream<'_, Bytes>;
}

impl Source for cmq::Cmq<Bytes> {
    fn pop(&self) -> Option<(Bytes, From)> {
        self.cw_pop()
    }

    fn pop_timeout(&self, timeout: Duration) -> Option<(Bytes, From)> {
        cmq::Cmq::pop_timeout(self, timeout)
    }

    fn pop_all(&self, into: &mut Popped<Bytes>, timeout: Duration) -> bool {
        cmq::Cmq::pop_all(self, into, Some(timeout))
    }

    fn stream(&self) -> MessageStream<'_, Bytes> {
        cmq::Cmq::stream(self)
    }
}

impl Source for cmq::Mailbox<Bytes> {
    fn pop(&self) -> Option<(Bytes, From)> {
        self.cw_pop()
    }

    fn pop_timeout(&self, timeout: Duration) -> Option<(Bytes, From)> {
        cmq::Mailbox::pop_timeout(self, timeout)
    }

    fn pop_all(&self, into: &mut Popped<Bytes>, timeout: Duration) -> bool {
        cmq::Mailbox::pop_all(self, into, Some(timeout))
    }

    fn stream(&self) -> MessageStream<'_, Bytes> {
        cmq::Mailbox::stream(self)
    }
}

/// The next message, without waiting. If there is none, the next one makes the descriptor of `notify` readable.
pub fn pop_now(source: &impl Source, notify: Option<&Notifier>) -> Option<(Bytes, From)> {
    let message = source.pop();
    match notify {
        Some(notify) if message.is_none() => {
            // In this order: a message that arrives in between makes the descriptor readable again.
            notify.drain();
            let waker = notify.waker();
            match pin!(source.stream()).poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(message) => message,
                Poll::Pending => None,
            }
        }
        _ => message,
    }
}

/// The next message, waiting at most `timeout` seconds.
pub fn pop(py: Python<'_>, source: &impl Source, timeout: Option<f64>) -> PyResult<Option<Item>> {
    let timeout = times::timeout(timeout)?;
    if let Some(message) = source.pop() {
        return Ok(Some(item(py, message)));
    }
    let deadline = Deadline::after(timeout);
    let waited = times::wait(py, &deadline, |step| Ok::<_, Infallible>(source.pop_timeout(step)))?;
    Ok(waited.and_then(Result::ok).map(|message| item(py, message)))
}

/// All messages, waiting for one at most `timeout` seconds.
pub fn pop_all<'py>(
    py: Python<'py>,
    source: &impl Source,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyList>> {
    let deadline = Deadline::after(times::timeout(timeout)?);
    let mut popped = Popped::default();
    times::wait(py, &deadline, |step| Ok::<_, Infallible>(source.pop_all(&mut popped, step).then_some(())))?;
    let items = popped.map(|message| item(py, message));
    PyList::new(py, items.collect::<Vec<_>>())
}
