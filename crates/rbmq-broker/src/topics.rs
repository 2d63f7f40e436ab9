//! Which topic has which buffers, and who wants to know: the broker's table, without any I/O.
//!
//! ```text
//!   topic "news/eu" ──▶ buffer 7  (publisher A, its id 1)      filter "news/#" of connections 12, 31
//!                  └──▶ buffer 9  (publisher B, its id 1)      filter "+/eu"   of connection 12
//! ```
//!
//! Several publishers of a topic have one buffer each; a subscriber gets all of them, each once, however many of its
//! filters match. The broker's ids come from a counter, so that the ids of different publishers cannot collide.
//!
//! Topics and filters are in tables by their levels (`levels.rs`): a buffer that appears costs what its subscribers
//! are, a filter what it matches, however much else there is.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use rbmq_wire::Levels;
use rbmq_wire::{Framing, TopicFilter, TopicName};
use rocketbufs::{Bid, Epoch};

use super::session::SessionKey;
use super::wants::{MayWant, WantsTooMuch};

/// How far a buffer's life has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Asked for at the publisher; its epoch is not known yet.
    Opening,
    /// Subscribers can have it.
    Live,
    /// Its log has ended; it is readable until then.
    Ended {
        /// When it is removed.
        until: Instant,
        /// Where the log ended.
        end: u64,
    },
}

/// A buffer of a topic.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) topic: TopicName,
    pub(super) session: SessionKey,
    /// The publisher's id.
    pub(super) in_bid: Bid,
    pub(super) framing: Framing,
    pub(super) max_delivery_bytes: u64,
    pub(super) epoch: Option<Epoch>,
    pub(super) stage: Stage,
    /// How many were told to subscribers before it, and it; 0 while it is not.
    pub(super) number: u64,
    /// It ended because its publisher was away for too long, not because it was closed.
    pub(super) gone: bool,
    /// The number of subscribers that its publisher was told last.
    pub(super) told_subscribers: u32,
    /// The brokers that it has passed, the one next to the publisher first; none if the publisher is here.
    pub(super) path: Vec<u128>,
    /// Subscribers were told that, if its publisher is gone, its log goes on in another buffer.
    pub(super) continues: bool,
    /// The broker that it comes from told so.
    pub(super) continues_there: bool,
    /// How many subscribers brokers have that subscribe here, by their connections.
    pub(super) behind: HashMap<u64, u32>,
}

impl Buffer {
    /// A buffer of which nothing is known yet but what it was asked for with.
    pub(super) fn opening(
        topic: TopicName,
        (session, in_bid): (SessionKey, Bid),
        (framing, max_delivery_bytes): (Framing, u64),
    ) -> Self {
        Self {
            topic,
            session,
            in_bid,
            framing,
            max_delivery_bytes,
            epoch: None,
            stage: Stage::Opening,
            number: 0,
            gone: false,
            told_subscribers: 0,
            path: Vec::new(),
            continues: false,
            continues_there: false,
            behind: HashMap::new(),
        }
    }
}

/// The limit on topics was reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyTopics {
    pub(super) open: usize,
}

/// What a connection wants.
#[derive(Debug, Default)]
struct Wants {
    filters: Levels<TopicFilter>,
    patterns: usize,
}

/// So many patterns are looked for among the topics one by one; of more each topic is looked for among them, which costs
/// the topics once and not once for each pattern.
const FEW_PATTERNS: usize = 4;

/// A topic that has buffers.
#[derive(Debug)]
struct Entry {
    topic: TopicName,
    bids: Vec<Bid>,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Topics {
    buffers: HashMap<Bid, Buffer>,
    by_topic: Levels<Entry>,
    /// The connections that want what a filter matches.
    wanted_by: Levels<BTreeSet<u64>>,
    /// The filters of a connection.
    wants: HashMap<u64, Wants>,
    /// Ended buffers by the time at which they are removed.
    ends: BTreeSet<(Instant, Bid)>,
    next_bid: Bid,
    /// How many buffers were told to subscribers so far.
    told: u64,
}

impl Topics {
    /// Adds a buffer and gives it the broker's id.
    pub(super) fn add(&mut self, buffer: Buffer, max_topics: usize) -> Result<Bid, TooManyTopics> {
        let name = buffer.topic.as_str();
        if self.by_topic.len() >= max_topics && self.by_topic.get(name).is_none() {
            return Err(TooManyTopics { open: self.by_topic.len() });
        }
        // Ids wrap after 2^32 buffers; those that are still in use then are stepped over.
        loop {
            self.next_bid = self.next_bid.wrapping_add(1);
            if !self.buffers.contains_key(&self.next_bid) {
                break;
            }
        }
        let bid = self.next_bid;
        match self.by_topic.get_mut(name) {
            Some(entry) => entry.bids.push(bid),
            None => {
                let entry = Entry { topic: buffer.topic.clone(), bids: vec![bid] };
                self.by_topic.insert(name, entry);
            }
        }
        self.buffers.insert(bid, buffer);
        Ok(bid)
    }

    pub(super) fn remove(&mut self, bid: Bid) -> Option<Buffer> {
        let buffer = self.buffers.remove(&bid)?;
        if let Stage::Ended { until, .. } = buffer.stage {
            self.ends.remove(&(until, bid));
        }
        let name = buffer.topic.as_str();
        if let Some(entry) = self.by_topic.get_mut(name) {
            entry.bids.retain(|b| *b != bid);
            if entry.bids.is_empty() {
                self.by_topic.remove(name);
            }
        }
        Some(buffer)
    }

    /// A buffer's log has ended at `end`; it is removed at `until`.
    pub(super) fn end(&mut self, bid: Bid, end: u64, until: Instant) {
        let Some(buffer) = self.buffers.get_mut(&bid) else { return };
        if let Stage::Ended { until, .. } = buffer.stage {
            self.ends.remove(&(until, bid));
        }
        buffer.stage = Stage::Ended { until, end };
        self.ends.insert((until, bid));
    }

    /// A buffer is told to subscribers from now on.
    pub(super) fn tell(&mut self, bid: Bid) {
        if let Some(buffer) = self.buffers.get_mut(&bid) {
            self.told += 1;
            buffer.number = self.told;
        }
    }

    /// The number of the buffer that was told last.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    pub(super) fn get(&self, bid: Bid) -> Option<&Buffer> {
        self.buffers.get(&bid)
    }

    pub(super) fn get_mut(&mut self, bid: Bid) -> Option<&mut Buffer> {
        self.buffers.get_mut(&bid)
    }

    /// The buffers of a topic.
    pub(super) fn of(&self, topic: &TopicName) -> &[Bid] {
        self.by_topic.get(topic.as_str()).map_or(&[], |entry| &entry.bids)
    }

    /// How many buffers there are.
    pub(super) fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// The topics that have buffers, by name level by level, behind a name.
    pub(super) fn after(&self, name: Option<&TopicName>) -> impl Iterator<Item = (&TopicName, &[Bid])> {
        let entries = self.by_topic.after(name.map(TopicName::as_str));
        entries.map(|entry| (&entry.topic, entry.bids.as_slice()))
    }

    /// How many topics have buffers.
    pub(super) fn len(&self) -> usize {
        self.by_topic.len()
    }

    /// Buffers whose time is over.
    pub(super) fn expired(&self, now: Instant) -> Vec<Bid> {
        self.ends.iter().take_while(|(until, _)| *until <= now).map(|(_, bid)| *bid).collect()
    }

    /// When the next buffer's time is over.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// A connection wants what these filters match too. Returns the buffers that it did not want before, in the order in
    /// which they came. Those that are not up yet are told when they are.
    pub(super) fn want(
        &mut self,
        conn: u64,
        filters: Vec<TopicFilter>,
        may: MayWant,
    ) -> Result<Vec<Bid>, WantsTooMuch> {
        let wants = self.wants.entry(conn).or_default();
        let new: BTreeSet<TopicFilter> =
            filters.into_iter().filter(|filter| wants.filters.get(filter.as_str()).is_none()).collect();
        let total = wants.filters.len() + new.len();
        if total > may.filters {
            return Err(WantsTooMuch::Filters(total));
        }
        let patterns = wants.patterns + new.iter().filter(|filter| filter.has_wildcards()).count();
        if patterns > may.patterns {
            return Err(WantsTooMuch::Patterns(patterns));
        }
        let mut matched: BTreeSet<(u64, Bid)> = BTreeSet::new();
        each_matched(&self.by_topic, &new, &mut |entry| {
            if !wants.filters.any_matches(&entry.topic) {
                let up = |bid: &Bid| self.buffers.get(bid).filter(|buffer| buffer.stage != Stage::Opening);
                matched.extend(entry.bids.iter().filter_map(|bid| Some((up(bid)?.number, *bid))));
            }
        });
        let bids = matched.into_iter().map(|(_, bid)| bid).collect();
        wants.patterns = patterns;
        for filter in new {
            self.wanted_by.entry(filter.as_str()).insert(conn);
            wants.filters.insert(filter.clone().as_str(), filter);
        }
        Ok(bids)
    }

    /// The filters of a connection.
    pub(super) fn filters(&self, conn: u64) -> impl Iterator<Item = &TopicFilter> {
        self.wants.get(&conn).into_iter().flat_map(|wants| wants.filters.values())
    }

    /// The connections that want a topic, each once.
    pub(super) fn watchers(&self, topic: &TopicName) -> BTreeSet<u64> {
        let mut watchers = BTreeSet::new();
        self.wanted_by.matching(topic, &mut |conns| {
            watchers.extend(conns);
            false
        });
        watchers
    }

    /// A broker that subscribed here is gone.
    pub(super) fn forget_broker(&mut self, conn: u64) {
        for buffer in self.buffers.values_mut() {
            buffer.behind.remove(&conn);
        }
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, conn: u64) {
        let Some(wants) = self.wants.remove(&conn) else { return };
        for filter in wants.filters.values().map(TopicFilter::as_str) {
            if let Some(conns) = self.wanted_by.get_mut(filter) {
                conns.remove(&conn);
                if conns.is_empty() {
                    self.wanted_by.remove(filter);
                }
            }
        }
    }
}

/// Visits the topics that any of these filters matches, some of them more than once.
fn each_matched<'t>(
    topics: &'t Levels<Entry>,
    filters: &BTreeSet<TopicFilter>,
    visit: &mut impl FnMut(&'t Entry),
) {
    let (patterns, names): (Vec<_>, Vec<_>) = filters.iter().partition(|filter| filter.has_wildcards());
    names.iter().filter_map(|name| topics.get(name.as_str())).for_each(&mut *visit);
    if patterns.len() <= FEW_PATTERNS {
        return patterns.iter().for_each(|pattern| topics.matched_by(pattern, visit));
    }
    let mut table = Levels::default();
    for pattern in patterns {
        table.insert(pattern.as_str(), ());
    }
    topics.values().filter(|entry| table.any_matches(&entry.topic)).for_each(visit);
}

#[cfg(test)]
pub(super) mod tests;
