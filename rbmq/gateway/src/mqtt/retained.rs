//! Retained messages: the last one of each topic, for new subscribers.

use std::sync::Arc;

use rbmq_wire::{Levels, TopicFilter, TopicName};

use super::journal::Notes;
use super::journal::entry::Entry;
use super::message::Stored;
use super::settings::Settings;

/// A retained message.
#[derive(Debug, Clone)]
pub(super) struct Retained {
    pub(super) message: Arc<Stored>,
    pub(super) qos: u8,
}

/// The retained messages of a gateway.
#[derive(Debug, Default)]
pub(super) struct RetainedMessages {
    messages: Levels<Retained>,
    bytes: usize,
    /// No message becomes worthless before, in ms since 1970; none: none does.
    earliest: Option<u64>,
    /// When worthless messages are searched again at the earliest.
    next_search: u64,
    /// Where changes are noted, if there is a journal.
    notes: Option<Notes>,
}

/// What a message takes beside its contents, about.
const ENTRY: usize = 100;

/// The time between two searches, in ms: who fills the table makes them no more frequent.
const SEARCH_EVERY: u64 = 1000;

impl RetainedMessages {
    /// The number of messages.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The bytes of all messages, and of the table, about.
    pub(super) fn bytes_with_entries(&self) -> usize {
        self.bytes + ENTRY * self.messages.len()
    }

    /// Whether a message of so many bytes has room.
    pub(super) fn has_room(&self, topic: &TopicName, bytes: usize, settings: &Settings) -> bool {
        let old = self.messages.get(topic.as_str());
        let rest = self.bytes - old.map_or(0, |old| old.message.bytes());
        let count = self.messages.len() - usize::from(old.is_some());
        count < settings.max_retained && rest + bytes <= settings.max_retained_bytes
    }

    /// Keeps a message in place of the former one.
    pub(super) fn put(&mut self, retained: Retained) {
        self.note(&retained);
        self.bytes += retained.message.bytes();
        let expiry = retained.message.expiry();
        self.earliest = self.earliest.into_iter().chain(expiry).min();
        let topic = retained.message.topic.clone();
        if let Some(old) = self.messages.insert(topic.as_str(), retained) {
            self.bytes -= old.message.bytes();
        }
    }

    /// Forgets the message of a topic.
    pub(super) fn remove(&mut self, topic: &TopicName) {
        if let Some(old) = self.messages.remove(topic.as_str()) {
            self.bytes -= old.message.bytes();
            if let Some(notes) = &self.notes {
                notes.put(Entry::Forgotten { topic: topic.as_str() });
            }
        }
    }

    /// Has changes noted from now on.
    pub(super) fn keep(&mut self, notes: &Notes) {
        self.notes = Some(notes.clone());
    }

    /// All messages.
    pub(super) fn all(&self) -> impl Iterator<Item = &Retained> {
        self.messages.values()
    }

    /// Notes a message, which is new or part of a snapshot.
    pub(super) fn note(&self, retained: &Retained) {
        if let Some(notes) = &self.notes {
            let message = notes.message(&retained.message);
            notes.put(Entry::Retained { message, qos: retained.qos });
        }
    }

    /// Notes a message for a snapshot, unless another is in its place by now, or none.
    pub(super) fn note_if_there(&self, message: Option<&Arc<Stored>>) {
        let found = message.and_then(|message| self.messages.get(message.topic.as_str()));
        if let Some(found) = found.filter(|found| message.is_some_and(|it| Arc::ptr_eq(&found.message, it))) {
            self.note(found);
        }
    }

    /// The messages that a filter matches.
    pub(super) fn matching(&self, filter: &TopicFilter) -> Vec<Retained> {
        let mut found = Vec::new();
        self.messages.matched_by(filter, &mut |retained| found.push(retained.clone()));
        found
    }

    /// The clock was set: the next search does not wait.
    pub(super) fn on_clock_set(&mut self) {
        self.next_search = 0;
    }

    /// Forgets what is worthless, if there can be some.
    pub(super) fn expire(&mut self, unix_ms: u64) {
        if unix_ms < self.next_search || self.earliest.is_none_or(|at| at > unix_ms) {
            return;
        }
        let (mut expired, mut earliest) = (Vec::new(), None);
        for Retained { message, .. } in self.messages.values() {
            match message.expiry() {
                Some(at) if at <= unix_ms => expired.push(message.topic.clone()),
                at => earliest = earliest.into_iter().chain(at).min(),
            }
        }
        expired.iter().for_each(|topic| self.remove(topic));
        (self.earliest, self.next_search) = (earliest, unix_ms + SEARCH_EVERY);
    }
}
