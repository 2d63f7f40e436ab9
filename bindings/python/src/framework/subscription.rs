//! A subscription of an rIn, and the items that both receive.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketbufs::InEvent;
use rocketbufs::error::RecvError;

use super::events;
use super::view::InView;
use crate::classes::getters;
use crate::errors::{self, Raise};
use crate::event::{Event, event};
use crate::guarded::Kept;
use crate::times::{self, Deadline};

/// Received data or an event as a Python object: an [`InView`] or an [`Event`].
pub fn received(py: Python<'_>, event: InEvent) -> PyResult<Py<PyAny>> {
    if let InEvent::Data(view) = event {
        return Ok(Bound::new(py, InView::of(view))?.into_any().unbind());
    }
    let event = match event {
        InEvent::Subscribed { bid, epoch, start } => event!(py, "Subscribed"; bid, epoch = epoch.0, start),
        InEvent::NotDurable { bid } => event!(py, "NotDurable"; bid),
        InEvent::Lost { bid, from, to } => event!(py, "Lost"; bid, start = from, end = to),
        InEvent::Closed { bid, end } => event!(py, "Closed"; bid, end),
        InEvent::Gone { bid, end } => event!(py, "Gone"; bid, end),
        InEvent::Restarted { bid, epoch } => event!(py, "Restarted"; bid, epoch = epoch.0),
        InEvent::Refused { bid, error } => {
            let code = match &error {
                rocketbufs::error::RefusedError::Peer { code, .. } => errors::variant(code),
                other => errors::variant(other),
            };
            event!(py, "Refused"; bid, code, reason = error.to_string())
        }
        InEvent::Control { message } => event!(py, "Control"; message = PyBytes::new(py, &message)),
        InEvent::ConnDown { reason } => event!(py, "ConnDown"; reason = events::down_reason(py, &reason)?),
        other => event!(py, "Other"; text = format!("{other:?}")),
    };
    Ok(Bound::new(py, event)?.into_any().unbind())
}

/// Receives at once with the interpreter, and then in steps without it.
pub fn receive(
    py: Python<'_>,
    timeout: Option<f64>,
    attempt: impl Fn(Option<Duration>) -> Result<Option<InEvent>, RecvError> + Send + Sync,
) -> PyResult<Option<Py<PyAny>>> {
    let deadline = Deadline::after(times::timeout(timeout)?);
    let waited = times::now_or_wait(py, &deadline, |step| attempt(Some(step)))?;
    waited.transpose().or_raise(py, "RecvError")?.map(|event| received(py, event)).transpose()
}

/// A subscription of an `RIn`. The subscription lives until `unsubscribe` or the end of its log; the object is a handle.
#[pyclass(frozen, module = "rocketbufs")]
pub struct Subscription(Kept<rocketbufs::Subscription>);

impl Subscription {
    /// Makes a Python object of a handle.
    pub fn of(subscription: rocketbufs::Subscription) -> Self {
        Self(Kept::new(subscription))
    }
}

#[pymethods]
impl Subscription {
    /// The next data (`InView`) or `Event` of this subscription, waiting at most `timeout` seconds; None if nothing came.
    #[pyo3(signature = (timeout=None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        let subscription = self.0.get(py)?;
        receive(py, timeout, |step| subscription.recv(step))
    }

    /// Releases the oldest `size_bytes`.
    fn consume(&self, py: Python<'_>, size_bytes: u64) -> PyResult<()> {
        self.0.get(py)?.consume(size_bytes).or_raise(py, "RecvError")
    }

    /// A view of all received bytes that were not released, in whole deliveries.
    fn buf_ref(&self, py: Python<'_>) -> PyResult<InView> {
        self.0.get(py)?.buf_ref().map(InView::of).or_raise(py, "RecvError")
    }

    /// The log and the end of the complete data received so far, to continue elsewhere; None before the subscription is accepted.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<Option<(u128, u64)>> {
        Ok(self.0.get(py)?.position().map(|(epoch, position)| (epoch.0, position)))
    }

    /// The state of the subscription: `epoch`, `boundary`, `capacity_bytes`, `copied_bytes`; None before it is accepted.
    fn info(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        let Some(info) = self.0.get(py)?.info() else { return Ok(None) };
        let epoch = info.epoch.0;
        Ok(Some(event!(py, "SubscriptionInfo"; epoch; of info: boundary, capacity_bytes, copied_bytes)))
    }

    /// Ends the subscription. A second call changes nothing.
    fn unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        self.0.detached(py, |subscription| subscription.unsubscribe())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Subscription({})", self.bid(py)?))
    }
}

getters! { Subscription.0:
    /// The id of the buffer.
    bid: u32;
}
