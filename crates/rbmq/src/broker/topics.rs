//! Which topic has which buffers, and who wants to know: the broker's table, without any I/O.
//!
//! ```text
//!   topic "news" ──▶ buffer 7  (publisher A, its id 1)      wanted by connections 12, 31
//!               └──▶ buffer 9  (publisher B, its id 1)
//! ```
//!
//! Several publishers of a topic have one buffer each; a subscriber gets all of them. The broker's ids come from a
//! counter, so that the ids of different publishers cannot collide.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::time::Instant;

use rocketbufs::{Bid, Epoch};

use super::session::SessionKey;
use crate::wire::{Framing, TopicName};

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
}

/// The limit on topics was reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyTopics {
    pub(super) open: usize,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Topics {
    buffers: HashMap<Bid, Buffer>,
    by_topic: BTreeMap<TopicName, Vec<Bid>>,
    wanted_by: HashMap<TopicName, BTreeSet<u64>>,
    wants: HashMap<u64, HashSet<TopicName>>,
    next_bid: Bid,
}

impl Topics {
    /// Adds a buffer and gives it the broker's id.
    pub(super) fn add(&mut self, buffer: Buffer, max_topics: usize) -> Result<Bid, TooManyTopics> {
        if !self.by_topic.contains_key(&buffer.topic) && self.by_topic.len() >= max_topics {
            return Err(TooManyTopics { open: self.by_topic.len() });
        }
        // Ids wrap after 2^32 buffers; those that are still in use then are stepped over.
        loop {
            self.next_bid = self.next_bid.wrapping_add(1);
            if !self.buffers.contains_key(&self.next_bid) {
                break;
            }
        }
        self.by_topic.entry(buffer.topic.clone()).or_default().push(self.next_bid);
        self.buffers.insert(self.next_bid, buffer);
        Ok(self.next_bid)
    }

    pub(super) fn remove(&mut self, bid: Bid) -> Option<Buffer> {
        let buffer = self.buffers.remove(&bid)?;
        if let Some(bids) = self.by_topic.get_mut(&buffer.topic) {
            bids.retain(|b| *b != bid);
            if bids.is_empty() {
                self.by_topic.remove(&buffer.topic);
            }
        }
        Some(buffer)
    }

    pub(super) fn get(&self, bid: Bid) -> Option<&Buffer> {
        self.buffers.get(&bid)
    }

    pub(super) fn get_mut(&mut self, bid: Bid) -> Option<&mut Buffer> {
        self.buffers.get_mut(&bid)
    }

    /// The buffers of a topic.
    pub(super) fn of(&self, topic: &TopicName) -> &[Bid] {
        self.by_topic.get(topic).map_or(&[], Vec::as_slice)
    }

    /// The topics that have buffers, in order, behind a name.
    pub(super) fn after(&self, name: Option<&TopicName>) -> impl Iterator<Item = (&TopicName, &[Bid])> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let topics = self.by_topic.range::<TopicName, _>((from, Bound::Unbounded));
        topics.map(|(name, bids)| (name, bids.as_slice()))
    }

    /// How many topics have buffers.
    pub(super) fn len(&self) -> usize {
        self.by_topic.len()
    }

    /// How many buffers there are.
    pub(super) fn buffers(&self) -> usize {
        self.buffers.len()
    }

    /// Buffers whose time is over.
    pub(super) fn expired(&self, now: Instant) -> Vec<Bid> {
        let over = |b: &Buffer| matches!(b.stage, Stage::Ended { until, .. } if until <= now);
        self.buffers.iter().filter(|(_, b)| over(b)).map(|(bid, _)| *bid).collect()
    }

    /// When the next buffer's time is over.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let until = |b: &Buffer| match b.stage {
            Stage::Ended { until, .. } => Some(until),
            Stage::Opening | Stage::Live => None,
        };
        self.buffers.values().filter_map(until).min()
    }

    /// A connection wants these topics too. Returns those that it did not want before, or how many it would want.
    pub(super) fn want(
        &mut self,
        conn: u64,
        topics: Vec<TopicName>,
        max: usize,
    ) -> Result<Vec<TopicName>, usize> {
        let wants = self.wants.entry(conn).or_default();
        let new: Vec<TopicName> =
            topics.into_iter().collect::<BTreeSet<_>>().into_iter().filter(|t| !wants.contains(t)).collect();
        let total = wants.len() + new.len();
        if total > max {
            return Err(total);
        }
        for topic in &new {
            wants.insert(topic.clone());
            self.wanted_by.entry(topic.clone()).or_default().insert(conn);
        }
        Ok(new)
    }

    /// The connections that want a topic.
    pub(super) fn watchers(&self, topic: &TopicName) -> impl Iterator<Item = u64> + '_ {
        self.wanted_by.get(topic).into_iter().flatten().copied()
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, conn: u64) {
        for topic in self.wants.remove(&conn).unwrap_or_default() {
            if let Some(conns) = self.wanted_by.get_mut(&topic) {
                conns.remove(&conn);
                if conns.is_empty() {
                    self.wanted_by.remove(&topic);
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::broker) fn buffer(topic: &str, in_bid: Bid) -> Buffer {
        Buffer {
            topic: topic.parse().unwrap(),
            session: SessionKey { instance: 1, client: 2 },
            in_bid,
            framing: Framing::Records,
            max_delivery_bytes: 1024,
            epoch: None,
            stage: Stage::Live,
            gone: false,
            told_subscribers: 0,
        }
    }

    #[test]
    fn several_buffers_of_a_topic_and_a_limit_on_topics() {
        let mut table = Topics::default();
        let a = table.add(buffer("x", 1), 1).unwrap();
        let b = table.add(buffer("x", 1), 1).unwrap();
        assert_ne!(a, b);
        assert_eq!(table.add(buffer("y", 2), 1), Err(TooManyTopics { open: 1 }));
        assert_eq!(table.of(&"x".parse().unwrap()), [a, b]);
        table.remove(a);
        table.remove(b);
        assert_eq!((table.len(), table.buffers()), (0, 0));
        assert!(table.add(buffer("y", 2), 1).is_ok());
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
        let name = |s: &str| s.parse::<TopicName>().unwrap();
        assert_eq!(table.want(7, vec![name("a"), name("a"), name("b")], 2).unwrap().len(), 2);
        assert_eq!(table.want(7, vec![name("a")], 2), Ok(vec![]));
        assert_eq!(table.want(7, vec![name("c")], 2), Err(3));
        assert_eq!(table.watchers(&name("a")).collect::<Vec<_>>(), [7]);
        table.forget(7);
        assert_eq!(table.watchers(&name("a")).count(), 0);
    }

    #[test]
    fn ended_buffers_expire_in_order() {
        let mut table = Topics::default();
        let now = Instant::now();
        let bid = table.add(buffer("x", 1), 9).unwrap();
        assert_eq!(table.next_expiry(), None);
        let until = now + std::time::Duration::from_secs(5);
        table.get_mut(bid).unwrap().stage = Stage::Ended { until, end: 0 };
        assert_eq!(table.next_expiry(), Some(until));
        assert!(table.expired(now).is_empty());
        assert_eq!(table.expired(until), [bid]);
    }
}
