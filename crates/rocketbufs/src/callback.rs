//! A place for one callback of the application, called from any worker, one call at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::context::lock;

/// Holds at most one callback. It may be replaced while it runs, also by itself.
pub(crate) struct Callback<F: ?Sized>(Mutex<Option<Arc<Mutex<Box<F>>>>>);

/// Why a connection ends whose callback panicked; the panic itself is in the log.
pub(crate) const CALLBACK_PANICKED: &str = "a callback of its application panicked";

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ran {
    Returned,
    /// The application's fault; it was logged. What the call was for should end, and nothing else.
    Panicked,
}

impl<F: ?Sized> Default for Callback<F> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<F: ?Sized> Callback<F> {
    pub(crate) fn set(&self, callback: Box<F>) {
        let old = lock(&self.0).replace(Arc::new(Mutex::new(callback)));
        // What it owns may set callbacks as it goes.
        drop(old);
    }

    pub(crate) fn is_set(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Runs `call` with the callback, if there is one; gives `argument` back if there is none. A panic goes no further
    /// than here: the worker owns other connections too.
    pub(crate) fn run<A>(&self, argument: A, call: impl FnOnce(&mut F, A)) -> Result<Ran, A> {
        let Some(callback) = lock(&self.0).clone() else { return Err(argument) };
        let mut callback = lock(&callback);
        // What a panic leaves half done is the application's own state.
        match catch_unwind(AssertUnwindSafe(|| call(&mut callback, argument))) {
            Ok(()) => Ok(Ran::Returned),
            Err(panic) => {
                tracing::error!(panic = text(&*panic), "a callback of the application panicked");
                Ok(Ran::Panicked)
            }
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "(no text)",
    }
}
