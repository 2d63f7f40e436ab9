//! The reliable mode of a queue.

use bytes::Bytes;
use cmq::{Cmq as Queue, Fate};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::key;
use super::keys::PublicKey;
use super::queue::Cmq;
use crate::errors::{self, Raise};
use crate::event::{Event, event};
use crate::input::Input;
use crate::times::{self, Deadline};

#[pymethods]
impl Cmq {
    /// Queues a message of the reliable mode for a key: it is sent until the receiving queue confirms it, and popped there in the order
    /// of its key. Both queues have `reliable`. Never waits. Returns the number of the message among the reliable ones of its key.
    fn push_reliable(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        message: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let (key, input) = (key::of_argument(key)?, Input::of(message)?);
        self.popping()
            .with(py, |queue| queue.push_reliable_bytes(key, input.bytes(py)))?
            .or_raise(py, "PushError")
    }

    /// The outcome of a message of the reliable mode: `Pending`, `Confirmed`, or `Failed` with the `reason` (`NoAnswer`, `Full`,
    /// `Restarted`). None if the key has no message with this number, or is forgotten. Never waits.
    fn fate(&self, py: Python<'_>, key: &Bound<'_, PyAny>, number: u64) -> PyResult<Option<Event>> {
        let key = key::of_argument(key)?;
        let fate = self.popping().with(py, |queue| queue.fate(key, number))?;
        Ok(match fate {
            Some(Fate::Failed(why)) => Some(event!(py, "Failed"; reason = errors::variant(&why))),
            Some(Fate::Confirmed) => Some(event!(py, "Confirmed")),
            Some(_) => Some(event!(py, "Pending")),
            None => None,
        })
    }

    /// Waits until a message of the reliable mode is confirmed, at most `timeout` seconds, and sends all pending messages before. True
    /// if the receiving queue has it, False if it is still on its way. Raises `UndeliveredError` if it was given up.
    #[pyo3(signature = (key, number, timeout=None))]
    fn wait_confirmed(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        number: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let key = key::of_argument(key)?;
        let deadline = Deadline::after(times::timeout(timeout)?);
        let decided = self.popping().wait(py, &deadline, |queue, step| {
            let fate = queue.wait_confirmed(key, number, Some(step));
            (fate != Some(Fate::Pending)).then_some(fate)
        })?;
        match decided {
            None => Ok(false),
            Some(Some(Fate::Failed(why))) => Err(errors::of(py, "UndeliveredError", &why)),
            Some(Some(_)) => Ok(true),
            Some(None) => {
                Err(PyValueError::new_err("the key has no message with this number, or is forgotten"))
            }
        }
    }

    /// Waits until each message of the reliable mode is confirmed or given up, at most `timeout` seconds, and sends all pending messages
    /// before. False if some are neither. `stats().reliable.failed` counts those that were given up.
    #[pyo3(signature = (timeout=None))]
    fn wait_all_confirmed(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = Deadline::after(times::timeout(timeout)?);
        let decided = |queue: &Queue<Bytes>, step| queue.wait_all_confirmed(Some(step)).then_some(());
        Ok(self.popping().wait(py, &deadline, decided)?.is_some())
    }

    /// The public key of the queue at an address, (host, port), while there is a session with it; None also if this queue does not
    /// encrypt.
    fn peer_key(&self, py: Python<'_>, sender: &Bound<'_, PyAny>) -> PyResult<Option<PublicKey>> {
        let from = key::of_argument(sender)?.addr;
        Ok(self.popping().with(py, |queue| queue.peer_key(from))?.map(PublicKey))
    }
}
