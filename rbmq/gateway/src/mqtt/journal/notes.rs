//! What is to be journaled: sessions and retained messages note their changes, and the journal takes them.

use std::collections::HashSet;
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
    /// The number of the next message.
    next: u64,
    /// The messages that are in the journal, behind the beginning of the last snapshot.
    known: Known,
    /// Those that are behind the beginning of a snapshot that is being written in steps, if there is one.
    joined: Option<Known>,
    /// Nothing is noted: a snapshot follows, and has everything.
    is_paused: bool,
}

/// Messages by their numbers: those from a number on, and some of the others.
#[derive(Debug)]
struct Known {
    first: u64,
    others: HashSet<u64>,
}

impl Known {
    fn since(first: u64) -> Self {
        Self { first, others: HashSet::new() }
    }

    fn has(&self, number: u64) -> bool {
        number >= self.first || self.others.contains(&number)
    }
}

impl Notes {
    /// Without a snapshot, which has to be the first.
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Noted {
            bytes: Vec::new(),
            next: 1,
            known: Known::since(1),
            joined: None,
            is_paused: true,
        })))
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
        let mut number = stored.number.load(Ordering::Relaxed);
        let is_joined = |noted: &Noted| noted.joined.as_ref().is_none_or(|joined| joined.has(number));
        if !noted.known.has(number) {
            number = noted.next;
            noted.next += 1;
            stored.number.store(number, Ordering::Relaxed);
        } else if is_joined(&noted) {
            return number;
        } else if let Some(joined) = &mut noted.joined {
            joined.others.insert(number);
        }
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
        (noted.known, noted.joined) = (Known::since(noted.next), None);
        noted.is_paused = false;
    }

    /// A snapshot begins that is written in steps. A message keeps its number, and is noted again when an entry behind this names it first.
    pub(super) fn join_snapshot(&self) {
        let mut noted = self.0.lock();
        noted.joined = Some(Known::since(noted.next));
    }

    /// That snapshot is complete: what is before it is not in the journal any more.
    pub(super) fn end_snapshot(&self) {
        let mut noted = self.0.lock();
        if let Some(joined) = noted.joined.take() {
            noted.known = joined;
        }
    }

    /// Forgets what was noted, and notes nothing until the next snapshot.
    pub(super) fn pause(&self) {
        let mut noted = self.0.lock();
        noted.bytes = Vec::new();
        noted.joined = None;
        noted.is_paused = true;
    }
}
