//! The machines of [`proto`](crate::proto) on sockets, clocks and threads.
//!
//! | Module | Subject |
//! |---|---|
//! | [`socket`] | sends and receives datagrams, as many in one call as the kernel takes |
//! | [`receive_buffers`] | the memory that datagrams are read into |
//! | [`mailbox`] | messages that wait to be popped |
//! | [`send_half`] | pushes |
//! | [`receive_half`] | pops, and which thread reads the socket |
//! | [`engine`] | the background thread |
//! | [`wake`] | what threads sleep on |
//! | [`event_queue`] | events that wait for the application |

pub(crate) mod engine;
pub(crate) mod event_queue;
pub(crate) mod mailbox;
pub(crate) mod receive_buffers;
pub(crate) mod receive_half;
pub(crate) mod send_half;
pub(crate) mod socket;
pub(crate) mod wake;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, poisoned or not. Only the application's `Serialize` and `Deserialize` panic under a lock, and the guarded
/// data is consistent around those calls.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
