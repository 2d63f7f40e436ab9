//! The table of merged topics and their publishers: numbers, states, and deadlines. This module does no I/O.
//!
//! ```text
//!   Opening ─▶ Live ⇄ Away ─ linger is over ──▶ Leaving ─ all merged ─▶ Gone: its position is remembered
//!                └──── closed its log ────────▶ Closing ─ all merged ─▶ Ended: forgotten after closed_linger
//! ```
//!
//! A publisher of a topic that goes to another broker is *Moving* until it is known how far it is, and then Gone.
//! A publisher's number is not used again while the topic exists. The topic ends `closed_linger` after its last active publisher
//! left, unless a new publisher comes. One of this process is active until what it left behind is merged.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use rbmq_wire::{Space, TopicName};
use rocketbufs::{Bid, Epoch, Position};

use super::super::kept::Place;
use super::super::session_key::SessionKey;
use super::topic::MergedTopic;

/// The state of a publisher of a merged topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The broker has subscribed at the publisher and waits for the answer.
    Opening,
    /// The publisher's data arrives.
    Live,
    /// The connection is lost.
    Away,
    /// The log is closed here, and not completely merged.
    Closing(Position),
    /// The publisher was disconnected for too long. Its complete deliveries are not all merged.
    Leaving,
    /// Another broker gets the topic. How far this one has merged the log is not known yet.
    Moving,
    /// The log is closed here, and completely merged.
    Ended(Position),
    /// The publisher was disconnected for too long, or its topic went to another broker. Its log was merged up to here, and continues here if it
    /// comes back.
    Gone(Position),
}

impl Stage {
    /// Whether there is or may be data to merge.
    pub(super) fn is_active(self) -> bool {
        !matches!(self, Self::Ended(_) | Self::Gone(_))
    }
}

/// A buffer of a publisher of a merged topic.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) out_bid: Bid,
    pub(super) number: u32,
    pub(super) stage: Stage,
    /// The epoch of the publisher's log, once it is known.
    pub(super) epoch: Option<Epoch>,
    /// What is taken for merged below this position is not here.
    pub(super) lacks_below: Position,
    due: Option<Instant>,
}

/// The limit on publishers of a topic is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooManyMembers {
    pub(super) open: usize,
}

/// An object with a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A publisher that is disconnected or has closed its log.
    Member(SessionKey, Bid),
    /// A topic without active publishers.
    Topic(Bid),
}

struct Topic {
    name: TopicName,
    shared: Arc<MergedTopic>,
    /// All known publishers, by number.
    members: HashMap<u32, (SessionKey, Bid)>,
    active: usize,
    /// The publishers of this process, by number. They are no members.
    local: HashSet<u32>,
    next_number: u32,
    due: Option<Instant>,
    /// The topic is on the disk, or is the log of a space, and does not end with its publishers.
    stays: bool,
}

/// The table.
#[derive(Default)]
pub(super) struct Members {
    topics: HashMap<Bid, Topic>,
    by_name: HashMap<TopicName, Bid>,
    by_key: HashMap<(SessionKey, Bid), Member>,
    due: BTreeSet<(Instant, Due)>,
}

impl Members {
    /// The buffer of a topic.
    pub(super) fn find(&self, topic: &TopicName) -> Option<Bid> {
        self.by_name.get(topic).copied()
    }

    pub(super) fn insert(&mut self, out_bid: Bid, name: TopicName, shared: Arc<MergedTopic>) {
        self.by_name.insert(name.clone(), out_bid);
        let (members, local, stays) = (HashMap::new(), HashSet::new(), Space::is_reserved(&name));
        let topic = Topic { name, shared, members, active: 0, local, next_number: 0, due: None, stays };
        self.topics.insert(out_bid, topic);
    }

    /// A topic is kept. Its publishers continue where an earlier broker stored them; no publisher has had `next_number`.
    pub(super) fn restore(&mut self, out_bid: Bid, places: Vec<Place>, next_number: u32) {
        let Some(topic) = self.topics.get_mut(&out_bid) else { return };
        topic.stays = true;
        topic.next_number = next_number;
        for Place { number, key, bid, epoch, position, lacks_below } in places {
            if self.get(key, bid).is_some_and(|other| other.stage.is_active()) {
                continue;
            }
            // The disk has a publisher that was forgotten and came back by each of its numbers. The highest is its last.
            self.remove(key, bid);
            let Some(topic) = self.topics.get_mut(&out_bid) else { return };
            topic.members.insert(number, (key, bid));
            let stage = Stage::Gone(position);
            let member = Member { out_bid, number, stage, epoch: Some(epoch), lacks_below, due: None };
            self.by_key.insert((key, bid), member);
        }
    }

    /// The part of a topic that threads share.
    pub(super) fn topic(&self, out_bid: Bid) -> Option<&Arc<MergedTopic>> {
        self.topics.get(&out_bid).map(|topic| &topic.shared)
    }

    pub(super) fn name(&self, out_bid: Bid) -> Option<&TopicName> {
        self.topics.get(&out_bid).map(|topic| &topic.name)
    }

    pub(super) fn get(&self, key: SessionKey, in_bid: Bid) -> Option<&Member> {
        self.by_key.get(&(key, in_bid))
    }

    pub(super) fn get_mut(&mut self, key: SessionKey, in_bid: Bid) -> Option<&mut Member> {
        self.by_key.get_mut(&(key, in_bid))
    }

    /// The publisher with a number.
    pub(super) fn member(&self, out_bid: Bid, number: u32) -> Option<(SessionKey, Bid)> {
        self.topics.get(&out_bid)?.members.get(&number).copied()
    }

    /// All known publishers of a topic.
    pub(super) fn members(&self, out_bid: Bid) -> Vec<(SessionKey, Bid)> {
        self.topics.get(&out_bid).map_or_else(Vec::new, |topic| topic.members.values().copied().collect())
    }

    /// The publishers of this process.
    pub(super) fn local(&self, out_bid: Bid) -> Vec<u32> {
        self.topics.get(&out_bid).map_or_else(Vec::new, |topic| topic.local.iter().copied().collect())
    }

    /// The number of active publishers of a topic. None if the buffer is not merged.
    pub(super) fn active(&self, out_bid: Bid) -> Option<usize> {
        self.topics.get(&out_bid).map(|topic| topic.active)
    }

    /// The active publishers of a topic with the lowest numbers, at most `most`.
    pub(super) fn first(&self, out_bid: Bid, most: usize) -> Vec<SessionKey> {
        let Some(topic) = self.topics.get(&out_bid) else { return Vec::new() };
        let active = |place| self.by_key.get(place).is_some_and(|member: &Member| member.stage.is_active());
        let mut first: Vec<_> = topic.members.iter().filter(|(_, place)| active(place)).collect();
        first.sort_unstable_by_key(|(number, _)| **number);
        first.into_iter().take(most).map(|(_, (key, _))| *key).collect()
    }

    /// Adds a publisher and gives it a number. At the limit, the gone publisher with the lowest number is forgotten.
    pub(super) fn add(
        &mut self,
        out_bid: Bid,
        key: SessionKey,
        in_bid: Bid,
        max: usize,
    ) -> Result<u32, TooManyMembers> {
        let open = self.topics.get(&out_bid).map_or(0, |topic| topic.members.len());
        if open >= max {
            let gone = |place: &(SessionKey, Bid)| {
                self.by_key.get(place).is_some_and(|member| matches!(member.stage, Stage::Gone(_)))
            };
            let members = self.topics.get(&out_bid).into_iter().flat_map(|topic| &topic.members);
            let oldest = members.filter(|(_, place)| gone(place)).min_by_key(|(number, _)| **number);
            let (_, &(key, in_bid)) = oldest.ok_or(TooManyMembers { open })?;
            self.remove(key, in_bid);
        }
        let number = self.take_number(out_bid).ok_or(TooManyMembers { open })?;
        let Some(topic) = self.topics.get_mut(&out_bid) else { return Err(TooManyMembers { open }) };
        topic.members.insert(number, (key, in_bid));
        topic.active += 1;
        let member =
            Member { out_bid, number, stage: Stage::Opening, epoch: None, lacks_below: 0, due: None };
        self.by_key.insert((key, in_bid), member);
        self.set_topic_due(out_bid, None);
        Ok(number)
    }

    /// A number for a publisher, which no other one of the topic has had.
    pub(super) fn take_number(&mut self, out_bid: Bid) -> Option<u32> {
        let topic = self.topics.get_mut(&out_bid)?;
        let number = topic.next_number;
        topic.next_number = number.checked_add(1)?;
        Some(number)
    }

    /// A publisher of this process joins. Returns its number.
    pub(super) fn join_local(&mut self, out_bid: Bid) -> Option<u32> {
        let number = self.take_number(out_bid)?;
        self.topics.get_mut(&out_bid)?.local.insert(number);
        self.set_topic_due(out_bid, None);
        Some(number)
    }

    /// A publisher of this process has left, and all it left behind is merged. Returns whether the topic has no active publisher any more.
    pub(super) fn local_left(&mut self, out_bid: Bid, number: u32) -> bool {
        let Some(topic) = self.topics.get_mut(&out_bid) else { return false };
        topic.local.remove(&number) && topic.local.is_empty() && topic.active == 0
    }

    /// Changes the state of a publisher, with its deadline. Returns whether the topic has no active publisher any more.
    pub(super) fn set_stage(
        &mut self,
        key: SessionKey,
        in_bid: Bid,
        stage: Stage,
        until: Option<Instant>,
    ) -> bool {
        let Some(member) = self.by_key.get_mut(&(key, in_bid)) else { return false };
        let was = std::mem::replace(&mut member.stage, stage).is_active();
        let old = std::mem::replace(&mut member.due, until);
        let out_bid = member.out_bid;
        self.move_due(Due::Member(key, in_bid), old, until);
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

    /// Sets the end of a topic without active publishers.
    pub(super) fn set_topic_due(&mut self, out_bid: Bid, until: Option<Instant>) {
        let Some(topic) = self.topics.get_mut(&out_bid) else { return };
        let until = until.filter(|_| !topic.stays && topic.local.is_empty());
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

    /// Forgets a publisher. Returns whether it was the last active publisher of its topic.
    pub(super) fn remove(&mut self, key: SessionKey, in_bid: Bid) -> bool {
        let Some(member) = self.by_key.remove(&(key, in_bid)) else { return false };
        self.move_due(Due::Member(key, in_bid), member.due, None);
        let Some(topic) = self.topics.get_mut(&member.out_bid) else { return false };
        topic.members.remove(&member.number);
        topic.active -= usize::from(member.stage.is_active());
        member.stage.is_active() && topic.active == 0
    }

    /// Forgets a topic and its publishers.
    pub(super) fn remove_topic(&mut self, out_bid: Bid) -> Option<Arc<MergedTopic>> {
        self.set_topic_due(out_bid, None);
        for (key, in_bid) in self.members(out_bid) {
            self.remove(key, in_bid);
        }
        let topic = self.topics.remove(&out_bid)?;
        self.by_name.remove(&topic.name);
        Some(topic.shared)
    }

    /// The buffers of all merged topics.
    pub(super) fn all(&self) -> Vec<Bid> {
        self.topics.keys().copied().collect()
    }

    /// The next deadline.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes an object whose deadline is over.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let &(at, what) = self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        match what {
            Due::Member(key, in_bid) => {
                if let Some(member) = self.by_key.get_mut(&(key, in_bid)) {
                    member.due = None;
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

#[cfg(test)]
mod tests {
    use rocketbufs::{Config, Context, ROut};

    use super::super::super::inbox::inbox;
    use super::super::log::Growth;
    use super::*;

    #[test]
    fn a_publisher_that_the_disk_has_by_two_numbers_has_the_last_one() {
        let ctx = Context::new(Config::default()).unwrap();
        let (out, (events, _inbox)) = (ROut::new(&ctx), inbox());
        out.create_buffer(1, 64 << 10).unwrap();
        let shared =
            MergedTopic::new(out.buffer(1).unwrap().writer().unwrap(), Growth::default(), 10, &events, None);
        let mut members = Members::default();
        members.insert(1, "k".parse().unwrap(), shared);
        let key = |client| SessionKey { instance: 1, client };
        let place = |(number, client)| Place {
            number,
            key: key(client),
            bid: 7,
            epoch: Epoch(1),
            position: 0,
            lacks_below: 0,
        };
        members.restore(1, [(1, 1), (2, 1), (3, 2)].map(place).to_vec(), 4);
        assert_eq!(members.get(key(1), 7).map(|member| member.number), Some(2));
        assert_eq!(members.members(1).len(), 2);
        // The gone ones give way, one after the other.
        for (client, number) in [(3, 4), (4, 5)] {
            assert_eq!(members.add(1, key(client), 7, 2), Ok(number));
        }
        assert_eq!(members.add(1, key(5), 7, 2), Err(TooManyMembers { open: 2 }));
    }
}
