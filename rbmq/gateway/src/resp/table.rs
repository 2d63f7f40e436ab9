//! Channels or patterns, and who has subscribed to each.

use std::collections::HashMap;

use rbmq_wire::TopicFilter;
use slab::Slab;

use super::glob::Glob;
use crate::protocol::ConnId;

/// Who gets the messages of a channel or pattern.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subscriber {
    pub(super) conn: ConnId,
    pub(super) is_resp3: bool,
}

/// A channel or pattern that somebody has subscribed to, or is about to.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Box<[u8]>,
    /// The pattern; none: it is a channel.
    pub(super) glob: Option<Glob>,
    /// What the bus is asked for; none: no topic has such a name.
    pub(super) filter: Option<TopicFilter>,
    subscribers: Vec<Subscriber>,
    /// The places of subscribers.
    places: HashMap<ConnId, usize>,
    resp3: usize,
    /// The number of clients whose subscription is not in force yet.
    coming: usize,
}

impl Entry {
    pub(super) fn subscribers(&self) -> &[Subscriber] {
        &self.subscribers
    }

    /// The number of subscribers of a version.
    pub(super) fn count(&self, is_resp3: bool) -> usize {
        if is_resp3 { self.resp3 } else { self.subscribers.len() - self.resp3 }
    }

    /// Returns whether it is new.
    fn add(&mut self, subscriber: Subscriber) -> bool {
        if let std::collections::hash_map::Entry::Vacant(place) = self.places.entry(subscriber.conn) {
            place.insert(self.subscribers.len());
            self.resp3 += usize::from(subscriber.is_resp3);
            self.subscribers.push(subscriber);
            return true;
        }
        false
    }

    /// Returns whether it was there.
    fn remove(&mut self, conn: ConnId) -> bool {
        let Some(place) = self.places.remove(&conn) else { return false };
        let removed = self.subscribers.swap_remove(place);
        self.resp3 -= usize::from(removed.is_resp3);
        if let Some(moved) = self.subscribers.get(place) {
            self.places.insert(moved.conn, place);
        }
        true
    }

    fn set_version(&mut self, conn: ConnId, is_resp3: bool) {
        let Some(&place) = self.places.get(&conn) else { return };
        let was = std::mem::replace(&mut self.subscribers[place].is_resp3, is_resp3);
        self.resp3 = self.resp3 - usize::from(was) + usize::from(is_resp3);
    }
}

/// All channels, or all patterns. An entry has a number as long as somebody needs it.
#[derive(Debug, Default)]
pub(super) struct Table {
    by_name: HashMap<Box<[u8]>, u32>,
    entries: Slab<Entry>,
    subscriptions: usize,
}

impl Table {
    pub(super) fn find(&self, name: &[u8]) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(super) fn get(&self, number: u32) -> &Entry {
        &self.entries[number as usize]
    }

    /// The number of subscriptions of clients, with those that are not in force yet.
    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().map(|(number, entry)| (number as u32, entry))
    }

    /// A client is about to subscribe. Returns the number, and whether the entry is new.
    pub(super) fn begin(
        &mut self,
        name: &[u8],
        about: impl FnOnce() -> (Option<Glob>, Option<TopicFilter>),
    ) -> (u32, bool) {
        self.subscriptions += 1;
        if let Some(number) = self.find(name) {
            self.entries[number as usize].coming += 1;
            return (number, false);
        }
        let (glob, filter) = about();
        let (name, subscribers, places): (Box<[u8]>, _, _) = (name.into(), Vec::new(), HashMap::new());
        let entry = Entry { name: name.clone(), glob, filter, subscribers, places, resp3: 0, coming: 1 };
        let number = self.entries.insert(entry) as u32;
        self.by_name.insert(name, number);
        (number, true)
    }

    /// The client's subscription is in force, or it has gone (none). Returns the entry if nobody needs it any more.
    pub(super) fn end(&mut self, number: u32, subscriber: Option<Subscriber>) -> Option<Entry> {
        let entry = &mut self.entries[number as usize];
        entry.coming -= 1;
        if !subscriber.is_some_and(|subscriber| entry.add(subscriber)) {
            self.subscriptions -= 1;
        }
        self.remove_unused(number)
    }

    /// A client does not subscribe any more. Returns the entry if nobody needs it any more.
    pub(super) fn remove(&mut self, number: u32, conn: ConnId) -> Option<Entry> {
        self.subscriptions -= usize::from(self.entries[number as usize].remove(conn));
        self.remove_unused(number)
    }

    /// A subscriber has changed its version.
    pub(super) fn set_version(&mut self, number: u32, conn: ConnId, is_resp3: bool) {
        self.entries[number as usize].set_version(conn, is_resp3);
    }

    fn remove_unused(&mut self, number: u32) -> Option<Entry> {
        let entry = &self.entries[number as usize];
        if entry.coming > 0 || !entry.subscribers.is_empty() {
            return None;
        }
        self.by_name.remove(&entry.name);
        Some(self.entries.remove(number as usize))
    }
}
