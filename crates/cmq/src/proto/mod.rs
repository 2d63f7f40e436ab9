//! The protocol without I/O: these machines never touch a socket, a clock or a random source.
//!
//! * `batches`: what was pushed, until it leaves; `queue`: that of one key; `destinations`: the streams it leaves in;
//!   `due`: what leaves;
//! * [`receiver`]: what arrives; `stream`: one sender's numbers; `gaps`: who misses something; `fragments`: messages in
//!   pieces; `shares`: whose places are taken; [`lent`]: what messages lie in;
//! * `timeline`: who waits longest.

pub(crate) mod batches;
pub(crate) mod destinations;
pub(crate) mod due;
pub(crate) mod fragments;
pub(crate) mod gaps;
pub mod lent;
#[cfg(test)]
mod pieces;
pub(crate) mod queue;
pub mod receiver;
pub(crate) mod shares;
pub mod sink;
#[cfg(test)]
mod strangers;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;

use std::time::{Duration, Instant};

/// Years that nobody waits.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// So long after; a time too far away to be a time is one that never comes.
#[inline]
pub(crate) fn after(since: Instant, time: Duration) -> Instant {
    since.checked_add(time).unwrap_or_else(|| since + FAR)
}

/// A table whose indices stay while entries come and go.
pub(crate) struct Slots<E> {
    entries: Vec<Option<E>>,
    free: Vec<u32>,
}

impl<E> Slots<E> {
    pub fn new() -> Slots<E> {
        Slots { entries: Vec::new(), free: Vec::new() }
    }

    pub fn insert(&mut self, entry: E) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.entries[slot as usize] = Some(entry);
            return slot;
        }
        self.entries.push(Some(entry));
        u32::try_from(self.entries.len() - 1).expect("tables are limited to far fewer")
    }

    pub fn remove(&mut self, slot: u32) -> Option<E> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(entry)
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> Option<&mut E> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    pub fn iter(&self) -> impl Iterator<Item = &E> {
        self.entries.iter().flatten()
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
