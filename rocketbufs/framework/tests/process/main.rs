//! What is counted for the whole process: descriptors, mappings, the peak of its memory. These tests change its limits too, and each
//! runs alone.

use std::sync::{Mutex, MutexGuard};

#[path = "../suite/ends.rs"]
mod ends;
mod limits;
#[path = "../suite/raw.rs"]
mod raw;
mod shm_doorbells;
mod shm_kills;
mod shm_views;
mod storms;
#[path = "../suite/victim.rs"]
mod victim;

/// The process belongs to one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
