//! A place for one callback of the application, called from any worker, one call at a time.

use std::sync::{Arc, Mutex};

use crate::context::lock;

/// Holds at most one callback. It may be replaced while it runs, also by itself.
pub(crate) struct Callback<F: ?Sized>(Mutex<Option<Arc<Mutex<Box<F>>>>>);

impl<F: ?Sized> Default for Callback<F> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<F: ?Sized> Callback<F> {
    pub(crate) fn set(&self, callback: Box<F>) {
        *lock(&self.0) = Some(Arc::new(Mutex::new(callback)));
    }

    pub(crate) fn is_set(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Runs `call` with the callback, if there is one; gives `argument` back if there is none.
    pub(crate) fn run<A>(&self, argument: A, call: impl FnOnce(&mut F, A)) -> Result<(), A> {
        let Some(callback) = lock(&self.0).clone() else { return Err(argument) };
        let mut callback = lock(&callback);
        call(&mut callback, argument);
        Ok(())
    }
}
