//! The effect of a fork on handles.
//!
//! A child process that `fork` makes has a copy of every object, and none of the threads that serve it: a call would wait for
//! answers that never come, and a free for threads that do not exist. So the handles of the parent mean nothing in the child.
//! Their objects are left alone there, and calls fail with `RB_ERR_FORKED`. The child makes handles of its own.
//!
//! A fork copies a lock that another thread holds, and nobody would ever release the copy. The forking thread therefore takes the
//! locks of the tables before.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

/// The numbers of free slots.
pub(crate) type FreeSlots = Mutex<Vec<u32>>;

/// A table of handles, as a fork sees it.
pub(crate) trait Forked: Sync {
    /// The lock of the table, which is held during a fork.
    fn free_slots(&self) -> &FreeSlots;
    /// Makes every handle one of the parent, in the child.
    fn abandon(&self);
}

const KINDS: usize = 128;
/// The tables that have handles, by the number of their kind.
static TABLES: [OnceLock<&'static dyn Forked>; KINDS] = [const { OnceLock::new() }; KINDS];

thread_local! {
    /// The locks that this thread holds while it forks.
    static HELD: RefCell<Vec<MutexGuard<'static, Vec<u32>>>> = const { RefCell::new(Vec::new()) };
}

/// Includes a table in every fork from now on. Called before its lock is taken for the first time.
pub(crate) fn register(kind: u32, table: &'static dyn Forked) {
    static HANDLERS: Once = Once::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded (`-z nodelete`).
    HANDLERS.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
    if let Some(place) = TABLES.get(kind as usize) {
        place.get_or_init(|| table);
    }
}

fn tables() -> impl Iterator<Item = &'static dyn Forked> {
    TABLES.iter().filter_map(|table| table.get().copied())
}

extern "C" fn before() {
    let lock = |table: &'static dyn Forked| table.free_slots().lock().unwrap_or_else(PoisonError::into_inner);
    let _ = HELD.try_with(|held| held.borrow_mut().extend(tables().map(lock)));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().clear());
}

extern "C" fn in_child() {
    tables().for_each(Forked::abandon);
    in_parent();
}
