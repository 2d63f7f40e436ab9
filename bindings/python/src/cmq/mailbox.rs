//! A mailbox of its own for one integer.

use bytes::Bytes;
use pyo3::prelude::*;

use super::waiting::{self, Item, Popping, popping_methods};
use crate::classes::closing;
use crate::guarded;

/// The messages for one integer, like a mailbox of Erlang. A mailbox keeps its queue open.
#[pyclass(frozen, weakref, module = "rocketbufs.cmq")]
pub struct Mailbox(
    Popping<cmq::Mailbox<Bytes>>,
    /// The integer of the mailbox.
    #[pyo3(get, name = "id")]
    u32,
);

impl Mailbox {
    /// Makes a Python object of a mailbox.
    pub fn of(mailbox: cmq::Mailbox<Bytes>) -> Self {
        let id = mailbox.id();
        Self(Popping::new(mailbox, "mailbox"), id)
    }
}

#[pymethods]
impl Mailbox {
    /// Closes the mailbox: later messages for its integer come to the queue. Returns the messages that wait here. A second call does
    /// nothing. Waits for calls of other threads that pop: in a callback it is refused, and closes nothing.
    fn close(&self, py: Python<'_>) -> PyResult<Vec<Item>> {
        let (mailbox, deadline) = (self.0.take_waiting(py)?, guarded::calls_deadline());
        let mailbox = py.detach(|| mailbox.and_then(|mailbox| guarded::alone(mailbox, &deadline)));
        let left = mailbox.map(|mailbox| mailbox.close()).unwrap_or_default();
        Ok(left.into_iter().map(|(message, from)| waiting::item(py, &message, from)).collect())
    }
}

closing!(Mailbox, close);

popping_methods!(Mailbox);
