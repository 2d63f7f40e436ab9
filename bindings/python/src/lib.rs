//! The extension module `rocketbufs._rocketbufs`: RocketBufs, RBMQ and CMQ as Python classes.
//!
//! ```text
//!   rocketbufs, .rbmq, .cmq, .aio     Python: names, asyncio, events, exceptions
//!   ───────────────────────────────
//!   framework   rbmq   cmq            classes, each a thin layer over the Rust handle of the same name
//!   guarded     event  settings       a handle that threads share; values
//!   export      input                 the buffer protocol in both directions
//!   fork        interpreter           the process and the interpreter; these four have the only `unsafe`
//! ```
//!
//! Received bytes leave as a buffer of the object that keeps them in place, and that object refuses to release them while a
//! memoryview exists. Calls that wait give up the interpreter and look for signals ten times a second.

#![deny(unsafe_code)]

mod arguments;
mod callbacks;
mod claimed;
mod classes;
mod cmq;
mod errors;
mod event;
mod export;
mod fork;
mod framework;
mod guarded;
mod input;
mod interpreter;
mod line;
mod notify;
mod rbmq;
mod settings;
mod times;

use pyo3::prelude::*;

/// The extension module. Everything public is in the Python package `rocketbufs`.
#[pymodule]
fn _rocketbufs(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::check(module.py())?;
    fork::watch()?;
    module.add_class::<event::Event>()?;
    module.add_class::<settings::Config>()?;
    module.add_class::<notify::Notifier>()?;
    cmq::register(module)?;
    framework::register(module)?;
    callbacks::register(module)?;
    rbmq::register(module)
}
