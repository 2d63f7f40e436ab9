//! The memory and the threads of a client.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::framework::Context;
use crate::settings;

/// The context of a client: its own, with these settings, or one of the program.
pub enum Resources {
    /// A context for the client alone.
    Own(Box<rocketbufs::Config>),
    /// A context that others use too.
    Shared(rocketbufs::Context),
}

/// The arguments `config` and `context` of a client.
///
/// # Errors
/// Both are given; or as [`settings::of_argument`].
pub fn resources(
    config: Option<&Bound<'_, PyAny>>,
    context: Option<&Bound<'_, Context>>,
) -> PyResult<Resources> {
    match (config, context) {
        (Some(_), Some(_)) => {
            Err(PyTypeError::new_err("a context has its own configuration: config or context, not both"))
        }
        (_, Some(context)) => Ok(Resources::Shared(context.get().handle(context.py())?.clone())),
        (config, None) => Ok(Resources::Own(Box::new(settings::of_argument(config)?))),
    }
}
