//! Subscribers: what they ask for, and what they are told about buffers.
//!
//! A subscriber with the filter `#` may have ten thousand buffers to hear of at once, more than may wait in the queue
//! of its connection. What does not fit there waits here, in order, as numbers of buffers; the queue is tried again
//! a little later. A subscriber that stays behind by more than there is to tell is disconnected.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use rbmq_wire::{Control, Terms, Topic, TopicFilter, TopicName};
use rocketbufs::{Bid, Conn, ControlError};

use super::chain::Hop;
use super::control::{Broker, send};
use super::ledger::Refusal;
use super::rules::Rules;
use super::topics::Topics;
use super::wants::{MayWant, WantsTooMuch};

/// How long until a full queue is tried again.
pub(super) const TRY_AGAIN: Duration = Duration::from_millis(5);

/// Fewest notes that may wait for a subscriber; with many buffers more may.
const MIN_WAITING: usize = 1 << 16;

/// A connected subscriber.
pub(super) struct Watcher {
    pub(super) conn: Conn,
    pub(super) name: String,
    /// To another broker, which passes on what it receives.
    pub(super) hop: Option<Hop>,
    /// For how long it may be away, by its name; zero: it does not come back.
    hold: Duration,
    /// What it was told of as new and has not subscribed to, if it may come back.
    pub(super) untaken: BTreeSet<Bid>,
    waiting: VecDeque<Note>,
    /// What it was told last of what it gets at most.
    terms: Terms,
}

/// What a subscriber is to be told.
enum Note {
    /// There is this buffer; whether it appeared after it was asked for.
    There(Bid, bool),
    /// Whether its log goes on in another buffer when it ends.
    Continues(Bid),
    /// It was removed.
    Gone(Bid, TopicName),
    /// That was all that was there when it asked.
    Told,
}

impl Note {
    /// The message, if it is still true.
    fn message(&self, topics: &Topics, hop: Option<Hop>) -> Option<Control> {
        let (bid, fresh) = match self {
            Self::There(bid, fresh) => (*bid, *fresh),
            Self::Continues(bid) => {
                let yes = topics.get(*bid)?.continues;
                return Some(Control::Continues { bid: *bid, yes });
            }
            Self::Told => return Some(Control::Told),
            Self::Gone(bid, topic) => return Some(Control::TopicGone { bid: *bid, topic: topic.clone() }),
        };
        let buffer = topics.get(bid)?;
        let topic = Topic {
            bid,
            // Without an epoch it is not known well enough yet, and is told when it is.
            epoch: buffer.epoch?.0,
            framing: buffer.framing,
            fresh,
            max_delivery_bytes: buffer.max_delivery_bytes,
            topic: buffer.topic.clone(),
        };
        match hop {
            None => Some(Control::Topic(topic)),
            Some(hop) => Some(Control::TopicVia { topic, path: hop.extend(&buffer.path)? }),
        }
    }
}

impl Watcher {
    pub(super) fn new(conn: Conn, name: String, hop: Option<Hop>) -> Self {
        let (hold, untaken) = (Duration::ZERO, BTreeSet::new());
        Self { conn, name, hop, hold, untaken, waiting: VecDeque::new(), terms: Terms::default() }
    }

    fn tell(&mut self, note: Note, topics: &Topics, said: &Said<'_>) {
        match note {
            Note::There(bid, true) if !self.hold.is_zero() => drop(self.untaken.insert(bid)),
            Note::Gone(bid, _) => drop(self.untaken.remove(&bid)),
            _ => {}
        }
        self.waiting.push_back(note);
        if self.waiting.len() == 1 {
            self.tell_waiting(topics, said);
        }
        if self.waiting.len() > MIN_WAITING.max(4 * topics.buffers()) {
            self.waiting.clear();
            self.conn.close("it does not read what it is told about the topics that it asked for");
        }
    }

    /// Tells what waits, as far as there is room. False if some is left.
    fn tell_waiting(&mut self, topics: &Topics, said: &Said<'_>) -> bool {
        while let Some(note) = self.waiting.front() {
            let message = note.message(topics, self.hop);
            if let Some(Control::Topic(topic)) = &message {
                let terms = said.of(&topic.topic);
                if terms != self.terms && !send_or_wait(&self.conn, &Control::Terms(terms)) {
                    return false;
                }
                self.terms = terms;
            }
            if message.is_some_and(|message| !send_or_wait(&self.conn, &message)) {
                return false;
            }
            self.waiting.pop_front();
        }
        true
    }
}

/// Sends a message; false if there is no room for it now.
fn send_or_wait(conn: &Conn, message: &Control) -> bool {
    match conn.send_control(&message.encode()) {
        // A connection that is down has its own event.
        Ok(()) | Err(ControlError::Down) => {}
        Err(ControlError::Full { .. }) => return false,
        Err(error) => conn.close(&error.to_string()),
    }
    true
}

/// What subscribers are told that they get at most.
struct Said<'a> {
    rules: &'a Rules,
    max_hold_ms: u32,
}

impl Said<'_> {
    fn of(&self, topic: &TopicName) -> Terms {
        self.rules.of(topic).told_terms(self.max_hold_ms)
    }
}

impl Broker {
    pub(super) fn on_subscriber_control(&mut self, conn: &Conn, message: &[u8]) {
        let filters = match Control::decode(message) {
            Ok(Control::Topics { filters }) => filters,
            Ok(Control::Hold { hold_ms }) => return self.on_hold(conn.id(), hold_ms),
            Ok(Control::Downstream { bid, count }) => return self.on_downstream(conn, bid, count),
            Ok(_) => return conn.close("a subscriber sent a message that only publishers or brokers send"),
            Err(error) => return conn.close(&error.to_string()),
        };
        // A message may still be on its way through the queue when its connection is gone already.
        if !self.watchers.contains_key(&conn.id()) {
            return;
        }
        let settings = &self.settings;
        let may = MayWant {
            filters: settings.max_topics_per_subscriber,
            patterns: settings.max_patterns_per_subscriber,
        };
        match self.topics.want(conn.id(), filters.clone(), may) {
            Ok(bids) => self.tell_there(conn.id(), &filters, &bids),
            Err(too_much) => {
                let (refusal, asked, max, setting) = match too_much {
                    WantsTooMuch::Filters(total) => (
                        Refusal::TopicsOfSubscriber,
                        format!("{total} topics and filters were"),
                        may.filters,
                        "max_topics_per_subscriber",
                    ),
                    WantsTooMuch::Patterns(total) => (
                        Refusal::PatternsOfSubscriber,
                        format!("{total} filters with wildcards were"),
                        may.patterns,
                        "max_patterns_per_subscriber",
                    ),
                };
                let reason = format!(
                    "{asked} asked for; a subscriber of this broker may have {max} (broker.{setting})"
                );
                self.ledger.refused(refusal);
                send(conn, &Control::Rejected { reason });
            }
        }
    }

    /// Tells a subscriber what there is of what it asked for.
    fn tell_there(&mut self, watcher: u64, filters: &[TopicFilter], bids: &[Bid]) {
        let held = self.watchers.get(&watcher).filter(|watcher| !watcher.hold.is_zero());
        let name = held.map(|watcher| watcher.name.clone());
        for bid in bids {
            let missed = |name: &String| Some(self.away.missed(name, *bid, self.topics.get(*bid)?));
            let fresh = name.as_ref().and_then(missed).unwrap_or(false);
            self.tell(watcher, Note::There(*bid, fresh));
        }
        self.tell(watcher, Note::Told);
        if let Some(name) = name {
            self.away.back(&name, filters, bids);
        }
    }

    /// A subscriber may come back under its name.
    fn on_hold(&mut self, conn: u64, hold_ms: u32) {
        let max_hold_ms = self.out.context().config().limits.max_hold_ms;
        let Some(watcher) = self.watchers.get_mut(&conn).filter(|watcher| !watcher.name.is_empty()) else {
            return;
        };
        watcher.hold = Duration::from_millis(hold_ms.min(max_hold_ms).into());
        let name = watcher.name.clone();
        let Some(before) = self.away.here(&name, conn).and_then(|conn| self.watchers.get_mut(&conn)) else {
            return;
        };
        // That one may be gone without anybody knowing yet. What it takes after all is a place that this one takes over.
        let (untaken, until) = (std::mem::take(&mut before.untaken), Instant::now() + before.hold);
        if !untaken.is_empty() {
            self.away.leave((&name, until), (std::iter::empty(), 0), untaken);
        }
    }

    /// A subscriber's connection is gone; it may come back.
    pub(super) fn keep_away(&mut self, conn: u64, watcher: &Watcher) {
        let last = self.away.gone(&watcher.name, conn);
        if watcher.hold.is_zero() {
            return;
        }
        // Where another one has its name by now, that one was told what it had not taken.
        let untaken = if last { watcher.untaken.clone() } else { BTreeSet::new() };
        let (filters, told) = (self.topics.filters(conn), self.topics.told());
        self.away.leave((&watcher.name, Instant::now() + watcher.hold), (filters, told), untaken);
    }

    /// A buffer can be had: tells everybody who wants it.
    pub(super) fn announce_new(&mut self, bid: Bid) {
        self.topics.tell(bid);
        let Some(buffer) = self.topics.get(bid) else { return };
        for watcher in self.topics.watchers(&buffer.topic) {
            self.tell(watcher, Note::There(bid, true));
        }
    }

    /// Whether a buffer's log goes on in another one has changed: tells everybody who has it.
    pub(super) fn announce_continues(&mut self, bid: Bid, topic: &TopicName) {
        for watcher in self.topics.watchers(topic) {
            self.tell(watcher, Note::Continues(bid));
        }
    }

    /// A buffer was removed: tells everybody who wanted it.
    pub(super) fn announce_gone(&mut self, bid: Bid, topic: &TopicName) {
        for watcher in self.topics.watchers(topic) {
            self.tell(watcher, Note::Gone(bid, topic.clone()));
        }
    }

    fn tell(&mut self, watcher: u64, note: Note) {
        let max_hold_ms = self.out.context().config().limits.max_hold_ms;
        let said = Said { rules: &self.settings.topics, max_hold_ms };
        let Some(subscriber) = self.watchers.get_mut(&watcher) else { return };
        let there =
            if let Note::There(bid, _) = note { self.topics.get(bid).map(|b| (bid, b)) } else { None };
        subscriber.tell(note, &self.topics, &said);
        if let Some((bid, _)) = there.filter(|(_, buffer)| buffer.continues) {
            subscriber.tell(Note::Continues(bid), &self.topics, &said);
        }
        if !subscriber.waiting.is_empty() {
            self.behind.insert(watcher);
        }
    }

    /// Tells those whose queue was full what waits for them.
    pub(super) fn tell_those_behind(&mut self) {
        let max_hold_ms = self.out.context().config().limits.max_hold_ms;
        let said = Said { rules: &self.settings.topics, max_hold_ms };
        let (watchers, topics) = (&mut self.watchers, &self.topics);
        self.behind.retain(|id| watchers.get_mut(id).is_some_and(|w| !w.tell_waiting(topics, &said)));
    }
}
