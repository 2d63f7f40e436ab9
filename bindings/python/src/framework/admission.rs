//! The application's decision about the subscriptions of peers.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rocketbufs::{Asking, PolicySet};

use super::options;
use crate::callbacks;
use crate::event::{Event, event};

/// The rights of a subscribing peer: the allowed `policies` (None: all), and the `owner` of the subscription's name. Subscriptions of
/// different owners with the same name have nothing to do with each other.
#[pyclass(frozen, module = "rocketbufs")]
pub struct Admitted(rocketbufs::Admitted);

#[pymethods]
impl Admitted {
    #[new]
    #[pyo3(signature = (policies=None, owner=0))]
    fn new(policies: Option<Vec<String>>, owner: u64) -> PyResult<Self> {
        let policies = match policies {
            None => PolicySet::ALL,
            Some(names) => names.iter().map(|name| options::policy(name)).collect::<PyResult<_>>()?,
        };
        Ok(Self(rocketbufs::Admitted { policies, owner }))
    }

    /// The allowed policies.
    #[getter]
    fn policies(&self) -> Vec<&'static str> {
        self.0.policies.iter().map(|policy| policy.as_str()).collect()
    }

    /// The owner of the subscription's name.
    #[getter]
    fn owner(&self) -> u64 {
        self.0.owner
    }

    fn __repr__(&self) -> String {
        format!("Admitted({:?}, {})", self.policies(), self.0.owner)
    }
}

fn asking_of(py: Python<'_>, asking: &Asking<'_>) -> PyResult<Event> {
    Ok(event!(py, "Asking"; conn = asking.conn, bid = asking.bid, name = PyBytes::new(py, asking.name)))
}

fn answer(answered: &Bound<'_, PyAny>) -> PyResult<Option<rocketbufs::Admitted>> {
    if answered.is_none() {
        return Ok(None);
    }
    let wrong = || PyTypeError::new_err(format!("the answer is an Admitted or None, not {answered:?}"));
    Ok(Some(answered.cast::<Admitted>().map_err(|_| wrong())?.get().0))
}

/// Asks the callback about a subscription; none refuses it, as does the end of the interpreter.
pub fn decide(callback: &Py<PyAny>, asking: &Asking<'_>) -> Option<rocketbufs::Admitted> {
    callbacks::call_for(callback, |py| Ok((asking_of(py, asking)?,)), answer, |_| ()).flatten()
}
