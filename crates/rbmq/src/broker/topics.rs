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

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use rocketbufs::{Bid, Epoch};

use super::session::SessionKey;
use super::wants::{MayWant, WantsTooMuch};
use crate::levels::Levels;
use crate::wire::{Framing, TopicFilter, TopicName};

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

    /// A connection wants what these filters match too. Returns the buffers that it did not want before, by topic.
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
        let mut matched: BTreeMap<&TopicName, &[Bid]> = BTreeMap::new();
        each_matched(&self.by_topic, &new, &mut |entry| {
            if !matched.contains_key(&entry.topic) && !wants.filters.any_matches(&entry.topic) {
                matched.insert(&entry.topic, &entry.bids);
            }
        });
        let bids = matched.into_values().flatten().copied().collect();
        wants.patterns = patterns;
        for filter in new {
            self.wanted_by.entry(filter.as_str()).insert(conn);
            wants.filters.insert(filter.clone().as_str(), filter);
        }
        Ok(bids)
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
pub(super) mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    pub(in crate::broker) fn buffer(topic: &str, in_bid: Bid) -> Buffer {
        let (topic, from) = (topic.parse().unwrap(), (SessionKey { instance: 1, client: 2 }, in_bid));
        Buffer { stage: Stage::Live, ..Buffer::opening(topic, from, (Framing::Records, 1024)) }
    }

    #[test]
    fn several_buffers_of_a_topic_and_a_limit_on_topics() {
        let mut table = Topics::default();
        let a = table.add(buffer("x", 1), 1).unwrap();
        let b = table.add(buffer("x", 1), 1).unwrap();
        assert_ne!(a, b);
        assert_eq!(table.add(buffer("y", 2), 1), Err(TooManyTopics { open: 1 }));
        assert_eq!(table.after(None).collect::<Vec<_>>(), [(&"x".parse().unwrap(), [a, b].as_slice())]);
        table.remove(a);
        table.remove(b);
        assert_eq!((table.len(), table.buffers()), (0, 0));
        assert!(table.add(buffer("y", 2), 1).is_ok());
    }

    fn filter(text: &str) -> TopicFilter {
        text.parse().unwrap()
    }

    fn may(filters: usize) -> MayWant {
        MayWant { filters, patterns: filters }
    }

    #[test]
    fn topics_are_listed_by_name_from_anywhere() {
        let mut table = Topics::default();
        for name in ["c", "a", "b"] {
            table.add(buffer(name, 1), 9).unwrap();
        }
        let after = |name: Option<&str>| {
            let name = name.map(|name| name.parse().unwrap());
            table.after(name.as_ref()).map(|(topic, _)| topic.to_string()).collect::<String>()
        };
        assert_eq!((after(None), after(Some("a"))), ("abc".into(), "bc".into()));
        // The name need not exist any more.
        assert_eq!((after(Some("aa")), after(Some("c"))), ("bc".into(), String::new()));
    }

    #[test]
    fn wants_are_counted_once_and_forgotten() {
        let mut table = Topics::default();
        let b = table.add(buffer("b", 1), 9).unwrap();
        assert_eq!(table.want(7, vec![filter("a"), filter("a"), filter("b")], may(2)), Ok(vec![b]));
        assert_eq!(table.want(7, vec![filter("b")], may(2)), Ok(vec![]));
        assert_eq!(table.want(7, vec![filter("+")], may(2)), Err(WantsTooMuch::Filters(3)));
        assert_eq!(table.watchers(&"a".parse().unwrap()), BTreeSet::from([7]));
        table.forget(7);
        assert!(table.watchers(&"a".parse().unwrap()).is_empty());
        assert_eq!(table.wanted_by.len(), 0);
    }

    #[test]
    fn patterns_have_a_limit_of_their_own() {
        let mut table = Topics::default();
        let may = MayWant { filters: 9, patterns: 2 };
        assert_eq!(table.want(7, ["a", "b", "a/+", "a/+"].map(filter).into(), may), Ok(vec![]));
        let refused = table.want(7, ["c/#", "d", "+"].map(filter).into(), may);
        assert_eq!(refused, Err(WantsTooMuch::Patterns(3)));
        assert_eq!(table.want(7, ["c", "c/#"].map(filter).into(), may), Ok(vec![]));
        assert_eq!(table.want(8, ["c/#", "+"].map(filter).into(), may), Ok(vec![]));
    }

    /// Each of the patterns would have to look at every topic, though none matches any.
    #[test]
    fn thousands_of_patterns_beside_thousands_of_topics() {
        let mut table = Topics::default();
        let bids: Vec<Bid> =
            (0..10_000).map(|n| table.add(buffer(&format!("{n}/a/b"), 1), 10_000).unwrap()).collect();
        let patterns = (0..10_000).map(|n| filter(&format!("+/{n}/b"))).collect();
        assert_eq!(table.want(7, patterns, may(20_000)), Ok(vec![]));
        let patterns = ["+/a/0", "+/a/1", "+/a/2", "+/a/3", "+/a/b"].map(filter);
        assert_eq!(table.want(7, patterns.into(), may(20_000)).unwrap().len(), bids.len());
    }

    #[test]
    fn filters_that_overlap_want_each_buffer_once() {
        let mut table = Topics::default();
        let [x, y] = ["a/x", "a/y"].map(|topic| table.add(buffer(topic, 1), 9).unwrap());
        let x2 = table.add(buffer("a/x", 2), 9).unwrap();
        table.add(buffer("$a/x", 3), 9).unwrap();
        assert_eq!(table.want(7, vec![filter("a/x"), filter("+/x")], may(9)), Ok(vec![x, x2]));
        assert_eq!(table.want(7, vec![filter("#"), filter("a/#")], may(9)), Ok(vec![y]));
        assert_eq!(table.want(8, vec![filter("#")], may(9)), Ok(vec![x, x2, y]));
        assert_eq!(table.watchers(&"a/x".parse().unwrap()), BTreeSet::from([7, 8]));
        assert!(table.watchers(&"$a/x".parse().unwrap()).is_empty());
    }

    #[test]
    fn ended_buffers_expire_in_order() {
        let mut table = Topics::default();
        let now = Instant::now();
        let bid = table.add(buffer("x", 1), 9).unwrap();
        let other = table.add(buffer("x", 2), 9).unwrap();
        assert_eq!(table.next_expiry(), None);
        let until = now + Duration::from_secs(5);
        table.end(bid, 0, until);
        table.end(other, 0, until + Duration::from_secs(1));
        assert_eq!(table.next_expiry(), Some(until));
        assert!(table.expired(now).is_empty());
        assert_eq!(table.expired(until), [bid]);
        table.remove(bid);
        assert!(table.expired(until).is_empty());
        table.remove(other);
        assert_eq!(table.next_expiry(), None);
    }

    /// What a table is asked to do.
    #[derive(Debug, Clone)]
    enum Step {
        Add(String),
        Remove(usize),
        Want(u64, Vec<String>),
        Forget(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let name = || proptest::collection::vec("a|b|c|\\$a", 1..4).prop_map(|levels| levels.join("/"));
        let filter = || {
            let levels = proptest::collection::vec(r"a|b|\$a|\+", 0..3);
            (levels, "[a#+]").prop_map(|(mut levels, last)| {
                levels.push(last);
                levels.join("/")
            })
        };
        prop_oneof![
            3 => name().prop_map(Step::Add),
            1 => any::<usize>().prop_map(Step::Remove),
            2 => (0..3_u64, proptest::collection::vec(filter(), 1..12)).prop_map(|(c, f)| Step::Want(c, f)),
            1 => (0..3_u64).prop_map(Step::Forget),
        ]
    }

    proptest! {
        /// Whatever happens, every subscriber is told of exactly the buffers that its filters match, each once.
        #[test]
        fn everybody_is_told_of_what_a_plain_list_says(steps in proptest::collection::vec(step(), 1..60)) {
            let mut table = Topics::default();
            let mut topics: BTreeMap<Bid, TopicName> = BTreeMap::new();
            let mut wants: BTreeMap<u64, BTreeSet<TopicFilter>> = BTreeMap::new();
            let mut told: BTreeSet<(u64, Bid)> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Add(name) => {
                        let bid = table.add(buffer(&name, 1), 99).unwrap();
                        topics.insert(bid, name.parse().unwrap());
                        for conn in table.watchers(&topics[&bid]) {
                            prop_assert!(told.insert((conn, bid)));
                        }
                    }
                    Step::Remove(n) => {
                        let Some(bid) = topics.keys().nth(n % topics.len().max(1)).copied() else { continue };
                        prop_assert_eq!(table.remove(bid).map(|b| b.topic), topics.remove(&bid));
                        told.retain(|(_, b)| *b != bid);
                    }
                    Step::Want(conn, filters) => {
                        let filters: Vec<TopicFilter> = filters.iter().map(|text| filter(text)).collect();
                        for bid in table.want(conn, filters.clone(), may(999)).unwrap() {
                            prop_assert!(told.insert((conn, bid)), "{} is told of {} twice", conn, bid);
                        }
                        wants.entry(conn).or_default().extend(filters);
                    }
                    Step::Forget(conn) => {
                        table.forget(conn);
                        wants.remove(&conn);
                        told.retain(|(c, _)| *c != conn);
                    }
                }
                let meant = |conn: &u64, topic| wants[conn].iter().any(|filter| filter.matches(topic));
                let expected: BTreeSet<(u64, Bid)> = wants
                    .keys()
                    .flat_map(|conn| topics.iter().map(move |(bid, topic)| (*conn, *bid, topic)))
                    .filter(|(conn, _, topic)| meant(conn, topic))
                    .map(|(conn, bid, _)| (conn, bid))
                    .collect();
                prop_assert_eq!(&told, &expected);
            }
        }
    }
}
