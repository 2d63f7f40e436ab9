//! Locks and waits.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

pub use rocketbufs::lock::lock;

/// Waits on a condition variable while `waiting` returns true, at most `timeout` (none: no limit). Returns false if the time
/// passed first.
pub fn wait_while<T>(
    mutex: &Mutex<T>,
    changed: &Condvar,
    timeout: Option<Duration>,
    waiting: impl FnMut(&mut T) -> bool,
) -> bool {
    let guard = lock(mutex);
    let Some(timeout) = timeout else {
        drop(changed.wait_while(guard, waiting).unwrap_or_else(|poisoned| poisoned.into_inner()));
        return true;
    };
    let waited = changed.wait_timeout_while(guard, timeout, waiting);
    let (guard, result) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
    drop(guard);
    !result.timed_out()
}
