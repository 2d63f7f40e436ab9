//! Confirmations: how far published messages have come.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use pyo3::prelude::*;
use rbmq::{ConfirmError, ConfirmResult};

use crate::classes::getters;
use crate::errors;
use crate::guarded::Kept;
use crate::notify::Notifier;
use crate::times::{self, Deadline};

/// The result of a confirmation that succeeded.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct Confirmed {
    level: rbmq::ConfirmLevel,
    /// Everything below this position is confirmed.
    #[pyo3(get)]
    position: u64,
    /// How many subscribers the confirmation covers.
    #[pyo3(get)]
    subscribers: u32,
    /// How many subscribers left after the broker accepted the position.
    #[pyo3(get)]
    left: u32,
    /// How often, since then, a subscriber lost messages.
    #[pyo3(get)]
    lost: u32,
}

#[pymethods]
impl Confirmed {
    /// "accepted", "delivered", "consumed", "stored", "synced" or "archived".
    #[getter]
    fn level(&self) -> String {
        self.level.to_string()
    }

    fn __repr__(&self) -> String {
        let Self { level, position, subscribers, left, lost } = self;
        format!(
            "Confirmed(level='{level}', position={position}, subscribers={subscribers}, left={left}, lost={lost})"
        )
    }
}

/// The result of a confirmation as Python has it.
///
/// # Errors
/// `ConfirmError`, with the confirmed position as `confirmed`.
pub fn result(py: Python<'_>, result: ConfirmResult) -> PyResult<Confirmed> {
    let confirmed = |rbmq::Confirmed { level, position, subscribers, left, lost }| Confirmed {
        level,
        position,
        subscribers,
        left,
        lost,
    };
    result.map(confirmed).map_err(|error| {
        let confirmed = match &error {
            ConfirmError::TimedOut { confirmed, .. }
            | ConfirmError::TooFew { confirmed, .. }
            | ConfirmError::Lost { confirmed, .. }
            | ConfirmError::Refused { confirmed, .. }
            | ConfirmError::NotStored { confirmed, .. }
            | ConfirmError::Closed { confirmed, .. }
            | ConfirmError::ShutDown { confirmed, .. } => Some(*confirmed),
            _ => None,
        };
        match confirmed.into_pyobject(py) {
            Ok(confirmed) => errors::with(py, "ConfirmError", &error, [("confirmed", confirmed)]),
            Err(other) => other.into(),
        }
    })
}

/// A confirmation that was begun.
#[pyclass(frozen, module = "rocketbufs.rbmq")]
pub struct Confirmation(Kept<rbmq::Confirmation>);

impl Confirmation {
    /// Makes a Python object of a confirmation. `notify` is woken once when there is a result.
    pub fn of(mut confirmation: rbmq::Confirmation, notify: Option<&Notifier>) -> Self {
        if let Some(notify) = notify {
            // The next poll finds a result that is there already.
            let waker = notify.waker();
            if Pin::new(&mut confirmation).poll(&mut Context::from_waker(&waker)).is_ready() {
                waker.wake();
            }
        }
        Self(Kept::new(confirmation))
    }
}

#[pymethods]
impl Confirmation {
    /// The level.
    #[getter]
    fn level(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.get(py)?.level().to_string())
    }

    /// Waits for the result, at most `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Confirmed> {
        let confirmation = self.0.get(py)?;
        let deadline = Deadline::after(times::timeout(timeout)?);
        let waited = times::now_or_wait(py, &deadline, |step| match confirmation.wait(Some(step)) {
            Err(ConfirmError::TimedOut { .. }) => Ok(None),
            done => Ok::<_, Infallible>(Some(done)),
        })?;
        match waited {
            Some(Ok(done)) => result(py, done),
            // Says how far it is.
            None => result(py, confirmation.wait(Some(Duration::ZERO))),
        }
    }

    /// The result if there is one, and None otherwise.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<Confirmed>> {
        self.0.get(py)?.try_get().map(|done| result(py, done)).transpose()
    }
}

getters! { Confirmation.0:
    /// The position: everything below is confirmed together.
    position: u64;
}
