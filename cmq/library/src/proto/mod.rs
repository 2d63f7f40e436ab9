//! The protocol without I/O: these state machines never touch a socket, a clock or a random source.
//!
//! | Module | Subject |
//! |---|---|
//! | `batcher` | the sending machine: pushed messages, until their batch leaves |
//! | `open_batch` | the batch of one key, while it fills |
//! | `destinations` | the streams that batches leave in |
//! | `outgoing` | batches that are being sent |
//! | [`receiver`] | the receiving machine |
//! | `stream` | the message numbers of one sender |
//! | `gaps` | deadlines of missing messages |
//! | `reassembly` | fragmented messages |
//! | `fair_share` | which stream is evicted |
//! | [`shared_buffer`] | the memory that messages lie in |
//! | [`reliable`] | the reliable mode |
//! | [`secure`] | encryption: handshakes and sessions |
//! | `timeline` | entries in the order of their age |

pub(crate) mod batcher;
pub(crate) mod destinations;
pub(crate) mod fair_share;
#[cfg(test)]
mod fragment_tests;
pub(crate) mod gaps;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod open_batch;
pub(crate) mod outgoing;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod reassembly;
pub mod receiver;
pub mod reliable;
pub mod secure;
pub mod shared_buffer;
pub mod sink;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;

use std::time::{Duration, Instant};

use slab::Slab;

/// Longer than any program runs.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The moment `time` after `since`. A time that overflows becomes one that is never reached.
#[inline]
pub(crate) fn after(since: Instant, time: Duration) -> Instant {
    since.checked_add(time).unwrap_or_else(|| since + FAR)
}

/// A slab with keys of 32 bits, which halve the maps of slots.
pub(crate) struct SlotTable<E>(Slab<E>);

impl<E> SlotTable<E> {
    pub fn new() -> SlotTable<E> {
        SlotTable(Slab::new())
    }

    pub fn insert(&mut self, entry: E) -> u32 {
        u32::try_from(self.0.insert(entry)).expect("tables are limited to far fewer entries")
    }

    pub fn remove(&mut self, slot: u32) -> Option<E> {
        self.0.try_remove(slot as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut E> {
        self.0.get_mut(slot as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.0.iter().map(|(_, entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}
