//! A bus in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rbmq_broker::Consumers;
use rbmq_wire::{GroupName, Space, TopicFilter, TopicName};
use rocketbufs::Position;

use super::logs::{Cold, MemoryLog};
use crate::protocol::{Bus, ConnId, PublishError, Ticket};

/// A message that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    /// The topic.
    pub(crate) topic: TopicName,
    /// The encoded attributes.
    pub(crate) attributes: Vec<u8>,
    /// The content.
    pub(crate) payload: Vec<u8>,
}

/// A bus whose messages come back when the test says so.
#[derive(Debug, Default)]
pub(crate) struct MemoryBus {
    /// Messages that have not come back yet.
    pub(crate) published: VecDeque<Published>,
    /// The number of subscriptions of each filter.
    pub(crate) filters: BTreeMap<TopicFilter, usize>,
    /// Filters whose subscription is not in force yet.
    pub(crate) late: Vec<TopicFilter>,
    /// Filters that were refused.
    pub(super) refused: BTreeSet<TopicFilter>,
    /// Whether subscriptions are in force only later.
    pub(crate) is_late: bool,
    /// How many messages have room; none: any number.
    pub(crate) room: Option<usize>,
    /// What is answered to every message.
    pub(crate) refusal: Option<PublishError>,
    /// Kept topics.
    pub(crate) logs: BTreeMap<TopicName, MemoryLog>,
    /// Whether the broker is another process.
    pub(crate) is_beside: bool,
    /// A kept space.
    pub(crate) kept_space: Option<TopicFilter>,
    /// Messages that are not stored yet.
    pub(super) unstored: VecDeque<(TopicName, Vec<u8>, Ticket)>,
    /// The time that messages are stored with.
    pub(crate) time_ms: u64,
    /// Topics that are followed.
    pub(crate) followed: BTreeSet<TopicName>,
    /// The bytes of logs that were read.
    pub(crate) read_bytes: u64,
    /// A topic that is not kept any more as soon as somebody follows it.
    pub(crate) vanishing: Option<TopicName>,
    /// Whether the disk has to be waited for. What was read once is in memory.
    pub(crate) is_cold: bool,
    /// Whether this takes until `World::fetch_one`.
    pub(crate) is_slow: bool,
    /// Positions that are in memory, and times that were looked for.
    pub(super) warm: BTreeMap<TopicName, (Vec<std::ops::Range<Position>>, Vec<u64>)>,
    pub(super) put_off: Option<(TopicName, Cold)>,
    /// Whether only what was read last is in memory.
    pub(crate) is_forgetful: bool,
    pub(super) is_in_place: bool,
    /// Reads that are under way: for whom, what, and how many bytes.
    pub(super) fetching: VecDeque<(ConnId, TopicName, Cold, u64)>,
    /// Groups of named consumers.
    pub(crate) groups: BTreeMap<(TopicName, GroupName), Consumers>,
    /// What another gateway does with a group before each of the next looks at it, and how often groups were looked at.
    pub(crate) rivals: VecDeque<Option<fn(&mut Consumers)>>,
    pub(crate) group_looks: usize,
    /// The most entries that may be pending in a group, if that is limited.
    pub(crate) max_pending: Option<usize>,
    /// The results of changes of groups.
    pub(crate) changed: BTreeMap<ConnId, Result<bool, String>>,
    /// Why nothing is written.
    pub(crate) unwritten: Option<String>,
    /// Topics at which those who follow them are to look again.
    pub(super) told: BTreeSet<TopicName>,
}

impl Bus for MemoryBus {
    fn publish(&mut self, topic: &TopicName, attributes: &[u8], payload: &[u8]) -> Result<(), PublishError> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(1).ok_or(PublishError::Full)?;
        }
        let (topic, attributes) = (topic.clone(), attributes.to_vec());
        self.published.push_back(Published { topic, attributes, payload: payload.to_vec() });
        Ok(())
    }

    fn subscribe(&mut self, filter: &TopicFilter) -> bool {
        let count = self.filters.entry(filter.clone()).or_default();
        *count += 1;
        if (self.refused.remove(filter) || *count == 1) && self.is_late {
            self.late.push(filter.clone());
        }
        !self.late.contains(filter)
    }

    fn unsubscribe(&mut self, filter: &TopicFilter) {
        let count = self.filters.get_mut(filter).expect("the filter was subscribed to");
        *count -= 1;
        if *count == 0 {
            self.filters.remove(filter);
            self.refused.remove(filter);
            self.late.retain(|late| late != filter);
        }
    }

    fn is_log_of(&self, log: &TopicName, topic: &TopicName) -> bool {
        let space = self.kept_space.as_ref().filter(|space| space.matches(topic));
        match space.and_then(|space| Space::new(space).ok()) {
            Some(space) => space.log() == log,
            None => topic == log,
        }
    }
}
