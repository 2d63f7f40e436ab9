//! The buffers that a subscriber knows.

use std::collections::{HashMap, HashSet};

use rbmq_wire::Levels;
use rocketbufs::{Bid, Epoch, Policy};

use crate::wire::{Framing, TopicFilter, TopicName};

/// How far a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// More data may come.
    Open,
    /// All of its data was handed out.
    Ended,
}

/// A buffer with a subscription.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) topic: TopicName,
    pub(super) epoch: Epoch,
    pub(super) framing: Framing,
    pub(super) max_delivery_bytes: u64,
    pub(super) stage: Stage,
    pub(super) kept: Kept,
    /// The policy that was asked for.
    pub(super) policy: Policy,
}

/// Whether the broker keeps the log of a buffer on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Only the ring has it.
    No,
    /// Bytes that the ring has no more can be replayed.
    Yes,
    /// The buffer is a replay: its end is where the log goes on in the announced buffer.
    Replay,
}

/// The buffers of a connection.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    all: HashMap<Bid, Buffer>,
    /// The number of buffers of each topic.
    topics: Levels<usize>,
    by_epoch: HashMap<Epoch, Vec<Bid>>,
    /// The number of buffers that have not ended.
    open: usize,
    /// Topics with open buffers at a former broker process, of which its successor has announced nothing yet.
    expected: HashSet<TopicName>,
    /// The same for topics with a merged log.
    merged: HashSet<TopicName>,
}

impl Buffers {
    pub(super) fn get(&self, bid: Bid) -> Option<&Buffer> {
        self.all.get(&bid)
    }

    /// Whether the filter matches the topic of a buffer.
    pub(super) fn any_of(&self, filter: &TopicFilter) -> bool {
        let mut any = false;
        self.topics.matched_by(filter, &mut |_| any = true);
        any
    }

    /// The buffers of a log. A log has several buffers if the publisher was away for long: the log then continues under
    /// another id.
    pub(super) fn of_epoch(&self, epoch: Epoch) -> impl Iterator<Item = (Bid, &Buffer)> {
        let bids = self.by_epoch.get(&epoch).into_iter().flatten();
        bids.filter_map(|bid| Some((*bid, self.all.get(bid)?)))
    }

    /// Adds an open buffer.
    pub(super) fn insert(&mut self, bid: Bid, buffer: Buffer) {
        self.remove(bid);
        self.expected.remove(&buffer.topic);
        self.merged.remove(&buffer.topic);
        self.open += usize::from(buffer.stage == Stage::Open);
        *self.topics.entry(buffer.topic.as_str()) += 1;
        self.by_epoch.entry(buffer.epoch).or_default().push(bid);
        self.all.insert(bid, buffer);
    }

    /// All data of a buffer was handed out.
    pub(super) fn end(&mut self, bid: Bid) -> Option<(TopicName, Epoch)> {
        let buffer = self.all.get_mut(&bid)?;
        if std::mem::replace(&mut buffer.stage, Stage::Ended) == Stage::Open {
            self.open -= 1;
        }
        Some((buffer.topic.clone(), buffer.epoch))
    }

    pub(super) fn remove(&mut self, bid: Bid) -> Option<Buffer> {
        let buffer = self.all.remove(&bid)?;
        self.open -= usize::from(buffer.stage == Stage::Open);
        if let Some(count) = self.topics.get_mut(buffer.topic.as_str()) {
            *count -= 1;
            if *count == 0 {
                self.topics.remove(buffer.topic.as_str());
            }
        }
        if let Some(bids) = self.by_epoch.get_mut(&buffer.epoch) {
            bids.retain(|other| *other != bid);
            if bids.is_empty() {
                self.by_epoch.remove(&buffer.epoch);
            }
        }
        Some(buffer)
    }

    /// Removes the buffers of the topics that `unwanted` selects, and returns them.
    pub(super) fn remove_topics(&mut self, unwanted: impl Fn(&TopicName) -> bool) -> Vec<(Bid, Buffer)> {
        self.expected.retain(|topic| !unwanted(topic));
        self.merged.retain(|topic| !unwanted(topic));
        let unwanted = self.all.iter().filter(|(_, buffer)| unwanted(&buffer.topic));
        let bids: Vec<Bid> = unwanted.map(|(bid, _)| *bid).collect();
        bids.into_iter().filter_map(|bid| Some((bid, self.remove(bid)?))).collect()
    }

    /// The new connection leads to another broker process, with other buffers.
    pub(super) fn forget(&mut self) {
        for (_, buffer) in self.all.drain() {
            if buffer.framing == Framing::Merged {
                self.merged.insert(buffer.topic.clone());
            }
            if buffer.stage == Stage::Open {
                self.expected.insert(buffer.topic);
            }
        }
        self.topics = Levels::default();
        self.by_epoch.clear();
        self.open = 0;
    }

    /// Whether a former broker process had a merged log of this topic that has no successor yet.
    pub(super) fn had_merged(&self, topic: &TopicName) -> bool {
        self.merged.contains(topic)
    }

    /// Whether all known buffers have ended and no other one is expected.
    pub(super) fn all_ended(&self) -> bool {
        self.open == 0 && self.expected.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> TopicName {
        name.parse().unwrap()
    }

    fn filter(text: &str) -> TopicFilter {
        text.parse().unwrap()
    }

    fn buffer(name: &str, epoch: u128) -> Buffer {
        let (topic, epoch) = (topic(name), Epoch(epoch));
        Buffer {
            topic,
            epoch,
            framing: Framing::Records,
            max_delivery_bytes: 0,
            stage: Stage::Open,
            kept: Kept::No,
            policy: Policy::Block,
        }
    }

    #[test]
    fn all_ended_when_each_has() {
        let mut buffers = Buffers::default();
        buffers.insert(1, buffer("a", 1));
        buffers.insert(2, buffer("b", 2));
        assert_eq!(buffers.end(1), Some((topic("a"), Epoch(1))));
        buffers.end(1);
        assert!(!buffers.all_ended());
        buffers.insert(3, buffer("b", 2));
        assert_eq!(buffers.of_epoch(Epoch(2)).map(|(bid, _)| bid).collect::<Vec<_>>(), [2, 3]);
        buffers.remove(2);
        assert!(!buffers.all_ended() && buffers.any_of(&filter("b")) && !buffers.any_of(&filter("+/+")));
        buffers.end(3);
        assert!(buffers.all_ended());
        buffers.remove(3);
        assert!(!buffers.any_of(&filter("b")) && buffers.any_of(&filter("#")));
        buffers.remove(1);
        assert!(buffers.all_ended() && buffers.by_epoch.is_empty());
    }

    #[test]
    fn open_buffers_of_a_former_broker_are_expected_again() {
        let mut buffers = Buffers::default();
        buffers.insert(1, buffer("a", 1));
        buffers.insert(2, buffer("b", 2));
        buffers.end(1);
        buffers.forget();
        assert!(!buffers.all_ended() && !buffers.any_of(&filter("#")));
        buffers.insert(1, buffer("b", 2));
        buffers.end(1);
        assert!(buffers.all_ended());
    }

    #[test]
    fn topics_that_are_not_wanted_any_more_are_not_expected() {
        let mut buffers = Buffers::default();
        buffers.insert(1, buffer("a", 1));
        buffers.forget();
        buffers.insert(2, buffer("b", 2));
        buffers.insert(3, buffer("c", 3));
        let removed = buffers.remove_topics(|topic| topic.as_str() != "b");
        assert_eq!(removed.iter().map(|(bid, _)| *bid).collect::<Vec<_>>(), [3]);
        assert!(!buffers.all_ended() && buffers.get(2).is_some());
        buffers.end(2);
        assert!(buffers.all_ended());
    }
}
