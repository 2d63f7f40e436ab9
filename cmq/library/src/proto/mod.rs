//! The protocol without I/O: these state machines never touch a socket, a clock or a random source.
//!
//! | Module | Subject |
//! |---|---|
//! | [`unreliable`] | messages that are sent once, numbered for each address |
//! | [`reliable`] | messages that are sent until they are confirmed |
//! | [`secure`] | encryption: handshakes and sessions |
//! | `outgoing` | the datagrams of both modes, until they are sent |
//! | [`sink`] | the destination of received messages and of events |
//! | [`shared_buffer`] | the memory that messages lie in |
//! | `peers` | what is known of other queues, within a limit |
//! | `fair_share` | which peer is evicted |
//! | `recent_map` | a map that finds its last entry cheaply |
//! | `timeline` | entries in the order of their age |
//!
//! The modes know nothing of each other. Both know a peer by its address, and each keeps its own state of it, with its own limit: so
//! traffic of one mode never evicts the state of the other, and threads that send and threads that receive share no lock.

pub(crate) mod fair_share;
pub(crate) mod outgoing;
pub(crate) mod peers;
#[cfg(test)]
pub(crate) mod random;
pub(crate) mod recent_map;
pub mod reliable;
pub mod secure;
pub mod shared_buffer;
pub mod sink;
pub(crate) mod timeline;
pub mod unreliable;

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
    pub fn get(&self, slot: u32) -> Option<&E> {
        self.0.get(slot as usize)
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut E> {
        self.0.get_mut(slot as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.0.iter().map(|(_, entry)| entry)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.0.iter_mut().map(|(_, entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}
