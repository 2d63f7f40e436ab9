//! What a subscriber asked for, and the buffers it got: whether there is anything left to come is known without a look
//! at all of them.

use std::collections::{HashMap, HashSet};

use rbmq_wire::Levels;
use rocketbufs::{Bid, Epoch};

use super::feed::StartFrom;
use crate::wire::{Framing, TopicFilter, TopicName};

/// A filter that was asked for.
#[derive(Debug)]
struct Want {
    filter: TopicFilter,
    /// How many were asked for before it.
    order: usize,
    from: StartFrom,
    /// Whether the broker has told of a buffer that it matches.
    seen: bool,
}

/// How far a filter had come before the connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Before {
    /// It was not asked for.
    No,
    /// It was, and the broker had not told everything: of a buffer that is not known it cannot be said whether it is new.
    Asked,
    /// Everything that there was is known: any other buffer is new.
    Told,
}

impl Before {
    fn of(order: usize, (asked, told): (usize, usize)) -> Self {
        match order {
            order if order < told => Self::Told,
            order if order < asked => Self::Asked,
            _ => Self::No,
        }
    }
}

/// The filters of a subscriber.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    filters: Levels<Want>,
    /// How many of them have not matched anything yet.
    unseen: usize,
    /// Of how many, in the order in which they were asked for, the broker has told everything that it had.
    told: usize,
    /// How many had been asked for, and of how many it had told, before the connection was lost.
    before: (usize, usize),
}

impl Wanted {
    /// Adds a filter; false if it was there, and only begins elsewhere now. `seen`: it matches a buffer that the broker
    /// told of for another filter's sake, and of which it will tell no more.
    pub(super) fn add(&mut self, filter: &TopicFilter, from: StartFrom, seen: bool) -> bool {
        if let Some(want) = self.filters.get_mut(filter.as_str()) {
            want.from = from;
            return false;
        }
        let order = self.filters.len();
        self.filters.insert(filter.as_str(), Want { filter: filter.clone(), order, from, seen });
        self.unseen += usize::from(!seen);
        true
    }

    /// The broker has told everything that it had of what was asked for.
    pub(super) fn all_told(&mut self) {
        self.told = self.filters.len();
    }

    /// The connection was lost, and all are asked for again.
    pub(super) fn ask_again(&mut self) {
        self.before = (self.filters.len(), self.told);
    }

    /// There is a buffer of this topic: where to begin in it, as the first filter that matches says, and how far it
    /// had come with any of them before the connection was lost.
    pub(super) fn saw(&mut self, topic: &TopicName) -> Option<(StartFrom, Before)> {
        let mut first: Option<&Want> = None;
        let (mut new, mut before) = (Vec::new(), Before::No);
        self.filters.matching(topic, &mut |want| {
            before = before.max(Before::of(want.order, self.before));
            if first.is_none_or(|first| want.order < first.order) {
                first = Some(want);
            }
            if !want.seen {
                new.push(want.filter.clone());
            }
            false
        });
        let from = first.map(|want| (want.from.clone(), before));
        for filter in new {
            if let Some(want) = self.filters.get_mut(filter.as_str()) {
                want.seen = true;
                self.unseen -= 1;
            }
        }
        from
    }

    /// Whether it was asked for by its name, not only by filters with wildcards.
    pub(super) fn names(&self, topic: &TopicName) -> bool {
        self.filters.get(topic.as_str()).is_some()
    }

    /// All filters.
    pub(super) fn filters(&self) -> Vec<TopicFilter> {
        self.filters.values().map(|want| want.filter.clone()).collect()
    }

    /// Whether there are filters, and each has matched a buffer.
    pub(super) fn all_seen(&self) -> bool {
        !self.filters.is_empty() && self.unseen == 0
    }
}

/// How far a buffer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its data comes, or will.
    Open,
    /// Everything of it was handed out.
    Ended,
}

/// A buffer that is subscribed to.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) topic: TopicName,
    pub(super) epoch: Epoch,
    pub(super) framing: Framing,
    pub(super) stage: Stage,
}

/// The buffers of a connection.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    all: HashMap<Bid, Buffer>,
    /// How many there are of each topic.
    topics: Levels<usize>,
    by_epoch: HashMap<Epoch, Vec<Bid>>,
    /// How many have not ended.
    open: usize,
    /// Topics that had not ended at a broker that is no more, and of which its successor has told nothing yet.
    awaited: HashSet<TopicName>,
    /// Topics of which a broker that is no more had a merged log, likewise.
    merged: HashSet<TopicName>,
}

impl Buffers {
    pub(super) fn get(&self, bid: Bid) -> Option<&Buffer> {
        self.all.get(&bid)
    }

    /// Whether there is one of a topic that the filter matches.
    pub(super) fn any_of(&self, filter: &TopicFilter) -> bool {
        let mut any = false;
        self.topics.matched_by(filter, &mut |_| any = true);
        any
    }

    /// The buffers of a log: more than one if its publisher was away for long, so that it goes on under another id.
    pub(super) fn of_epoch(&self, epoch: Epoch) -> impl Iterator<Item = (Bid, &Buffer)> {
        let bids = self.by_epoch.get(&epoch).into_iter().flatten();
        bids.filter_map(|bid| Some((*bid, self.all.get(bid)?)))
    }

    /// Adds a buffer that is open.
    pub(super) fn insert(&mut self, bid: Bid, buffer: Buffer) {
        self.remove(bid);
        self.awaited.remove(&buffer.topic);
        self.merged.remove(&buffer.topic);
        self.open += usize::from(buffer.stage == Stage::Open);
        *self.topics.entry(buffer.topic.as_str()) += 1;
        self.by_epoch.entry(buffer.epoch).or_default().push(bid);
        self.all.insert(bid, buffer);
    }

    /// Everything of a buffer was handed out.
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

    /// The connection leads to another broker process, which has other buffers.
    pub(super) fn forget(&mut self) {
        for (_, buffer) in self.all.drain() {
            if buffer.framing == Framing::Merged {
                self.merged.insert(buffer.topic.clone());
            }
            if buffer.stage == Stage::Open {
                self.awaited.insert(buffer.topic);
            }
        }
        self.topics = Levels::default();
        self.by_epoch.clear();
        self.open = 0;
    }

    /// Whether another broker process had a merged log of this topic, and nothing came in its place yet.
    pub(super) fn had_merged(&self, topic: &TopicName) -> bool {
        self.merged.contains(topic)
    }

    /// Whether nothing is left to come of those that are known.
    pub(super) fn all_ended(&self) -> bool {
        self.open == 0 && self.awaited.is_empty()
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
        Buffer { topic, epoch, framing: Framing::Records, stage: Stage::Open }
    }

    #[test]
    fn the_first_filter_says_where_to_begin() {
        let mut wanted = Wanted::default();
        assert!(!wanted.all_seen(), "nothing was asked for");
        assert!(wanted.add(&filter("a/#"), StartFrom::Oldest, false));
        assert!(wanted.add(&filter("a/b"), StartFrom::Position(7), false));
        assert!(wanted.add(&filter("c"), StartFrom::Newest, false));
        assert_eq!(wanted.saw(&topic("x")), None);
        assert_eq!(wanted.saw(&topic("a/b")), Some((StartFrom::Oldest, Before::No)));
        assert!(!wanted.all_seen());
        assert!(!wanted.add(&filter("a/#"), StartFrom::Newest, false));
        assert_eq!(wanted.saw(&topic("a/b")), Some((StartFrom::Newest, Before::No)));
        wanted.all_told();
        assert!(wanted.add(&filter("d"), StartFrom::Newest, false));
        wanted.ask_again();
        assert!(wanted.add(&filter("e"), StartFrom::Newest, false));
        let before = |wanted: &mut Wanted, name| wanted.saw(&topic(name)).unwrap().1;
        assert_eq!(before(&mut wanted, "c"), Before::Told);
        assert_eq!(before(&mut wanted, "d"), Before::Asked);
        assert_eq!(before(&mut wanted, "e"), Before::No);
        assert!(wanted.all_seen());
        assert_eq!(wanted.filters().len(), 5);
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
    fn what_was_open_at_a_broker_that_is_gone_is_waited_for() {
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
}
