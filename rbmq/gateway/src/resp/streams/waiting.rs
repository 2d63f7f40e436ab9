//! Clients that wait for entries: `XREAD` with `BLOCK`.
//!
//! A client that waits has what its command asks for, and a place in a table for each of its streams. It is woken when one of them grows, looks
//! again, and waits again if there is nothing for it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use rbmq_wire::TopicName;
use rocketbufs::Position;

use crate::protocol::{Bus, ConnId};

/// The most streams that clients wait for, each client counted: a stream takes up to half a kilobyte.
const MAX_PLACES: usize = 100_000;

/// The most of them for the clients of one user, or of one address where they have none.
const MAX_OWN_PLACES: usize = 25_000;

/// What a client waits for.
#[derive(Debug)]
pub(in crate::resp) struct Reading {
    /// The user of the client, or its address.
    pub(super) owner: Box<str>,
    /// Its streams.
    pub(super) topics: Vec<TopicName>,
    /// From where on it reads each of them, as far as it has learned that.
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
    by_owner: HashMap<Box<str>, usize>,
}

impl Waiting {
    /// The number of clients.
    pub(in crate::resp) fn len(&self) -> usize {
        self.count
    }

    /// A client waits.
    ///
    /// # Errors
    /// There is no place for its streams.
    pub(super) fn add(&mut self, conn: ConnId, reading: &Reading, bus: &mut dyn Bus) -> Result<(), String> {
        let more = reading.topics.len();
        let own = self.by_owner.get(&reading.owner).copied().unwrap_or(0) + more;
        if own > MAX_OWN_PLACES {
            return Err(format!(
                "ERR the clients of a user or an address wait for {MAX_OWN_PLACES} streams at most"
            ));
        }
        if self.places + more > MAX_PLACES {
            return Err(format!("ERR all clients wait for {MAX_PLACES} streams at most"));
        }
        self.by_owner.insert(reading.owner.clone(), own);
        self.count += 1;
        self.places += more;
        for topic in &reading.topics {
            let waiting = self.by_topic.entry(topic.clone()).or_default();
            if waiting.is_empty() {
                bus.follow_log(topic, true);
            }
            waiting.insert(conn);
        }
        self.due.extend(reading.deadline.map(|deadline| (deadline, conn)));
        Ok(())
    }

    /// The client does not wait any more.
    pub(in crate::resp) fn remove(&mut self, conn: ConnId, reading: &Reading, bus: &mut dyn Bus) {
        self.count -= 1;
        self.places -= reading.topics.len();
        if let Some(own) = self.by_owner.get_mut(&reading.owner) {
            *own -= reading.topics.len();
            if *own == 0 {
                self.by_owner.remove(&reading.owner);
            }
        }
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

    /// Takes a client whose time is over from those with a time.
    pub(in crate::resp) fn pop_due(&mut self, now: Instant) -> Option<ConnId> {
        let due = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.remove(&due);
        Some(due.1)
    }
}
