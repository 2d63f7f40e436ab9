//! CMQ's classes: queues and mailboxes of raw bytes over UDP.

mod events;
mod key;
mod keys;
mod mailbox;
mod queue;
mod reliable;
mod security;
mod settings;
mod waiting;

use pyo3::prelude::*;

/// Adds the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<key::Key>()?;
    module.add_class::<keys::PublicKey>()?;
    module.add_class::<keys::SecretKey>()?;
    module.add_class::<security::Security>()?;
    module.add_class::<security::Reliable>()?;
    module.add_class::<mailbox::Mailbox>()?;
    module.add_class::<queue::Cmq>()
}
