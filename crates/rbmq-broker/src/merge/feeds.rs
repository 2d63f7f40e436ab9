//! Which publishers a merged topic has, their numbers, and what is due when: the table, without any I/O.
//!
//! ```text
//!   Opening ─▶ Live ⇄ Away ─ linger is over ─▶ Leaving ─ all moved ─▶ Gone: its place is remembered
//!                └──── closed by it ─────────▶ Closing ─ all moved ─▶ Ended: forgotten after closed_linger
//! ```
//!
//! A number is never used again while the topic lives. When the last publisher has left, the topic ends after
//! `closed_linger`, unless one comes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use rbmq_wire::TopicName;
use rocketbufs::{Bid, Epoch, Position};

use super::super::session::SessionKey;
use super::TopicMerge;

/// How far a publisher of a merged topic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Asked for at the publisher.
    Opening,
    /// Its bytes come.
    Live,
    /// Its connection is lost.
    Away,
    /// It closed its log, of which not everything is moved yet.
    Closing(Position),
    /// It was away for too long; what is complete of it is not all moved yet.
    Leaving,
    /// It closed its log, and everything of it is moved.
    Ended(Position),
    /// It was away for too long. Its log was moved up to here; there it goes on if it comes back.
    Gone(Position),
}

impl Stage {
    /// Whether there is or may be something to move.
    pub(super) fn is_active(self) -> bool {
        !matches!(self, Self::Ended(_) | Self::Gone(_))
    }
}

/// A publisher of a merged topic: one buffer of it.
#[derive(Debug, Clone)]
pub(super) struct Feed {
    pub(super) out_bid: Bid,
    pub(super) number: u32,
    pub(super) stage: Stage,
    /// Of the publisher's log, once it is known.
    pub(super) epoch: Option<Epoch>,
    due: Option<Instant>,
}

/// The limit on publishers of a topic was reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyFeeds {
    pub(super) open: usize,
}

/// What ends at some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The time of a publisher that is away, or was closed.
    Feed(SessionKey, Bid),
    /// The time of a topic without publishers.
    Topic(Bid),
}

struct Topic {
    name: TopicName,
    merge: Arc<TopicMerge>,
    /// Publishers that are remembered, by number.
    members: HashMap<u32, (SessionKey, Bid)>,
    active: usize,
    next_number: u32,
    due: Option<Instant>,
}

/// The merged topics and their publishers.
#[derive(Default)]
pub(crate) struct Merges {
    topics: HashMap<Bid, Topic>,
    by_name: HashMap<TopicName, Bid>,
    feeds: HashMap<(SessionKey, Bid), Feed>,
    due: BTreeSet<(Instant, Due)>,
}

impl Merges {
    pub(super) fn find(&self, topic: &TopicName) -> Option<Bid> {
        self.by_name.get(topic).copied()
    }

    pub(super) fn insert(&mut self, out_bid: Bid, name: TopicName, merge: Arc<TopicMerge>) {
        self.by_name.insert(name.clone(), out_bid);
        let topic = Topic { name, merge, members: HashMap::new(), active: 0, next_number: 0, due: None };
        self.topics.insert(out_bid, topic);
    }

    pub(super) fn merge(&self, out_bid: Bid) -> Option<&Arc<TopicMerge>> {
        self.topics.get(&out_bid).map(|topic| &topic.merge)
    }

    pub(super) fn name(&self, out_bid: Bid) -> Option<&TopicName> {
        self.topics.get(&out_bid).map(|topic| &topic.name)
    }

    pub(super) fn feed(&self, key: SessionKey, in_bid: Bid) -> Option<&Feed> {
        self.feeds.get(&(key, in_bid))
    }

    pub(super) fn feed_mut(&mut self, key: SessionKey, in_bid: Bid) -> Option<&mut Feed> {
        self.feeds.get_mut(&(key, in_bid))
    }

    /// Which publisher has a number.
    pub(super) fn member(&self, out_bid: Bid, number: u32) -> Option<(SessionKey, Bid)> {
        self.topics.get(&out_bid)?.members.get(&number).copied()
    }

    /// Everybody who is remembered in a topic.
    pub(super) fn members(&self, out_bid: Bid) -> Vec<(SessionKey, Bid)> {
        self.topics.get(&out_bid).map_or_else(Vec::new, |topic| topic.members.values().copied().collect())
    }

    /// How many publishers of a topic have not left. None if it is not merged.
    pub(crate) fn active(&self, out_bid: Bid) -> Option<usize> {
        self.topics.get(&out_bid).map(|topic| topic.active)
    }

    /// The publishers of a topic that have not left, of those that came first at most so many.
    pub(crate) fn first(&self, out_bid: Bid, most: usize) -> Vec<SessionKey> {
        let Some(topic) = self.topics.get(&out_bid) else { return Vec::new() };
        let active = |place| self.feeds.get(place).is_some_and(|feed: &Feed| feed.stage.is_active());
        let mut first: Vec<_> = topic.members.iter().filter(|(_, place)| active(place)).collect();
        first.sort_unstable_by_key(|(number, _)| **number);
        first.into_iter().take(most).map(|(_, (key, _))| *key).collect()
    }

    /// Takes a publisher up and gives it a number. At the limit the one that is gone the longest is forgotten.
    pub(super) fn add(
        &mut self,
        out_bid: Bid,
        (key, in_bid): (SessionKey, Bid),
        max: usize,
    ) -> Result<u32, TooManyFeeds> {
        let open = self.topics.get(&out_bid).map_or(0, |topic| topic.members.len());
        if open >= max {
            let gone = |place: &(SessionKey, Bid)| matches!(self.feeds[place].stage, Stage::Gone(_));
            let members = self.topics.get(&out_bid).into_iter().flat_map(|topic| &topic.members);
            let oldest = members.filter(|(_, place)| gone(place)).min_by_key(|(number, _)| **number);
            let (_, &(key, in_bid)) = oldest.ok_or(TooManyFeeds { open })?;
            self.remove(key, in_bid);
        }
        let Some(topic) = self.topics.get_mut(&out_bid) else { return Err(TooManyFeeds { open }) };
        let number = topic.next_number;
        topic.next_number = number.checked_add(1).ok_or(TooManyFeeds { open: number as usize })?;
        topic.members.insert(number, (key, in_bid));
        topic.active += 1;
        let feed = Feed { out_bid, number, stage: Stage::Opening, epoch: None, due: None };
        self.feeds.insert((key, in_bid), feed);
        self.set_topic_due(out_bid, None);
        Ok(number)
    }

    /// A publisher's stage changes; `until` is when something is due with it. Returns whether it was the last active
    /// one of its topic.
    pub(super) fn set_stage(
        &mut self,
        key: SessionKey,
        in_bid: Bid,
        stage: Stage,
        until: Option<Instant>,
    ) -> bool {
        let Some(feed) = self.feeds.get_mut(&(key, in_bid)) else { return false };
        let was = std::mem::replace(&mut feed.stage, stage).is_active();
        let old = std::mem::replace(&mut feed.due, until);
        let out_bid = feed.out_bid;
        self.move_due(Due::Feed(key, in_bid), old, until);
        let Some(topic) = self.topics.get_mut(&out_bid) else { return false };
        match (was, stage.is_active()) {
            (true, false) => topic.active -= 1,
            (false, true) => topic.active += 1,
            _ => {}
        }
        let last = was && topic.active == 0;
        if topic.active > 0 {
            self.set_topic_due(out_bid, None);
        }
        last
    }

    /// When a topic ends, if nobody comes.
    pub(super) fn set_topic_due(&mut self, out_bid: Bid, until: Option<Instant>) {
        let Some(topic) = self.topics.get_mut(&out_bid) else { return };
        let old = std::mem::replace(&mut topic.due, until);
        self.move_due(Due::Topic(out_bid), old, until);
    }

    fn move_due(&mut self, what: Due, old: Option<Instant>, new: Option<Instant>) {
        if let Some(old) = old {
            self.due.remove(&(old, what));
        }
        if let Some(new) = new {
            self.due.insert((new, what));
        }
    }

    /// Forgets a publisher. Returns whether it was the last active one.
    pub(super) fn remove(&mut self, key: SessionKey, in_bid: Bid) -> bool {
        let Some(feed) = self.feeds.remove(&(key, in_bid)) else { return false };
        self.move_due(Due::Feed(key, in_bid), feed.due, None);
        let Some(topic) = self.topics.get_mut(&feed.out_bid) else { return false };
        topic.members.remove(&feed.number);
        topic.active -= usize::from(feed.stage.is_active());
        feed.stage.is_active() && topic.active == 0
    }

    /// Forgets a topic and everybody in it.
    pub(super) fn remove_topic(&mut self, out_bid: Bid) -> Option<Arc<TopicMerge>> {
        self.set_topic_due(out_bid, None);
        for (key, in_bid) in self.members(out_bid) {
            self.remove(key, in_bid);
        }
        let topic = self.topics.remove(&out_bid)?;
        self.by_name.remove(&topic.name);
        Some(topic.merge)
    }

    /// The buffers of all merged topics.
    pub(super) fn all(&self) -> Vec<Bid> {
        self.topics.keys().copied().collect()
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes what is due now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let &(at, what) = self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        match what {
            Due::Feed(key, in_bid) => {
                if let Some(feed) = self.feeds.get_mut(&(key, in_bid)) {
                    feed.due = None;
                }
            }
            Due::Topic(out_bid) => {
                if let Some(topic) = self.topics.get_mut(&out_bid) {
                    topic.due = None;
                }
            }
        }
        Some(what)
    }
}
