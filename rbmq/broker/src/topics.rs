//! The directory of topics: their buffers, and the filters of subscribers. This module does no I/O.
//!
//! ```text
//!   topic "news/eu" ──▶ buffer 7  (publisher A, its id 1)      filter "news/#" of connections 12, 31
//!                  └──▶ buffer 9  (publisher B, its id 1)      filter "+/eu"   of connection 12
//! ```
//!
//! Each publisher of a topic has its own buffer. A subscriber receives all buffers of a topic, each once, however many of its
//! filters match. The broker's ids come from a counter, because the ids of different publishers can collide.
//!
//! The log of a space goes to the connections with a filter that matches some topic of the space, or is the name of the log. Topics of
//! earlier rules are not in the spaces of this broker. Those of other brokers have all topics of their patterns, as far as is known here.
//!
//! Topics and filters are in tables by their levels ([`Levels`]). The cost of a new buffer depends on its subscribers, and the
//! cost of a new filter on the topics that it matches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use rbmq_wire::Levels;
use rbmq_wire::{Framing, Space, TopicFilter, TopicName};
use rocketbufs::{Bid, Epoch};

use super::limits::{FilterLimits, TooManyFilters};
use super::rules::InSpace;
use super::session_key::{SessionKey, SourceBuffer};

/// The state of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The broker has subscribed at the publisher and waits for the answer.
    Opening,
    /// Subscribers can subscribe.
    Live,
    /// The log has ended and is still readable.
    Ended {
        /// The time of its removal.
        until: Instant,
        /// The end of the log.
        end: u64,
    },
}

/// A buffer of a topic.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) topic: TopicName,
    pub(super) session: SessionKey,
    /// The id at the publisher.
    pub(super) in_bid: Bid,
    pub(super) framing: Framing,
    pub(super) max_delivery_bytes: u64,
    pub(super) epoch: Option<Epoch>,
    pub(super) stage: Stage,
    /// The position in the order of announcements to subscribers, from 1. 0 before the announcement.
    pub(super) number: u64,
    /// The log has ended because its publisher was disconnected for too long, and was not closed.
    pub(super) gone: bool,
    /// The number of subscribers that was last reported to the publisher.
    pub(super) reported_subscribers: u32,
    /// The brokers between the publisher and this broker, from the publisher on. Empty if the publisher is connected here.
    pub(super) path: Vec<u128>,
    /// Subscribers know that the log continues in another buffer if this one ends as gone.
    pub(super) continues: bool,
    /// The same from the upstream broker.
    pub(super) continues_upstream: bool,
    /// The number of subscribers behind each subscribed broker, by its connection.
    pub(super) downstream: HashMap<u64, u32>,
    /// The log is on the disk too.
    pub(super) kept: bool,
}

impl Buffer {
    /// A buffer whose publisher has not answered yet.
    pub(super) fn opening(
        topic: TopicName,
        source: SourceBuffer,
        framing: Framing,
        max_delivery_bytes: u64,
    ) -> Self {
        Self {
            topic,
            session: source.session,
            in_bid: source.bid,
            framing,
            max_delivery_bytes,
            epoch: None,
            stage: Stage::Opening,
            number: 0,
            gone: false,
            reported_subscribers: 0,
            path: Vec::new(),
            continues: false,
            continues_upstream: false,
            downstream: HashMap::new(),
            kept: false,
        }
    }

    /// Whether no other broker forwards it.
    fn is_own(&self) -> bool {
        self.path.is_empty()
    }
}

/// The limit on topics is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyTopics {
    /// Those that are open, or that a place is kept for.
    pub(super) open: usize,
}

/// The filters of a connection.
#[derive(Debug, Default)]
struct Filters {
    all: Levels<TopicFilter>,
    patterns: usize,
}

/// Up to this number, each pattern is looked up in the table of topics. With more patterns, each topic is looked up in a table
/// of the patterns instead, which visits every topic only once.
const FEW_PATTERNS: usize = 4;

/// A topic with its buffers.
#[derive(Debug)]
struct Entry {
    topic: TopicName,
    bids: Vec<Bid>,
}

/// A space whose log has a buffer.
#[derive(Debug)]
struct SpaceEntry {
    space: Space,
    /// The patterns of earlier rules, whose topics are not in the space.
    before: Vec<TopicFilter>,
    /// The connections with a filter that wants the log, and whether one wants that of this broker too.
    conns: BTreeMap<u64, bool>,
}

impl SpaceEntry {
    fn new(space: Space, before: &[TopicFilter]) -> Self {
        Self { space, before: before.to_vec(), conns: BTreeMap::new() }
    }

    /// Whether earlier rules leave no topic of a filter to the space.
    fn is_taken(&self, filter: &TopicFilter) -> bool {
        self.before.iter().any(|before| before.covers(filter))
    }

    /// Adds filters of a connection. Returns whether it gets logs of other brokers and the log of this broker, which it did not get before.
    fn add<'f>(&mut self, conn: u64, filters: impl Iterator<Item = &'f TopicFilter>) -> [bool; 2] {
        let before = self.conns.get(&conn).copied();
        let mut wanted = before;
        if before == Some(true) {
            return [false; 2];
        }
        for filter in filters.filter(|filter| self.space.is_wanted_by(filter)) {
            wanted = Some(!self.is_taken(filter));
            if wanted == Some(true) {
                break;
            }
        }
        self.conns.extend(wanted.map(|own| (conn, own)));
        [before.is_none() && wanted.is_some(), wanted == Some(true)]
    }

    /// Whether a filter wants a buffer of the log.
    fn is_wanted_by(&self, filter: &TopicFilter, buffer: &Buffer) -> bool {
        self.space.is_wanted_by(filter) && !(buffer.is_own() && self.is_taken(filter))
    }

    /// Whether a filter is for topics of the space alone.
    fn has_all_of(&self, filter: &TopicFilter) -> bool {
        self.space.pattern().covers(filter) && !self.is_taken(filter)
    }

    /// The connections that get a buffer of the log.
    fn subscribers(&self, buffer: &Buffer) -> impl Iterator<Item = u64> {
        let own = buffer.is_own();
        self.conns.iter().filter(move |(_, wants_own)| **wants_own || !own).map(|(conn, _)| *conn)
    }

    fn is_for(&self, conn: u64, buffer: &Buffer) -> bool {
        self.conns.get(&conn).is_some_and(|wants_own| *wants_own || !buffer.is_own())
    }
}

/// The directory.
#[derive(Debug, Default)]
pub(super) struct Topics {
    buffers: HashMap<Bid, Buffer>,
    by_topic: Levels<Entry>,
    /// The connections with a filter.
    by_filter: Levels<BTreeSet<u64>>,
    by_conn: HashMap<u64, Filters>,
    /// By the names of their logs.
    spaces: BTreeMap<TopicName, SpaceEntry>,
    /// For the logs of the spaces of this broker: the patterns of earlier rules.
    before: HashMap<TopicName, Vec<TopicFilter>>,
    /// Ended buffers, by the time of their removal.
    ends: BTreeSet<(Instant, Bid)>,
    next_bid: Bid,
    /// Topics that will be opened here. A place among the topics is kept for each.
    reserved: BTreeSet<TopicName>,
    /// The number of these topics that are not open.
    reserved_not_open: usize,
    /// The number of announced buffers.
    announced: u64,
}

impl Topics {
    /// An empty directory, where these are the spaces of this broker.
    pub(super) fn with_spaces(spaces: impl Iterator<Item = InSpace>) -> Self {
        let before = spaces.map(|InSpace { space, before }| (space.log().clone(), before)).collect();
        Self { before, ..Self::default() }
    }

    /// Adds a buffer and returns its id at the broker.
    pub(super) fn add(&mut self, buffer: Buffer, max_topics: usize) -> Result<Bid, TooManyTopics> {
        let name = buffer.topic.as_str();
        if self.by_topic.get(name).is_none() {
            match self.reserved.contains(&buffer.topic) {
                true => self.reserved_not_open -= 1,
                false if self.is_full(max_topics) => {
                    return Err(self.too_many());
                }
                false => {}
            }
        }
        let bid = self.unused_bid();
        match self.by_topic.get_mut(name) {
            Some(entry) => entry.bids.push(bid),
            None => {
                let entry = Entry { topic: buffer.topic.clone(), bids: vec![bid] };
                self.by_topic.insert(name, entry);
                if let Some(space) = Space::of_log(&buffer.topic) {
                    let entry = self.space_entry(space);
                    self.spaces.insert(buffer.topic.clone(), entry);
                }
            }
        }
        self.buffers.insert(bid, buffer);
        Ok(bid)
    }

    /// Whether no topic may be added but those that are open or have a place.
    pub(super) fn is_full(&self, max_topics: usize) -> bool {
        self.places() >= max_topics
    }

    /// The topics that are open or have a place.
    fn places(&self) -> usize {
        self.by_topic.len() + self.reserved_not_open
    }

    fn too_many(&self) -> TooManyTopics {
        TooManyTopics { open: self.places() }
    }

    /// Keeps a place for a topic that is to be opened, within the limit on topics. A topic has one place, however often this is called.
    pub(super) fn reserve(&mut self, topic: &TopicName, max_topics: usize) -> Result<(), TooManyTopics> {
        if self.reserved.contains(topic) {
            return Ok(());
        }
        let is_open = self.by_topic.get(topic.as_str()).is_some();
        if !is_open && self.is_full(max_topics) {
            return Err(self.too_many());
        }
        self.reserved_not_open += usize::from(!is_open);
        self.reserved.insert(topic.clone());
        Ok(())
    }

    /// Takes all places away that are kept, until [`set_reserved`](Self::set_reserved).
    pub(super) fn take_reserved(&mut self) -> BTreeSet<TopicName> {
        self.reserved_not_open = 0;
        std::mem::take(&mut self.reserved)
    }

    /// Keeps places for these topics, and for no others.
    pub(super) fn set_reserved(&mut self, reserved: BTreeSet<TopicName>) {
        let is_open = |topic: &&TopicName| self.by_topic.get(topic.as_str()).is_some();
        self.reserved_not_open = reserved.len() - reserved.iter().filter(is_open).count();
        self.reserved = reserved;
    }

    /// Gives up the place that is kept for a topic: the topic is open, or will not be opened.
    pub(super) fn release(&mut self, topic: &TopicName) {
        if self.reserved.remove(topic) && self.by_topic.get(topic.as_str()).is_none() {
            self.reserved_not_open -= 1;
        }
    }

    fn space_entry(&self, space: Space) -> SpaceEntry {
        let before = self.before.get(space.log()).map_or(&[][..], Vec::as_slice);
        let mut entry = SpaceEntry::new(space, before);
        for (conn, filters) in &self.by_conn {
            entry.add(*conn, filters.all.values());
        }
        entry
    }

    /// An id for a buffer that belongs to no topic.
    pub(super) fn unused_bid(&mut self) -> Bid {
        // Ids wrap after 2^32 buffers. Skip the ids that are still in use.
        loop {
            self.next_bid = self.next_bid.wrapping_add(1);
            if !self.buffers.contains_key(&self.next_bid) {
                return self.next_bid;
            }
        }
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
                self.reserved_not_open += usize::from(self.reserved.contains(&buffer.topic));
                self.spaces.remove(&buffer.topic);
            }
        }
        Some(buffer)
    }

    /// The log of a buffer has ended at `end`. The buffer is to be removed at `until`.
    pub(super) fn end(&mut self, bid: Bid, end: u64, until: Instant) {
        let Some(buffer) = self.buffers.get_mut(&bid) else { return };
        if let Stage::Ended { until, .. } = buffer.stage {
            self.ends.remove(&(until, bid));
        }
        buffer.stage = Stage::Ended { until, end };
        self.ends.insert((until, bid));
    }

    /// Gives a buffer its number, before it is announced to subscribers.
    pub(super) fn assign_number(&mut self, bid: Bid) {
        if let Some(buffer) = self.buffers.get_mut(&bid) {
            self.announced += 1;
            buffer.number = self.announced;
        }
    }

    /// The number of the last announced buffer.
    pub(super) fn last_number(&self) -> u64 {
        self.announced
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

    /// The number of buffers.
    pub(super) fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// The topics after a name, in the order of their names, level by level.
    pub(super) fn after(&self, name: Option<&TopicName>) -> impl Iterator<Item = (&TopicName, &[Bid])> {
        let entries = self.by_topic.after(name.map(TopicName::as_str));
        entries.map(|entry| (&entry.topic, entry.bids.as_slice()))
    }

    /// The number of topics with buffers.
    pub(super) fn len(&self) -> usize {
        self.by_topic.len()
    }

    /// The buffers that are to be removed by now.
    pub(super) fn expired(&self, now: Instant) -> Vec<Bid> {
        self.ends.iter().take_while(|(until, _)| *until <= now).map(|(_, bid)| *bid).collect()
    }

    /// The time of the next removal.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ends.first().map(|(until, _)| *until)
    }

    /// How many of these filters a connection does not have yet, and how many of those have wildcards.
    pub(super) fn count_new(&self, conn: u64, filters: &[TopicFilter]) -> (u64, u64) {
        let known = self.by_conn.get(&conn);
        let is_new =
            |filter: &&TopicFilter| known.is_none_or(|known| known.all.get(filter.as_str()).is_none());
        let new: BTreeSet<&TopicFilter> = filters.iter().filter(is_new).collect();
        let patterns = new.iter().filter(|filter| filter.has_wildcards()).count();
        (new.len() as u64, patterns as u64)
    }

    /// Adds filters of a connection. Returns the buffers that its filters did not match before, in the order of their
    /// announcement. A buffer that is not live yet is announced later.
    pub(super) fn add_filters(
        &mut self,
        conn: u64,
        filters: Vec<TopicFilter>,
        limits: FilterLimits,
    ) -> Result<Vec<Bid>, TooManyFilters> {
        let known = self.by_conn.entry(conn).or_default();
        let new: BTreeSet<TopicFilter> =
            filters.into_iter().filter(|filter| known.all.get(filter.as_str()).is_none()).collect();
        let total = known.all.len() + new.len();
        if total > limits.filters {
            return Err(TooManyFilters::Filters(total));
        }
        let patterns = known.patterns + new.iter().filter(|filter| filter.has_wildcards()).count();
        if patterns > limits.patterns {
            return Err(TooManyFilters::Patterns(patterns));
        }
        let mut matched: BTreeSet<(u64, Bid)> = BTreeSet::new();
        let mut add = |entry: &Entry, is_new: &dyn Fn(&Buffer) -> bool| {
            let is_up = |buffer: &&Buffer| buffer.stage != Stage::Opening && is_new(buffer);
            let up = |bid: &Bid| self.buffers.get(bid).filter(is_up);
            matched.extend(entry.bids.iter().filter_map(|bid| Some((up(bid)?.number, *bid))));
        };
        each_matched(&self.by_topic, &new, &mut |entry| {
            if !known.all.any_matches(&entry.topic) {
                add(entry, &|_| true);
            }
        });
        for (log, space) in &mut self.spaces {
            let [others, own] = space.add(conn, new.iter());
            if let Some(entry) = self.by_topic.get(log.as_str()).filter(|_| others || own) {
                add(entry, &|buffer| if buffer.is_own() { own } else { others });
            }
        }
        let bids = matched.into_iter().map(|(_, bid)| bid).collect();
        known.patterns = patterns;
        for filter in new {
            self.by_filter.entry(filter.as_str()).insert(conn);
            known.all.insert(filter.clone().as_str(), filter);
        }
        Ok(bids)
    }

    /// The buffers that the filters of a connection match, in the order of their announcement, with their topics.
    pub(super) fn matched(&self, conn: u64) -> Vec<(Bid, TopicName)> {
        let filters: BTreeSet<TopicFilter> = self.filters(conn).cloned().collect();
        let mut matched: BTreeMap<(u64, Bid), TopicName> = BTreeMap::new();
        let mut add = |entry: &Entry, is_for: &dyn Fn(&Buffer) -> bool| {
            for bid in &entry.bids {
                let buffer = self.buffers.get(bid).filter(|buffer| buffer.stage != Stage::Opening);
                if let Some(buffer) = buffer.filter(|buffer| is_for(buffer)) {
                    matched.insert((buffer.number, *bid), entry.topic.clone());
                }
            }
        };
        each_matched(&self.by_topic, &filters, &mut |entry| add(entry, &|_| true));
        for (log, space) in &self.spaces {
            let entry = self.by_topic.get(log.as_str());
            entry.into_iter().for_each(|entry| add(entry, &|buffer| space.is_for(conn, buffer)));
        }
        matched.into_iter().map(|((_, bid), topic)| (bid, topic)).collect()
    }

    /// The filters of a connection.
    pub(super) fn filters(&self, conn: u64) -> impl Iterator<Item = &TopicFilter> {
        self.by_conn.get(&conn).into_iter().flat_map(|filters| filters.all.values())
    }

    /// The connections with a filter that matches the topic of a buffer, each once.
    pub(super) fn subscribers(&self, buffer: &Buffer) -> BTreeSet<u64> {
        if let Some(entry) = self.spaces.get(&buffer.topic) {
            return entry.subscribers(buffer).collect();
        }
        // The last buffer of the log is gone.
        if let Some(space) = Space::of_log(&buffer.topic) {
            return self.space_entry(space).subscribers(buffer).collect();
        }
        let mut subscribers = BTreeSet::new();
        self.by_filter.matching(&buffer.topic, &mut |conns| {
            subscribers.extend(conns);
            false
        });
        subscribers
    }

    /// Whether a filter wants a buffer.
    pub(super) fn wants(&self, filter: &TopicFilter, buffer: &Buffer) -> bool {
        match self.spaces.get(&buffer.topic) {
            Some(entry) => entry.is_wanted_by(filter, buffer),
            None => filter.matches(&buffer.topic),
        }
    }

    /// The logs that may not be read of spaces in which filters ask for topics. A filter that matches a readable topic with a log of its own,
    /// as those of other brokers and of feeds, gets that and asks for no space; a filter for more than a space gets what may be read.
    pub(super) fn withheld(
        &self,
        filters: &[TopicFilter],
        may_read: impl Fn(&TopicName) -> bool,
    ) -> Vec<TopicName> {
        let closed: Vec<_> = self.spaces.iter().filter(|(log, _)| !may_read(log)).collect();
        let (mut patterns, mut asking) = (Levels::default(), BTreeSet::new());
        for filter in filters.iter().filter(|filter| closed.iter().any(|(_, space)| space.has_all_of(filter)))
        {
            let own = self.by_topic.get(filter.as_str());
            if filter.has_wildcards() {
                patterns.insert(filter.as_str(), filter);
            }
            if !own.is_some_and(|entry| may_read(&entry.topic)) {
                asking.insert(filter);
            }
        }
        let has_own =
            |entry: &&Entry| !Space::is_reserved(&entry.topic) && patterns.any_matches(&entry.topic);
        let topics = self.by_topic.values().filter(|_| !patterns.is_empty()).filter(has_own);
        for Entry { topic, .. } in topics.filter(|entry| may_read(&entry.topic)) {
            patterns.matching(topic, &mut |filter| {
                asking.remove(*filter);
                false
            });
        }
        let asked = |space: &SpaceEntry| asking.iter().any(|filter| space.has_all_of(filter));
        closed.into_iter().filter(|(_, space)| asked(space)).map(|(log, _)| log.clone()).collect()
    }

    /// A subscribed broker is disconnected.
    pub(super) fn forget_downstream(&mut self, conn: u64) {
        for buffer in self.buffers.values_mut() {
            buffer.downstream.remove(&conn);
        }
    }

    /// A subscriber is disconnected.
    pub(super) fn forget(&mut self, conn: u64) {
        let Some(filters) = self.by_conn.remove(&conn) else { return };
        self.spaces.values_mut().for_each(|entry| _ = entry.conns.remove(&conn));
        for filter in filters.all.values().map(TopicFilter::as_str) {
            if let Some(conns) = self.by_filter.get_mut(filter) {
                conns.remove(&conn);
                if conns.is_empty() {
                    self.by_filter.remove(filter);
                }
            }
        }
    }
}

/// Visits the topics that match any of the filters, some of them more than once, without the logs of spaces.
fn each_matched<'t>(
    topics: &'t Levels<Entry>,
    filters: &BTreeSet<TopicFilter>,
    visit: &mut impl FnMut(&'t Entry),
) {
    let visit = &mut |entry: &'t Entry| {
        if !Space::is_reserved(&entry.topic) {
            visit(entry);
        }
    };
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
