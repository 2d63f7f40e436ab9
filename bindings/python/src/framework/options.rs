//! Options of subscriptions and limits of buffers.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rocketbufs::{BlockTimeout, ConfirmMode, Epoch, Policy, ProgressLevel, Start, SubscribeOptions};

use crate::arguments::{choice, given};
use crate::times;

/// Memory in bytes that the rings of many subscriptions share.
#[pyclass(frozen, module = "rocketbufs")]
pub struct Budget(rocketbufs::Budget);

#[pymethods]
impl Budget {
    #[new]
    fn new(bytes: u64) -> Self {
        Self(rocketbufs::Budget::new(bytes))
    }

    /// The size of the budget.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The bytes of the rings that exist now.
    #[getter]
    fn in_use_bytes(&self) -> u64 {
        self.0.in_use_bytes()
    }
}

/// A level of progress by its name.
///
/// # Errors
/// Another name.
pub fn level(name: &str) -> PyResult<ProgressLevel> {
    let levels = [
        ("landed", ProgressLevel::Landed),
        ("delivered", ProgressLevel::Delivered),
        ("consumed", ProgressLevel::Consumed),
    ];
    choice("level", name, levels)
}

/// A policy by its name.
///
/// # Errors
/// Another name.
pub fn policy(name: &str) -> PyResult<Policy> {
    name.parse().map_err(PyValueError::new_err)
}

/// How long a slow subscription may block: "default", seconds, or None for ever.
///
/// # Errors
/// Neither of these.
pub fn block_timeout(value: &Bound<'_, PyAny>) -> PyResult<BlockTimeout> {
    if value.is_none() {
        return Ok(BlockTimeout::Never);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return match &*text.to_cow()? {
            "default" => Ok(BlockTimeout::Default),
            other => Err(PyValueError::new_err(format!(
                "'{other}' is no time-out; it is 'default', seconds or None"
            ))),
        };
    }
    Ok(times::timeout(Some(value.extract()?))?.map_or(BlockTimeout::Never, BlockTimeout::After))
}

fn start(value: &Bound<'_, PyAny>) -> PyResult<Start> {
    if let Ok(name) = value.cast::<PyString>() {
        return match &*name.to_cow()? {
            "newest" => Ok(Start::Newest),
            "oldest" => Ok(Start::Oldest),
            "last" => Ok(Start::Last),
            "first" => Ok(Start::First),
            other => Err(PyValueError::new_err(format!(
                "'{other}' is no start; it is 'newest', 'oldest', 'last', 'first', (epoch, position) or a timedelta"
            ))),
        };
    }
    if value.hasattr("total_seconds")? {
        let ago = times::timeout(Some(value.call_method0("total_seconds")?.extract()?))?;
        let millis = ago.map_or(u64::MAX, |ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
        return Ok(Start::Ago(millis));
    }
    match value.extract::<(u128, u64)>() {
        Ok((epoch, position)) => Ok(Start::Position(Epoch(epoch), position)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "start is a str, a tuple of epoch and position, or a timedelta, not {}",
            value.repr()?
        ))),
    }
}

fn confirm_mode(name: &str) -> PyResult<ConfirmMode> {
    choice("mode", name, [("on_arrival", ConfirmMode::OnArrival), ("on_consume", ConfirmMode::OnConsume)])
}

fn optional<'a, T>(value: &'a Bound<'_, PyAny>) -> PyResult<Option<T>>
where
    T: for<'b> FromPyObject<'b, 'a, Error = PyErr>,
{
    if value.is_none() { Ok(None) } else { value.extract().map(Some) }
}

fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    times::timeout(if value.is_none() { None } else { Some(value.extract()?) })
}

/// The options that a subscription was given as keywords.
///
/// # Errors
/// An unknown keyword, or a value that an option cannot have.
pub fn subscribe_options(
    size_bytes: Option<u64>,
    given: Option<&Bound<'_, PyDict>>,
) -> PyResult<SubscribeOptions> {
    let mut options = SubscribeOptions::new();
    given!(options; size_bytes);
    let Some(given) = given else { return Ok(options) };
    let mut durable = (None::<Vec<u8>>, None::<Duration>);
    for (name, value) in given.iter() {
        let name: String = name.extract()?;
        options = match name.as_str() {
            "own_memory" => options.own_memory(value.extract()?),
            "max_view_bytes" => options.max_view_bytes(optional(&value)?),
            "budget" => options.budget(optional_budget(&value)?),
            "start" => options.start(start(&value)?),
            "policy" => options.policy(policy(&value.extract::<String>()?)?),
            "max_lag_bytes" => options.max_lag_bytes(optional(&value)?),
            "block_timeout" => options.block_timeout(block_timeout(&value)?),
            "confirm" => options.confirm(confirm_mode(&value.extract::<String>()?)?),
            "retain_bytes" => options.retain_bytes(optional(&value)?),
            "linger" => options.linger(seconds(&value)?),
            "name" => {
                durable.0 = Some(value.extract::<String>()?.into_bytes());
                options
            }
            "hold" => {
                durable.1 = seconds(&value)?;
                options
            }
            other => return Err(PyTypeError::new_err(format!("a subscription has no option '{other}'"))),
        };
    }
    match durable {
        (None, None) => Ok(options),
        (Some(name), hold) => Ok(options.durable(name, hold.unwrap_or_default())),
        (None, Some(_)) => Err(PyValueError::new_err("a subscription that is held (hold) needs a name")),
    }
}

fn optional_budget(value: &Bound<'_, PyAny>) -> PyResult<Option<rocketbufs::Budget>> {
    if value.is_none() {
        return Ok(None);
    }
    let budget = value.cast::<Budget>().map_err(|_| PyTypeError::new_err("budget is a Budget"))?;
    Ok(Some(budget.get().0.clone()))
}
