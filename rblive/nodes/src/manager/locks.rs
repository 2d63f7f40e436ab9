//! Locks whose holders may have panicked: the guarded state is consistent between any two statements.

use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

pub use rocketbufs::lock::lock;

pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}
