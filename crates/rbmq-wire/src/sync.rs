//! Locks and waits.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Locks a mutex whose data stays valid when a holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Waits on a condition variable while `waiting` says so; false if `timeout` passed first.
pub fn wait_while<T>(
    mutex: &Mutex<T>,
    changed: &Condvar,
    timeout: Duration,
    waiting: impl FnMut(&mut T) -> bool,
) -> bool {
    let waited = changed.wait_timeout_while(lock(mutex), timeout, waiting);
    let (guard, result) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
    drop(guard);
    !result.timed_out()
}
