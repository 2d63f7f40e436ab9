//! A place for one callback of the application, called from any worker, one call at a time.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::ground::lock::lock;

/// Holds at most one callback. The callback may be replaced while it runs, also by itself.
pub(crate) struct Callback<F: ?Sized>(Mutex<Option<Arc<Mutex<Box<F>>>>>);

/// Why a connection ends whose callback panicked; the panic itself is in the log.
pub(crate) const CALLBACK_PANICKED: &str = "a callback of its application panicked";

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ran {
    Returned,
    /// The callback panicked: the application's fault, which was logged. Only the event that the call was for ends.
    Panicked,
}

impl<F: ?Sized> Default for Callback<F> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<F: ?Sized> Callback<F> {
    /// Whether this replaced another callback.
    pub(crate) fn set(&self, callback: Box<F>) -> bool {
        let old = lock(&self.0).replace(Arc::new(Mutex::new(callback)));
        // The destructors of the replaced callback may set callbacks too, so they run after the lock was released.
        old.is_some()
    }

    /// As [`Self::set`]. A call of the earlier callback that runs on another thread has returned when this returns.
    pub(crate) fn replace(&self, callback: Box<F>) -> bool {
        let old = lock(&self.0).replace(Arc::new(Mutex::new(callback)));
        old.inspect(wait_for).is_some()
    }

    /// Removes the callback. A call that runs on another thread has returned when this returns, so that what the callback
    /// uses can be freed; the callback may also remove itself. Whether there was a callback.
    pub(crate) fn unset(&self) -> bool {
        let old = lock(&self.0).take();
        old.inspect(wait_for).is_some()
    }

    pub(crate) fn is_set(&self) -> bool {
        lock(&self.0).is_some()
    }

    fn is(&self, callback: &Arc<Mutex<Box<F>>>) -> bool {
        lock(&self.0).as_ref().is_some_and(|known| Arc::ptr_eq(known, callback))
    }

    /// Runs `call` with the callback, if there is one; gives `argument` back if there is none. A panic goes no further
    /// than here: the worker owns other connections too.
    pub(crate) fn run<A>(&self, argument: A, call: impl FnOnce(&mut F, A)) -> Result<Ran, A> {
        let Some(shared) = lock(&self.0).clone() else { return Err(argument) };
        let mut callback = lock(&shared);
        if !self.is(&shared) {
            // Replaced or removed while this waited for a call of another worker.
            drop(callback);
            return self.run(argument, call);
        }
        RUNNING.with_borrow_mut(|running| running.push(address_of(&shared)));
        // The state that a panic leaves half done is the application's own.
        let ran = catch_unwind(AssertUnwindSafe(|| call(&mut callback, argument)));
        RUNNING.with_borrow_mut(|running| running.pop());
        match ran {
            Ok(()) => Ok(Ran::Returned),
            Err(panic) => {
                tracing::error!(panic = text(&*panic), "a callback of the application panicked");
                Ok(Ran::Panicked)
            }
        }
    }
}

thread_local! {
    /// The callbacks that run on this thread, the innermost last: a callback may cause another.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Waits for a call that runs on another thread.
fn wait_for<F: ?Sized>(callback: &Arc<Mutex<Box<F>>>) {
    let runs_here = RUNNING.with_borrow(|running| running.contains(&address_of(callback)));
    if !runs_here {
        drop(lock(callback));
    }
}

fn address_of<F: ?Sized>(callback: &Arc<Mutex<Box<F>>>) -> usize {
    Arc::as_ptr(callback).cast::<()>() as usize
}

fn text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "(no text)",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    type Plain = dyn FnMut(u32) + Send;

    #[test]
    fn unset_and_replace_return_after_the_call_that_runs() {
        returns_after_the_call_that_runs(Callback::unset);
        returns_after_the_call_that_runs(|callback| callback.replace(Box::new(|_| {})) && callback.unset());
    }

    fn returns_after_the_call_that_runs(end: fn(&Callback<Plain>) -> bool) {
        let callback = Arc::new(Callback::<Plain>::default());
        let (entered, enters) = mpsc::sync_channel(1);
        let (release, released) = mpsc::sync_channel::<()>(1);
        let (ended, ends) = mpsc::sync_channel(1);
        let set = callback.set(Box::new(move |n| {
            entered.send(n).unwrap();
            released.recv().unwrap();
            ended.send(()).unwrap();
        }));
        assert!(!set, "it replaced nothing");
        let runs = callback.clone();
        let call = std::thread::spawn(move || runs.run(3, |callback, n| callback(n)));
        assert_eq!(enters.recv().unwrap(), 3);
        let unsets = callback.clone();
        let unset = std::thread::spawn(move || {
            assert!(end(&unsets));
            ends.try_recv().is_ok()
        });
        release.send(()).unwrap();
        assert!(unset.join().unwrap(), "the call had not returned");
        assert_eq!(call.join().unwrap(), Ok(Ran::Returned));
        assert_eq!(callback.run(4, |callback, n| callback(n)), Err(4));
        assert!(!callback.unset(), "there is none");
    }

    #[test]
    fn a_callback_removes_itself() {
        let callback = Arc::new(Callback::<Plain>::default());
        let own = callback.clone();
        callback.set(Box::new(move |_| assert!(own.replace(Box::new(|_| {})) && own.unset())));
        assert_eq!(callback.run(1, |callback, n| callback(n)), Ok(Ran::Returned));
        assert!(!callback.is_set());
    }
}
