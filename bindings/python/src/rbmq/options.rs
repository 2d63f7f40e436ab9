//! Options of publishers and subscribers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rbmq::{ConfirmLevel, Framing, StartFrom};
use rocketbufs::Epoch;

use crate::arguments::choice;
use crate::times;

/// The broker's treatment of a slow subscriber.
#[pyclass(frozen, from_py_object, module = "rocketbufs.rbmq")]
#[derive(Clone, Copy)]
pub struct SlowPolicy(rbmq::SlowPolicy);

#[pymethods]
impl SlowPolicy {
    /// Publishers wait for the subscriber, for the broker's time-out.
    #[staticmethod]
    fn block() -> Self {
        Self(rbmq::SlowPolicy::Block)
    }

    /// Publishers wait for the subscriber; it is disconnected after this time in seconds without progress (None: never).
    #[staticmethod]
    fn block_for(timeout: Option<f64>) -> PyResult<Self> {
        Ok(Self(rbmq::SlowPolicy::BlockFor { timeout: times::timeout(timeout)? }))
    }

    /// The subscriber skips messages at this lag in bytes (None: the broker's default), and learns how much it lost.
    #[staticmethod]
    #[pyo3(signature = (max_lag_bytes=None))]
    fn drop(max_lag_bytes: Option<u64>) -> Self {
        Self(rbmq::SlowPolicy::Drop { max_lag_bytes })
    }

    /// The broker ends the subscription at this lag in bytes (None: the broker's default).
    #[staticmethod]
    #[pyo3(signature = (max_lag_bytes=None))]
    fn disconnect(max_lag_bytes: Option<u64>) -> Self {
        Self(rbmq::SlowPolicy::Disconnect { max_lag_bytes })
    }

    fn __repr__(&self) -> String {
        format!("SlowPolicy({:?})", self.0)
    }
}

/// A policy, or its name with the defaults.
///
/// # Errors
/// Neither a policy nor the name of one.
pub fn slow_policy(argument: &Bound<'_, PyAny>) -> PyResult<rbmq::SlowPolicy> {
    if let Ok(policy) = argument.cast::<SlowPolicy>() {
        return Ok(policy.get().0);
    }
    match argument.extract::<String>().ok().as_deref() {
        Some("block") => Ok(rbmq::SlowPolicy::Block),
        Some("drop") => Ok(rbmq::SlowPolicy::Drop { max_lag_bytes: None }),
        Some("disconnect") => Ok(rbmq::SlowPolicy::Disconnect { max_lag_bytes: None }),
        _ => Err(PyValueError::new_err(format!(
            "{} is no policy; it is 'block', 'drop', 'disconnect' or a SlowPolicy",
            argument.repr()?
        ))),
    }
}

/// How a client logs in: a user with a password, a token, or nothing.
///
/// # Errors
/// A user without a password or the other way round, or both a user and a token.
pub fn login(
    user: Option<&str>,
    password: Option<&str>,
    token: Option<&str>,
    allow_plaintext: bool,
) -> PyResult<rbmq::Login> {
    let login = rbmq::Login::default().allow_plaintext(allow_plaintext);
    match (user, password, token) {
        (None, None, None) => Ok(login),
        (Some(user), Some(password), None) => Ok(login.user(user, password)),
        (None, None, Some(token)) => Ok(login.token(token)),
        _ => Err(PyValueError::new_err("a login has a user and a password, or a token")),
    }
}

/// The framing of a topic by its name.
///
/// # Errors
/// Another name. Only brokers merge.
pub fn framing(name: &str) -> PyResult<Framing> {
    choice("framing", name, [("records", Framing::Records), ("raw", Framing::Raw)])
}

/// A level of confirmation by its name.
///
/// # Errors
/// Another name.
pub fn level(name: &str) -> PyResult<ConfirmLevel> {
    let known = ConfirmLevel::ALL.into_iter().find(|level| level.to_string() == name);
    known.ok_or_else(|| {
        let levels = ConfirmLevel::ALL.map(|level| format!("'{level}'")).join(", ");
        PyValueError::new_err(format!("'{name}' is no level; the levels are {levels}"))
    })
}

/// Where a subscription begins: "newest", "oldest", "last", a position, a datetime, or a dictionary of positions by log.
///
/// # Errors
/// None of these.
pub fn start_from(argument: &Bound<'_, PyAny>) -> PyResult<StartFrom> {
    if let Ok(name) = argument.cast::<PyString>() {
        return match &*name.to_cow()? {
            "newest" => Ok(StartFrom::Newest),
            "oldest" => Ok(StartFrom::Oldest),
            "last" => Ok(StartFrom::Last),
            other => Err(PyValueError::new_err(format!(
                "'{other}' is no start; it is 'newest', 'oldest', 'last', a position, a datetime or a dict"
            ))),
        };
    }
    if let Ok(positions) = argument.cast::<PyDict>() {
        let pairs =
            positions.iter().map(|(epoch, position)| Ok((Epoch(epoch.extract()?), position.extract()?)));
        return Ok(StartFrom::Positions(pairs.collect::<PyResult<_>>()?));
    }
    if argument.hasattr("timestamp")? {
        let seconds: f64 = argument.call_method0("timestamp")?.extract()?;
        let since = Duration::try_from_secs_f64(seconds)
            .map_err(|_| PyValueError::new_err("a subscription cannot begin before 1970"))?;
        let time = UNIX_EPOCH.checked_add(since).unwrap_or_else(SystemTime::now);
        return Ok(StartFrom::Time(time));
    }
    match argument.extract::<u64>() {
        Ok(position) => Ok(StartFrom::Position(position)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "start is a str, a position, a datetime or a dict of positions by epoch, not {}",
            argument.repr()?
        ))),
    }
}
