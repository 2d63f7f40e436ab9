//! The buffers that the broker has announced, and how far each of them is.
//!
//! ```text
//!   TOPIC ─┬─▶ Next ──────────┐  when the buffer ends from which its log is received
//!          ├─▶ Asked ◀────────┤  the log is kept
//!          │     ├─ REPLAYED: the ring has everything ─▶ Open
//!          │     └─ REPLAYED: a replay ─▶ Next, and the replay is Open
//!          └─▶ Open ◀─────────┘
//!                └─▶ Closed, Ended, or Awaited ─▶ Ended
//! ```

use std::collections::{HashMap, HashSet};

use rbmq_wire::Levels;
use rocketbufs::{Bid, Epoch, Policy, Position};

use super::effects::Begin;
use crate::wire::{Framing, Space, Topic, TopicFilter, TopicName};

/// The most announced buffers that are remembered although no filter matches them.
pub(super) const MAX_UNWANTED: usize = 65_536;

/// How far a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its log is still received from another buffer. Bytes that are under way must not come twice.
    Next,
    /// The broker was asked where to begin in a kept log.
    Asked,
    /// Subscribed with this policy and beginning. More data may come.
    Open(Policy, Begin),
    /// All of its data was handed out, up to this position. Its log continues in a buffer that is not announced yet.
    Awaited(Position),
    /// All of its data was handed out.
    Ended,
    /// The same, and the log is complete.
    Closed,
}

impl Stage {
    /// Whether the log has not ended here.
    fn is_pending(self) -> bool {
        matches!(self, Self::Asked | Self::Open(..) | Self::Awaited(_))
    }
}

/// A buffer of a topic that a filter matches.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) topic: Topic,
    pub(super) stage: Stage,
    /// The buffer is a replay, for this subscriber alone: its end is where the log goes on in the announced buffer.
    pub(super) replay: bool,
    /// Whether the log continues in another buffer if its publisher is gone, as the broker says.
    pub(super) continues: bool,
}

impl Buffer {
    pub(super) fn new(topic: Topic, stage: Stage) -> Self {
        Self { topic, stage, replay: false, continues: false }
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.topic.epoch)
    }

    pub(super) fn name(&self) -> &TopicName {
        &self.topic.topic
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(..))
    }

    /// Whether the rIn has a subscription, which may be over.
    pub(super) fn is_subscribed(&self) -> bool {
        !matches!(self.stage, Stage::Next | Stage::Asked)
    }

    /// Whether the log is received from here, now or as soon as the broker has answered.
    pub(super) fn is_present(&self) -> bool {
        self.is_open() || self.stage == Stage::Asked
    }
}

/// The buffers of a connection.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    all: HashMap<Bid, Buffer>,
    /// The number of buffers of each topic.
    topics: Levels<usize>,
    /// The number of buffers of the log of each space.
    spaces: HashMap<Space, usize>,
    /// In the order of the announcements.
    by_epoch: HashMap<Epoch, Vec<Bid>>,
    /// The number of buffers whose logs have not ended.
    pending: usize,
    /// Announced buffers that no filter matches any more: the broker does not announce them again over this connection.
    unwanted: HashMap<Bid, Buffer>,
    /// Buffers that wait for something that the broker has said over a former connection only, and whether it has announced them again.
    unconfirmed: HashMap<Bid, bool>,
    /// Topics with logs that had not ended at a former broker process, of which its successor has announced nothing yet.
    expected: HashSet<TopicName>,
    /// Topics that had a merged log at a former broker process, of which its successor has announced nothing yet.
    merged: HashMap<TopicName, Epoch>,
}

impl Buffers {
    pub(super) fn get(&self, bid: Bid) -> Option<&Buffer> {
        self.all.get(&bid)
    }

    /// Whether the filter matches the topic of a buffer.
    pub(super) fn any_of(&self, filter: &TopicFilter) -> bool {
        let mut any = false;
        self.topics.matched_by(filter, &mut |_| any = true);
        any || self.spaces.keys().any(|space| space.is_wanted_by(filter))
    }

    /// The buffers of a log, in the order of their announcements. A log has several buffers if it comes by several ways, or if its
    /// publisher was away for long.
    pub(super) fn of_epoch(&self, epoch: Epoch) -> impl DoubleEndedIterator<Item = &Buffer> {
        let bids = self.by_epoch.get(&epoch).into_iter().flatten();
        bids.filter_map(|bid| self.all.get(bid))
    }

    /// The buffer in which a log goes on: the newest of those that wait.
    pub(super) fn next_of(&self, epoch: Epoch) -> Option<&Buffer> {
        self.of_epoch(epoch).rfind(|buffer| buffer.stage == Stage::Next)
    }

    /// Adds a buffer, or replaces it: then what the broker has said about its log still holds.
    pub(super) fn insert(&mut self, mut buffer: Buffer) {
        let bid = buffer.topic.bid;
        let known = self.unwanted.remove(&bid).into_iter().chain(self.remove(bid));
        buffer.continues = known.into_iter().any(|known| known.epoch() == buffer.epoch() && known.continues);
        self.expected.remove(buffer.name());
        self.merged.remove(buffer.name());
        self.pending += usize::from(buffer.stage.is_pending());
        match &buffer.topic.space {
            Some(space) => *self.spaces.entry(space.clone()).or_default() += 1,
            None => *self.topics.entry(buffer.name().as_str()) += 1,
        }
        self.by_epoch.entry(buffer.epoch()).or_default().push(bid);
        self.all.insert(bid, buffer);
    }

    pub(super) fn set_stage(&mut self, bid: Bid, stage: Stage) {
        let Some(buffer) = self.all.get_mut(&bid) else { return };
        self.pending += usize::from(stage.is_pending());
        self.pending -= usize::from(std::mem::replace(&mut buffer.stage, stage).is_pending());
    }

    /// The broker says whether the log of a buffer continues if its publisher is gone.
    pub(super) fn set_continues(&mut self, bid: Bid, continues: bool) {
        if let Some(buffer) = self.all.get_mut(&bid).or_else(|| self.unwanted.get_mut(&bid)) {
            buffer.continues = continues;
        }
        self.unconfirmed.remove(&bid);
    }

    pub(super) fn remove(&mut self, bid: Bid) -> Option<Buffer> {
        let buffer = self.all.remove(&bid)?;
        self.pending -= usize::from(buffer.stage.is_pending());
        let topic = buffer.name().as_str();
        if let Some(space) = &buffer.topic.space {
            if let Some(count) = self.spaces.get_mut(space) {
                *count -= 1;
                if *count == 0 {
                    self.spaces.remove(space);
                }
            }
        } else if let Some(count) = self.topics.get_mut(topic) {
            *count -= 1;
            if *count == 0 {
                self.topics.remove(topic);
            }
        }
        if let Some(bids) = self.by_epoch.get_mut(&buffer.epoch()) {
            bids.retain(|other| *other != bid);
            if bids.is_empty() {
                self.by_epoch.remove(&buffer.epoch());
            }
        }
        Some(buffer)
    }

    /// Removes the buffers of the topics that `unwanted` selects, and returns them.
    pub(super) fn remove_topics(&mut self, unwanted: impl Fn(&TopicName) -> bool) -> Vec<Buffer> {
        self.expected.retain(|topic| !unwanted(topic));
        self.merged.retain(|topic, _| !unwanted(topic));
        let unwanted = self.all.values().filter(|buffer| unwanted(buffer.name()));
        let mut bids: Vec<Bid> = unwanted.map(|buffer| buffer.topic.bid).collect();
        bids.sort_unstable();
        bids.into_iter().filter_map(|bid| self.remove(bid)).collect()
    }

    /// Remembers a buffer that no filter matches.
    pub(super) fn keep_unwanted(&mut self, buffer: Buffer) {
        if self.unwanted.len() < MAX_UNWANTED {
            self.unwanted.insert(buffer.topic.bid, buffer);
        }
    }

    /// The buffers that a filter matches and that no other filter matched before.
    pub(super) fn wanted_again(&self, filter: &TopicFilter) -> Vec<Topic> {
        let wanted = self.unwanted.values().filter(|buffer| buffer.topic.is_matched_by(filter));
        let mut wanted: Vec<Topic> = wanted.map(|buffer| buffer.topic.clone()).collect();
        wanted.sort_unstable_by_key(|topic| topic.bid);
        wanted
    }

    /// The broker has removed a buffer that no filter matches.
    pub(super) fn forget_unwanted(&mut self, bid: Bid) {
        self.unwanted.remove(&bid);
    }

    /// The new connection leads to the same broker process, which announces all buffers again that it still has, and says which of their
    /// logs continue. The rIn learns whether it has the open ones.
    pub(super) fn on_reconnected(&mut self) {
        self.unwanted.clear();
        let waits = |buffer: &&Buffer| {
            buffer.continues || matches!(buffer.stage, Stage::Next | Stage::Asked | Stage::Awaited(_))
        };
        self.unconfirmed = self.all.values().filter(waits).map(|buffer| (buffer.topic.bid, false)).collect();
    }

    /// The broker refuses to announce some of the buffers that it has.
    pub(super) fn on_rejected(&mut self) {
        self.unconfirmed.clear();
    }

    /// The broker announces a buffer. If its log continues, that follows; until then, what was said of a subscribed one may hold.
    pub(super) fn on_announced(&mut self, bid: Bid) {
        match self.all.get_mut(&bid) {
            Some(buffer) if buffer.is_subscribed() => {
                if let Some(announced) = self.unconfirmed.get_mut(&bid) {
                    *announced = true;
                }
                return;
            }
            Some(buffer) => buffer.continues = false,
            None => {}
        }
        self.unconfirmed.remove(&bid);
    }

    /// The broker has announced everything. Returns the buffers that wait in vain, and whether the broker has announced them.
    pub(super) fn take_unconfirmed(&mut self) -> Vec<(Bid, bool)> {
        let mut unconfirmed: Vec<_> = self.unconfirmed.drain().collect();
        unconfirmed.sort_unstable();
        unconfirmed
    }

    /// The new connection leads to another broker process, with other buffers.
    pub(super) fn forget(&mut self) {
        for (_, buffer) in self.all.drain() {
            if buffer.topic.framing == Framing::Merged && buffer.is_subscribed() {
                self.merged.insert(buffer.name().clone(), buffer.epoch());
            }
            if buffer.stage.is_pending() {
                self.expected.insert(buffer.topic.topic);
            }
        }
        self.topics = Levels::default();
        self.spaces.clear();
        self.by_epoch.clear();
        self.unwanted.clear();
        self.unconfirmed.clear();
        self.pending = 0;
    }

    /// Whether a former broker process had another merged log of this topic, which has no successor yet.
    pub(super) fn had_other_merged(&self, topic: &Topic) -> bool {
        self.merged.get(&topic.topic).is_some_and(|epoch| epoch.0 != topic.epoch)
    }

    /// Whether no subscription waits for an answer of the broker. `is_present` says whether the one of a log is in force.
    pub(super) fn are_settled(&self, is_present: impl Fn(Epoch) -> bool) -> bool {
        self.all.values().all(|buffer| match buffer.stage {
            Stage::Asked => false,
            Stage::Open(..) => is_present(buffer.epoch()),
            _ => true,
        })
    }

    /// Whether all known logs have ended and no other one is expected.
    pub(super) fn all_ended(&self) -> bool {
        self.pending == 0 && self.expected.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rocketbufs::Start;

    use super::*;

    fn filter(text: &str) -> TopicFilter {
        text.parse().unwrap()
    }

    fn buffer(bid: Bid, name: &str, epoch: u128) -> Buffer {
        let topic = Topic {
            bid,
            epoch,
            framing: Framing::Records,
            fresh: false,
            kept: false,
            max_delivery_bytes: 0,
            topic: name.parse().unwrap(),
            space: None,
        };
        Buffer::new(topic, Stage::Open(Policy::Block, Begin::At(Start::Newest)))
    }

    #[test]
    fn all_ended_when_each_has() {
        let mut buffers = Buffers::default();
        buffers.insert(buffer(1, "a", 1));
        buffers.insert(buffer(2, "b", 2));
        buffers.set_stage(1, Stage::Ended);
        buffers.set_stage(1, Stage::Ended);
        assert!(!buffers.all_ended());
        buffers.insert(buffer(3, "b", 2));
        assert_eq!(buffers.of_epoch(Epoch(2)).map(|buffer| buffer.topic.bid).collect::<Vec<_>>(), [2, 3]);
        buffers.remove(2);
        assert!(!buffers.all_ended() && buffers.any_of(&filter("b")) && !buffers.any_of(&filter("+/+")));
        buffers.set_stage(3, Stage::Ended);
        assert!(buffers.all_ended());
        buffers.remove(3);
        assert!(!buffers.any_of(&filter("b")) && buffers.any_of(&filter("#")));
        buffers.remove(1);
        assert!(buffers.all_ended() && buffers.by_epoch.is_empty());
    }

    #[test]
    fn open_buffers_of_a_former_broker_are_expected_again() {
        let mut buffers = Buffers::default();
        buffers.insert(buffer(1, "a", 1));
        buffers.insert(buffer(2, "b", 2));
        buffers.set_stage(1, Stage::Ended);
        buffers.forget();
        assert!(!buffers.all_ended() && !buffers.any_of(&filter("#")));
        buffers.insert(buffer(1, "b", 2));
        buffers.set_stage(1, Stage::Ended);
        assert!(buffers.all_ended());
    }

    #[test]
    fn topics_that_are_not_wanted_any_more_are_not_expected() {
        let mut buffers = Buffers::default();
        buffers.insert(buffer(1, "a", 1));
        buffers.forget();
        buffers.insert(buffer(2, "b", 2));
        buffers.insert(buffer(3, "c", 3));
        let removed = buffers.remove_topics(|topic| topic.as_str() != "b");
        assert_eq!(removed.iter().map(|buffer| buffer.topic.bid).collect::<Vec<_>>(), [3]);
        assert!(!buffers.all_ended() && buffers.get(2).is_some());
        buffers.set_stage(2, Stage::Ended);
        assert!(buffers.all_ended());
    }
}
