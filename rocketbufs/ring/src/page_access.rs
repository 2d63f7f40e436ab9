//! Write access to a ring's pages, and whether the pages stay in place.

use crate::sync::{AtomicU32, Mutex, MutexGuard, Ordering, lock};

/// Undecided: no caller has asked yet whether a peer may write the ring, or whether its bytes can be plain slices. The
/// first caller decides for good: a slice must not change under its reader.
const OPEN: u32 = 0;
/// The bytes can be plain slices: no peer will write them.
const PLAIN: u32 = 1;
/// A peer can write the bytes by itself, or could.
const EXPOSED: u32 = 2;

/// The access to a ring's pages, and the number of pins that keep them in place.
#[derive(Debug)]
pub(crate) struct PageAccess {
    pins: Mutex<usize>,
    access: AtomicU32,
}

impl PageAccess {
    pub(crate) fn new() -> PageAccess {
        PageAccess { pins: Mutex::new(0), access: AtomicU32::new(OPEN) }
    }

    pub(crate) fn add_pin(&self) {
        *lock(&self.pins) += 1;
    }

    pub(crate) fn remove_pin(&self) {
        *lock(&self.pins) -= 1;
    }

    /// Keeps others from pinning while pages return to the system. None if there are pins.
    pub(crate) fn lock_unpinned(&self) -> Option<MutexGuard<'_, usize>> {
        let pins = lock(&self.pins);
        (*pins == 0).then_some(pins)
    }

    /// Decides for exposed pages. False if the other was decided.
    pub(crate) fn expose(&self) -> bool {
        self.decide(EXPOSED)
    }

    /// Decides for plain slices. False if the other was decided.
    #[inline]
    pub(crate) fn make_plain(&self) -> bool {
        self.decide(PLAIN)
    }

    pub(crate) fn is_exposed(&self) -> bool {
        self.access.load(Ordering::Acquire) == EXPOSED
    }

    #[inline]
    fn decide(&self, access: u32) -> bool {
        // This is asked for each message, and a decision stays: a load, where an exchange costs ten times the rest.
        match self.access.load(Ordering::Acquire) {
            OPEN => self.decide_now(access),
            decided => decided == access,
        }
    }

    #[cold]
    fn decide_now(&self, access: u32) -> bool {
        // Release pairs with Acquire here and in `is_exposed`: a caller that finds a decision comes after it.
        let found = self.access.compare_exchange(OPEN, access, Ordering::AcqRel, Ordering::Acquire);
        found.is_ok() || found == Err(access)
    }
}
