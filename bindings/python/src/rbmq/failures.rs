//! RBMQ's errors as exceptions.

use pyo3::prelude::*;
use rbmq::{GroupError, ReceiveError};

use crate::errors;

/// The exception of a call that receives.
pub fn receive_error(py: Python<'_>, error: &ReceiveError) -> PyErr {
    let is_final = error.is_final().into_pyobject(py).map(|is_final| is_final.to_owned().into_any());
    match is_final {
        Ok(is_final) => errors::with(py, "ReceiveError", error, [("is_final", is_final)]),
        Err(impossible) => match impossible {},
    }
}

/// The exception of a group or of its worker: that of the connection, if there is none.
pub fn group_error(py: Python<'_>, error: &GroupError) -> PyErr {
    match error {
        GroupError::Connect(error) => errors::of(py, "ConnectError", error),
        GroupError::InCallback => errors::raise(py, "GroupError", "CalledFromWorker", &error.to_string()),
        other => errors::of(py, "GroupError", other),
    }
}
