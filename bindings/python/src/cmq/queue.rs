//! A queue.

use std::net::IpAddr;

use bytes::Bytes;
use cmq::Interface;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::key::{self, address};
use super::mailbox::Mailbox;
use super::waiting::{Popping, popping_methods};
use super::{events, settings};
use crate::classes::{closing, getters};
use crate::errors::{self, Raise};
use crate::event::Event;
use crate::guarded;
use crate::input::Input;
use crate::times;

/// A message queue at an address: pushes messages to other queues, and pops those that other queues pushed here. `settings` are
/// the fields of the configuration (docs/CMQ.md), with times in seconds.
#[pyclass(frozen, weakref, module = "rocketbufs.cmq")]
pub struct Cmq(Popping<cmq::Cmq<Bytes>>);

impl Cmq {
    /// The queue, for the methods of other modules.
    pub fn popping(&self) -> &Popping<cmq::Cmq<Bytes>> {
        &self.0
    }
}

fn interface(name: Option<&str>) -> Interface {
    // A name or an address: parsing cannot fail.
    name.map_or(Interface::Any, |name| name.parse().unwrap_or(Interface::Any))
}

fn group(text: &str) -> PyResult<IpAddr> {
    text.parse().map_err(|_| PyValueError::new_err(format!("'{text}' is no address of a group")))
}

#[pymethods]
impl Cmq {
    /// Opens a queue at a local address; port 0 takes a free one. `preset` is "default", "paper" or "immediate".
    #[new]
    #[pyo3(signature = (addr="0.0.0.0:0", *, preset="default", **settings))]
    fn new(py: Python<'_>, addr: &str, preset: &str, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let config = settings::of_keywords(preset, settings)?;
        let queue = py.detach(|| cmq::new_raw_rq(addr, config)).or_raise(py, "OpenError")?;
        Ok(Self(Popping::new(queue, "queue")))
    }

    /// Queues a message for a key, which is a `Key`, (host, port) or (host, port, id). The message leaves with its batch.
    /// Never waits.
    fn cw_push(&self, py: Python<'_>, key: &Bound<'_, PyAny>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let (key, input) = (key::of_argument(key)?, Input::of(message)?);
        self.0.with(py, |queue| queue.push_bytes(key, input.bytes(py)))?.or_raise(py, "PushError")
    }

    /// Queues many messages for a key. An exception has the number of messages that were pushed as `published`.
    fn push_many(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        messages: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let key = key::of_argument(key)?;
        let mut pushed = 0_usize;
        for message in messages.try_iter()? {
            let message = message?;
            let input = Input::of(&message)?;
            // The handle is not kept: the iterable may close the queue, which waits for calls that have it.
            if let Err(error) = self.0.with(py, |queue| queue.push_bytes(key, input.bytes(py)))? {
                let pushed = pushed.into_pyobject(py)?.into_any();
                return Err(errors::with(py, "PushError", &error, [("published", pushed)]));
            }
            pushed += 1;
        }
        Ok(pushed)
    }

    /// Opens a mailbox of its own for an integer: its messages are popped there from now on.
    fn mailbox(&self, py: Python<'_>, id: u32) -> PyResult<Mailbox> {
        Ok(Mailbox::of(self.0.with(py, |queue| queue.mailbox(id))?))
    }

    /// Joins a multicast group at an interface: its name, one of its IPv4 addresses, or None for any.
    #[pyo3(signature = (address, interface=None))]
    fn join(&self, py: Python<'_>, address: &str, interface: Option<&str>) -> PyResult<()> {
        Ok(self.0.handle(py)?.multicast().join(group(address)?, &self::interface(interface))?)
    }

    /// Leaves a multicast group.
    #[pyo3(signature = (address, interface=None))]
    fn leave(&self, py: Python<'_>, address: &str, interface: Option<&str>) -> PyResult<()> {
        Ok(self.0.handle(py)?.multicast().leave(group(address)?, &self::interface(interface))?)
    }

    /// Sends multicast messages by this interface, across at most `ttl - 1` routers; with `loopback`, also to queues of this machine.
    #[pyo3(signature = (interface=None, *, ttl=1, loopback=true))]
    fn set_multicast(
        &self,
        py: Python<'_>,
        interface: Option<&str>,
        ttl: u32,
        loopback: bool,
    ) -> PyResult<()> {
        let queue = self.0.handle(py)?;
        queue.multicast().set_interface(&self::interface(interface), ttl)?;
        Ok(queue.multicast().set_loopback(loopback)?)
    }

    /// Sends all pending messages now.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(py, |queue| queue.flush())
    }

    /// Sends all pending messages now and closes all streams: each receiver learns the number of messages.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.with(py, |queue| queue.finish())
    }

    /// The next event (`Joined`, `Lost`, `Late`, `Duplicated`, `Reordered`, `Closed`, `Evicted`, `Overflowed`, `Undecodable`,
    /// `Malformed`, `SendFailed`; of the reliable mode `Undelivered`, `PeerRestarted`; of encryption `Secured`, `HandshakeFailed`,
    /// `Refused`, `EncryptionRequired`), or None.
    fn next_event(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        self.0.with(py, |queue| queue.next_event())?.map(|event| events::of(py, event)).transpose()
    }

    /// The counters of this queue.
    fn stats(&self, py: Python<'_>) -> PyResult<Event> {
        events::stats(py, &self.0.with(py, |queue| queue.stats())?)
    }

    /// Every stream that this queue remembers.
    fn senders(&self, py: Python<'_>) -> PyResult<Vec<Event>> {
        let senders = self.0.with(py, |queue| queue.senders())?;
        senders.iter().map(|info| events::sender(py, info)).collect()
    }

    /// The streams of one sender, (host, port): one for each run of it, and for each address and group that it sends to.
    fn senders_at(&self, py: Python<'_>, sender: &Bound<'_, PyAny>) -> PyResult<Vec<Event>> {
        let from = key::of_argument(sender)?.addr;
        let senders = self.0.with(py, |queue| queue.senders_at(from))?;
        senders.iter().map(|info| events::sender(py, info)).collect()
    }

    /// The address of this queue: (host, port).
    #[getter]
    fn local_addr(&self, py: Python<'_>) -> PyResult<(String, u16)> {
        self.0.with(py, |queue| address(queue.local_addr()))
    }

    /// Closes the queue: pending messages are sent, and each receiver learns their number. Open mailboxes keep it open. A second
    /// call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(queue) = self.0.take_waiting(py)? else { return Ok(()) };
        let deadline = guarded::calls_deadline();
        times::interruptible(py, move || drop(guarded::alone(queue, &deadline)))
    }

    /// Whether the queue was closed here.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.is_closed(py)
    }
}

getters! { Cmq.0:
    /// The random name of this queue.
    epoch: u64;
}

closing!(Cmq, close);

popping_methods!(Cmq);
