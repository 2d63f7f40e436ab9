//! Objects that were made before a fork.
//!
//! A child process has the memory of its parent and none of its threads. A lock may be held for ever there, and the rings are the
//! parent's memory. An object that is older than the fork therefore refuses every call in the child, and is never destroyed there.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::callbacks;
use crate::errors;

/// How many forks are between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    callbacks::reset();
}

/// Counts forks from now on, also those that Python does not make.
pub fn watch() -> PyResult<()> {
    // SAFETY: the handler only changes an atomic number, which is allowed between a fork and anything else.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code).into()),
    }
}

/// The process that made an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This process.
    pub fn current() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Whether this is another process, a child of it.
    pub fn is_over(self) -> bool {
        self != Self::current()
    }

    /// Refuses the call in a child.
    ///
    /// # Errors
    /// `Forked`, in a child of the process.
    pub fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_over() {
            return Err(errors::raise(
                py,
                "Forked",
                "Forked",
                "this object was made before a fork, and belongs to the parent process; make a new one in the child",
            ));
        }
        Ok(())
    }
}
