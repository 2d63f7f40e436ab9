//! What is to be journaled: sessions and retained messages note their changes, and the journal takes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use locks::Mutex;

use super::entry::Entry;
use crate::mqtt::message::Stored;

/// Memory that is kept from one round to the next.
const KEPT_BYTES: usize = 1 << 20;

/// Changes that are not in the journal yet. Clones share them.
#[derive(Debug, Clone)]
pub(in crate::mqtt) struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug)]
struct Noted {
    bytes: Vec<u8>,
    /// The number of the first message since the last snapshot. Those with a smaller number are not in the journal any more.
    first: u64,
    next: u64,
    /// Nothing is noted: a snapshot follows, and has everything.
    is_paused: bool,
}

impl Notes {
    /// Without a snapshot, which has to be the first.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Noted { bytes: Vec::new(), first: 1, next: 1, is_paused: true })))
    }

    /// Notes a change.
    pub(in crate::mqtt) fn put(&self, entry: Entry<'_>) {
        let mut noted = self.0.lock();
        if !noted.is_paused {
            entry.put(&mut noted.bytes);
        }
    }

    /// The number of a message, which is noted before the first entry that names it.
    pub(in crate::mqtt) fn message(&self, stored: &Stored) -> u64 {
        let mut noted = self.0.lock();
        // One thread has the sessions: only the compiler has to know that no two write it.
        let known = stored.number.load(Ordering::Relaxed);
        if known >= noted.first {
            return known;
        }
        let number = noted.next;
        noted.next += 1;
        stored.number.store(number, Ordering::Relaxed);
        if !noted.is_paused {
            let Stored { topic, attributes, payload, .. } = stored;
            Entry::Message { number, topic: topic.as_str(), attributes, payload }.put(&mut noted.bytes);
        }
        number
    }

    /// The number of bytes.
    pub(super) fn len(&self) -> usize {
        self.0.lock().bytes.len()
    }

    /// Takes what was noted.
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().bytes)
    }

    /// Gives memory back that was taken.
    pub(super) fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut noted = self.0.lock();
        if noted.bytes.is_empty() && bytes.capacity() <= KEPT_BYTES {
            noted.bytes = bytes;
        }
    }

    /// A snapshot begins: what was noted before is in it.
    pub(super) fn begin_snapshot(&self) {
        let mut noted = self.0.lock();
        noted.bytes.clear();
        noted.first = noted.next;
        noted.is_paused = false;
    }

    /// Forgets what was noted, and notes nothing until the next snapshot.
    pub(super) fn pause(&self) {
        let mut noted = self.0.lock();
        noted.bytes = Vec::new();
        noted.is_paused = true;
    }
}
