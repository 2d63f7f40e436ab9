//! Atomics and locks, from std or (under `cfg(loom)`) from loom, which tries the interleavings.
//!
//! The rest of the crate imports them from here only; `tests/style.rs` finds violations. (Clippy cannot: it sees through
//! the re-exports below.)

#[cfg(not(loom))]
mod imp {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};

    /// A value that is set once. What orders it is a flag that loom knows.
    #[derive(Debug)]
    pub struct OnceLock<T> {
        is_set: AtomicBool,
        value: std::sync::OnceLock<T>,
    }

    impl<T> OnceLock<T> {
        /// Without a value.
        pub fn new() -> Self {
            Self { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
        }

        /// The value, with all that was written before it was set.
        pub fn get(&self) -> Option<&T> {
            self.is_set.load(Ordering::Acquire).then(|| self.value.get()).flatten()
        }

        /// Sets the value.
        ///
        /// # Errors
        /// The value was set before; the new one comes back.
        pub fn set(&self, value: T) -> Result<(), T> {
            self.value.set(value)?;
            self.is_set.store(true, Ordering::Release);
            Ok(())
        }
    }
}

pub use imp::*;

/// Locks, also after a panic of another thread: no code in this crate leaves its data half changed by a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Keeps the data of different threads on different cache lines. 128 bytes: x86-64 fetches lines in pairs, and
/// some arm64 lines are that long.
#[repr(align(128))]
#[derive(Debug, Default)]
pub struct CachePadded<T>(pub T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
