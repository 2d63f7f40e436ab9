//! The standard library's locks without poisoning: a panic that holds a lock gives it back, and the next owner goes on. And a lock on a file,
//! against other processes.
//!
//! The calls are those of the crate parking_lot, which is not used for one reason: its table of waiting threads belongs to the whole process.
//! A child of `fork` gets a copy in which another thread may hold a place of the table, and waits for it for ever. Programs in C and Python
//! fork, and make new objects in the child. A lock of the standard library is a word of its own, so locks that are made after the fork are
//! free.

#![forbid(unsafe_code)]

mod file;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub use file::FileLock;
pub use std::sync::{RwLockReadGuard, RwLockWriteGuard};

/// A lock for one owner at a time.
///
/// ```
/// let count = locks::Mutex::new(1);
/// *count.lock() += 1;
/// assert_eq!(count.into_inner(), 2);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

/// Access to what a [`Mutex`] holds, until it is dropped.
#[must_use = "the lock is free as soon as the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a sync::Mutex<T>,
    /// None only while the thread waits, or runs without the lock.
    held: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Makes a lock that is free.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Ends the lock and returns its value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is free, and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { lock: &self.0, held: Some(held) }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = match self.0.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { lock: &self.0, held: Some(held) })
    }

    /// The value, without locking: `&mut self` is the only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Gives the lock back while `run` runs, and takes it again.
    pub fn unlocked<R>(guard: &mut Self, run: impl FnOnce() -> R) -> R {
        guard.held = None;
        let result = run();
        guard.held = Some(guard.lock.lock().unwrap_or_else(PoisonError::into_inner));
        result
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("only a wait gives the lock back")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("only a wait gives the lock back")
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A lock for one writer or many readers.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes a lock that is free.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Ends the lock and returns its value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer has the lock, and takes it for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody has the lock, and takes it for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, without locking: `&mut self` is the only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Threads that wait for a change of what a [`Mutex`] holds.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

/// How a wait with a time limit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time was over.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Makes one for which nobody waits.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Wakes one thread that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Gives the lock back, and has it again when woken, also without a reason.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let own = guard.held.take().expect("a guard holds its lock");
        guard.held = Some(self.0.wait(own).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`wait`](Self::wait), for at most `time`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        let own = guard.held.take().expect("a guard holds its lock");
        let (own, result) = self.0.wait_timeout(own, time).unwrap_or_else(PoisonError::into_inner);
        guard.held = Some(own);
        WaitTimeoutResult(result.timed_out())
    }

    /// As [`wait`](Self::wait), at most until a time.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, until.saturating_duration_since(Instant::now()))
    }

    /// Waits while a condition holds.
    pub fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, mut condition: impl FnMut(&mut T) -> bool) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Waits while a condition holds, for at most `time`. Timed out: the condition still holds.
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) -> WaitTimeoutResult {
        let began = Instant::now();
        while condition(guard) {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return WaitTimeoutResult(true);
            }
            self.wait_for(guard, left);
        }
        WaitTimeoutResult(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_panic_gives_the_lock_back() {
        let both = Arc::new((Mutex::new(1), RwLock::new(1)));
        let held = both.clone();
        let thread = thread::spawn(move || {
            let _guards = (held.0.lock(), held.1.write());
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        *both.0.lock() += 1;
        *both.1.write() += 1;
        assert_eq!((*both.0.try_lock().unwrap(), *both.1.read()), (2, 2));
    }

    #[test]
    fn a_wait_ends_with_the_condition_or_the_time() {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let other = shared.clone();
        let thread = thread::spawn(move || {
            for _ in 0..3 {
                *other.0.lock() += 1;
                other.1.notify_all();
            }
        });
        let mut count = shared.0.lock();
        shared.1.wait_while(&mut count, |count| *count < 3);
        assert_eq!(*count, 3);
        assert!(shared.0.try_lock().is_none(), "the lock is held again");
        assert!(
            shared.1.wait_while_for(&mut count, |count| *count == 3, Duration::from_millis(1)).timed_out()
        );
        assert!(!shared.1.wait_while_for(&mut count, |count| *count != 3, Duration::ZERO).timed_out());
        assert!(shared.1.wait_until(&mut count, Instant::now()).timed_out());
        MutexGuard::unlocked(&mut count, || *shared.0.lock() += 1);
        assert_eq!(*count, 4);
        drop(count);
        thread.join().unwrap();
    }
}
