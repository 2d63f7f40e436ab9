//! CMQ's classes: queues and mailboxes of raw bytes over UDP.

mod events;
mod key;
mod mailbox;
mod queue;
mod settings;
mod waiting;

use pyo3::prelude::*;

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<key::Key>()?;
    module.add_class::<mailbox::Mailbox>()?;
    module.add_class::<queue::Cmq>()
}
