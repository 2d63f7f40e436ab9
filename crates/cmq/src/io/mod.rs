//! Where the machines of [`proto`](crate::proto) meet sockets, clocks and threads.
//!
//! * [`socket`]: datagrams in and out, as many in one call as the kernel takes;
//! * [`received`]: what they are read into; [`mailbox`]: messages that wait to be popped;
//! * [`sending`]: pushes; [`receiving`]: pops, and who reads the socket; [`engine`]: the thread behind both.

pub(crate) mod engine;
pub(crate) mod mailbox;
pub(crate) mod received;
pub(crate) mod receiving;
pub(crate) mod sending;
pub(crate) mod socket;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: whoever panicked was the application's `Deserialize`, and what the locks guard
/// is consistent between its calls.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
