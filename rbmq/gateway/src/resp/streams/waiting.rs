//! Clients that wait for entries: `XREAD` with `BLOCK`.
//!
//! A client that waits has what its command asks for, and a place in a table for each of its streams. It is woken when one of them grows, looks
//! again, and waits again if there is nothing for it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use rbmq_wire::TopicName;
use rocketbufs::Position;

use crate::protocol::{Bus, ConnId};

/// What a client waits for.
#[derive(Debug)]
pub(in crate::resp) struct Reading {
    /// Its streams.
    pub(super) topics: Vec<TopicName>,
    /// From where on it reads each of them.
    pub(super) starts: Vec<Position>,
    /// None: it waits without end.
    pub(super) deadline: Option<Instant>,
    /// Its time is over.
    pub(super) is_over: bool,
}

/// All clients that wait.
#[derive(Debug, Default)]
pub(in crate::resp) struct Waiting {
    by_topic: HashMap<TopicName, HashSet<ConnId>>,
    due: BTreeSet<(Instant, ConnId)>,
    count: usize,
    places: usize,
}

impl Waiting {
    /// The number of clients.
    pub(in crate::resp) fn len(&self) -> usize {
        self.count
    }

    /// The number of streams that clients wait for, each client counted.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    pub(super) fn add(&mut self, conn: ConnId, reading: &Reading, bus: &mut dyn Bus) {
        self.count += 1;
        self.places += reading.topics.len();
        for topic in &reading.topics {
            let waiting = self.by_topic.entry(topic.clone()).or_default();
            if waiting.is_empty() {
                bus.follow_log(topic, true);
            }
            waiting.insert(conn);
        }
        self.due.extend(reading.deadline.map(|deadline| (deadline, conn)));
    }

    /// The client does not wait any more.
    pub(in crate::resp) fn remove(&mut self, conn: ConnId, reading: &Reading, bus: &mut dyn Bus) {
        self.count -= 1;
        self.places -= reading.topics.len();
        for topic in &reading.topics {
            // A client may name a stream twice.
            let Some(waiting) = self.by_topic.get_mut(topic) else { continue };
            waiting.remove(&conn);
            if waiting.is_empty() {
                self.by_topic.remove(topic);
                bus.follow_log(topic, false);
            }
        }
        if let Some(deadline) = reading.deadline {
            self.due.remove(&(deadline, conn));
        }
    }

    /// Who waits for a stream, the one who came first first.
    pub(in crate::resp) fn of(&self, topic: &TopicName) -> Vec<ConnId> {
        let mut conns: Vec<_> = self.by_topic.get(topic).into_iter().flatten().copied().collect();
        conns.sort_unstable();
        conns
    }

    /// When the time of the next client is over.
    pub(in crate::resp) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A client whose time is over.
    pub(in crate::resp) fn due(&self, now: Instant) -> Option<ConnId> {
        self.due.first().filter(|(at, _)| *at <= now).map(|(_, conn)| *conn)
    }
}
