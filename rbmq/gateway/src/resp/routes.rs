//! From messages to the clients that get them.
//!
//! ```text
//!   topic or channel ──▶ Known: channel, numbers of its entries ──▶ tables: channels, patterns, shard channels ──▶ subscribers
//!                        (found once, kept)
//! ```
//!
//! What a topic or channel means is worked out at its first message, as that costs a match with each pattern. After that a message costs a lookup,
//! or none, if it has the channel of the last one. A new pattern makes everything that is known out of date.

use std::collections::HashMap;

use rbmq_wire::{TopicFilter, TopicName};

use super::filters::Filters;
use super::glob::Glob;
use super::names::{channel_of, filter_of, topic_of};
use super::table::{Entry, Subscriber, Table};
use crate::protocol::{Bus, ConnId};

/// The most topics that are known, and the bytes of their names and of the numbers of their patterns: some 100 MB of memory in all.
const MAX_KNOWN: usize = 128 << 10;
const MAX_KNOWN_BYTES: usize = 16 << 20;

/// What a client subscribes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A channel.
    Channel,
    /// All channels that a pattern matches.
    Pattern,
    /// A channel of `SPUBLISH`.
    Shard,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// What is known of a topic.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) topic: TopicName,
    pub(super) channel: Box<[u8]>,
    /// Whether the channel has this topic. Else another topic reads as the same channel, and messages of this one come only through patterns.
    is_its_own: bool,
    /// The entries of the channel, by kind. That of patterns is not used.
    entries: [Option<u32>; 3],
    /// The patterns that match.
    pub(super) patterns: Box<[u32]>,
    /// The generation of patterns for which this is true.
    generation: u64,
}

impl Known {
    /// The entry of the channel.
    pub(super) fn entry(&self, kind: Kind) -> Option<u32> {
        self.entries[kind as usize]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Routes {
    tables: [Table; 3],
    filters: Filters,
    by_topic: HashMap<TopicName, usize>,
    by_channel: HashMap<Box<[u8]>, usize>,
    known: Vec<Known>,
    known_bytes: usize,
    /// The last one that was asked for.
    last: usize,
    generation: u64,
    pattern_bytes: usize,
}

impl Routes {
    pub(super) fn table(&self, kind: Kind) -> &Table {
        &self.tables[kind as usize]
    }

    /// The number of subscriptions of all clients.
    pub(super) fn subscriptions(&self) -> usize {
        self.tables.iter().map(Table::subscriptions).sum()
    }

    /// The bytes of memory of all patterns.
    pub(super) fn pattern_bytes(&self) -> usize {
        self.pattern_bytes
    }

    /// What a topic means.
    pub(super) fn of_topic(&mut self, topic: &TopicName) -> &Known {
        let is_last = self.known.get(self.last).is_some_and(|known| known.topic == *topic);
        if !is_last {
            self.last = match self.by_topic.get(topic) {
                Some(&index) => index,
                None => {
                    let channel = channel_of(topic.as_str());
                    let is_its_own = topic_of(&channel).as_ref() == Some(topic);
                    self.learn(topic.clone(), channel.into(), is_its_own)
                }
            };
        }
        self.up_to_date()
    }

    /// What a channel means. None: its name is too long for a topic.
    pub(super) fn of_channel(&mut self, channel: &[u8]) -> Option<&Known> {
        let is_last = |known: &Known| known.is_its_own && *known.channel == *channel;
        if !self.known.get(self.last).is_some_and(is_last) {
            self.last = match self.by_channel.get(channel) {
                Some(&index) => index,
                None => self.learn(topic_of(channel)?, channel.into(), true),
            };
        }
        Some(self.up_to_date())
    }

    fn learn(&mut self, topic: TopicName, channel: Box<[u8]>, is_its_own: bool) -> usize {
        if self.known.len() >= MAX_KNOWN || self.known_bytes >= MAX_KNOWN_BYTES {
            self.forget_known();
        }
        let index = self.known.len();
        self.known_bytes += topic.as_str().len();
        self.by_topic.insert(topic.clone(), index);
        let mut entries = [None; 3];
        if is_its_own {
            self.by_channel.insert(channel.clone(), index);
            entries = [&self.tables[0], &self.tables[1], &self.tables[2]].map(|table| table.find(&channel));
        }
        // No generation is so old.
        let (patterns, generation) = (Box::default(), u64::MAX);
        self.known.push(Known { topic, channel, is_its_own, entries, patterns, generation });
        index
    }

    fn forget_known(&mut self) {
        self.by_topic.clear();
        self.by_channel.clear();
        self.known.clear();
        self.known_bytes = 0;
    }

    fn up_to_date(&mut self) -> &Known {
        if self.known_bytes >= 2 * MAX_KNOWN_BYTES {
            // Topics that were known before have more patterns now.
            let Known { topic, channel, is_its_own, .. } = self.known.swap_remove(self.last);
            self.forget_known();
            self.last = self.learn(topic, channel, is_its_own);
        }
        let known = &mut self.known[self.last];
        if known.generation != self.generation {
            known.generation = self.generation;
            // Another topic with this channel is for the patterns whose filter selects it.
            let matches = |entry: &Entry| {
                let selects = |filter: &TopicFilter| known.is_its_own || filter.matches(&known.topic);
                let is_match = entry.glob.as_ref().is_some_and(|glob| glob.matches(&known.channel));
                is_match && entry.filter.as_ref().is_some_and(selects)
            };
            let found = self.tables[Kind::Pattern as usize].iter();
            let patterns: Box<[u32]> =
                found.filter(|(_, entry)| matches(entry)).map(|(number, _)| number).collect();
            self.known_bytes = self.known_bytes + size_of_val(&*patterns) - size_of_val(&*known.patterns);
            known.patterns = patterns;
        }
        known
    }

    /// The number of subscriptions that get a message of the channel.
    pub(super) fn receivers(&self, known: &Known, is_sharded: bool) -> usize {
        let count = |kind: Kind, number: u32| self.table(kind).get(number).subscribers().len();
        if is_sharded {
            return known.entry(Kind::Shard).map_or(0, |number| count(Kind::Shard, number));
        }
        let direct = known.entry(Kind::Channel).map_or(0, |number| count(Kind::Channel, number));
        direct + known.patterns.iter().map(|number| count(Kind::Pattern, *number)).sum::<usize>()
    }

    /// The number of subscriptions that get a message of the channel that was asked for last.
    pub(super) fn receivers_of_last(&self, is_sharded: bool) -> usize {
        self.known.get(self.last).map_or(0, |known| self.receivers(known, is_sharded))
    }

    /// The last one that was asked for, with the tables.
    pub(super) fn last(&self) -> &Known {
        &self.known[self.last]
    }
}

/// Subscriptions.
impl Routes {
    /// A client is about to subscribe. Returns the number of the entry.
    pub(super) fn begin(&mut self, kind: Kind, name: &[u8], bus: &mut dyn Bus) -> u32 {
        let about = || match kind {
            Kind::Pattern => {
                let glob = Glob::new(name);
                let filter = filter_of(&glob);
                (Some(glob), filter)
            }
            Kind::Channel | Kind::Shard => (None, topic_of(name).map(|topic| TopicFilter::from(&topic))),
        };
        let (number, is_new) = self.tables[kind as usize].begin(name, about);
        if is_new {
            let entry = self.tables[kind as usize].get(number);
            self.pattern_bytes += entry.glob.as_ref().map_or(0, Glob::memory);
            if let Some(filter) = &entry.filter {
                self.filters.hold(filter, bus);
            }
            self.changed(kind, name, Some(number));
        }
        number
    }

    /// Whether the client has to wait until the entry's filter is in force.
    pub(super) fn wait(&mut self, kind: Kind, number: u32, conn: ConnId) -> bool {
        let filter = &self.tables[kind as usize].get(number).filter;
        filter.as_ref().is_some_and(|filter| self.filters.wait(filter, conn))
    }

    /// The client waits for the entry's filter no more.
    pub(super) fn wait_no_more(&mut self, kind: Kind, number: u32, conn: ConnId) {
        if let Some(filter) = &self.tables[kind as usize].get(number).filter {
            self.filters.wait_no_more(filter, conn);
        }
    }

    /// The filter is in force, or refused. Returns who has waited, once for each time.
    pub(super) fn on_subscribed(&mut self, filter: &TopicFilter) -> Vec<ConnId> {
        self.filters.on_subscribed(filter)
    }

    /// From now on the client gets messages; none: it has gone.
    pub(super) fn end(&mut self, kind: Kind, number: u32, subscriber: Option<Subscriber>, bus: &mut dyn Bus) {
        let unused = self.tables[kind as usize].end(number, subscriber);
        self.forget(kind, unused, bus);
    }

    /// The client gets no more messages.
    pub(super) fn remove(&mut self, kind: Kind, number: u32, conn: ConnId, bus: &mut dyn Bus) {
        let unused = self.tables[kind as usize].remove(number, conn);
        self.forget(kind, unused, bus);
    }

    /// The client has changed its version.
    pub(super) fn set_version(&mut self, kind: Kind, number: u32, conn: ConnId, is_resp3: bool) {
        self.tables[kind as usize].set_version(number, conn, is_resp3);
    }

    fn forget(&mut self, kind: Kind, unused: Option<Entry>, bus: &mut dyn Bus) {
        let Some(entry) = unused else { return };
        self.pattern_bytes -= entry.glob.as_ref().map_or(0, Glob::memory);
        if let Some(filter) = &entry.filter {
            self.filters.release(filter, bus);
        }
        self.changed(kind, &entry.name, None);
    }

    fn changed(&mut self, kind: Kind, name: &[u8], number: Option<u32>) {
        if kind == Kind::Pattern {
            self.generation += 1;
        } else if let Some(&index) = self.by_channel.get(name) {
            self.known[index].entries[kind as usize] = number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::double::MemoryBus;

    #[test]
    fn patterns_of_known_topics_are_counted_and_forgotten_where_they_are_too_many() {
        let (mut routes, mut bus) = (Routes::default(), MemoryBus::default());
        let topics: [TopicName; 3] = ["a", "b", "c"].map(|topic| topic.parse().expect("a topic"));
        let ask_for_all = |routes: &mut Routes| {
            topics.iter().for_each(|topic| _ = routes.of_topic(topic));
            routes.known_bytes
        };
        assert_eq!(ask_for_all(&mut routes), 3);
        let numbers = [&b"*"[..], b"?", b"b"].map(|name| routes.begin(Kind::Pattern, name, &mut bus));
        assert_eq!(ask_for_all(&mut routes), 3 + 7 * size_of::<u32>());
        routes.known_bytes = 2 * MAX_KNOWN_BYTES;
        assert_eq!(*routes.of_topic(&topics[1]).patterns, numbers);
        assert_eq!((routes.known.len(), routes.known_bytes), (1, 1 + 3 * size_of::<u32>()));
        ask_for_all(&mut routes);
        numbers.iter().for_each(|number| routes.end(Kind::Pattern, *number, None, &mut bus));
        assert_eq!(ask_for_all(&mut routes), 3);
    }
}
