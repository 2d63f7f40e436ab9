//! Locking, as this crate and those above it do it.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex whose data stays valid when a holder panicked (a panic in an application's callback must not take
/// the other connections down).
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
