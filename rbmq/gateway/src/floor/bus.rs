//! The topics of the broker, as a gateway publishes and receives them.
//!
//! One publisher and one subscriber serve all clients. Most topics live in spaces, whose logs are open as long as the gateway runs: what clients
//! publish there or subscribe to costs nothing at the broker. Another topic is opened when a client publishes to it, and closed when others are
//! published to and there are many.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rbmq::{Publisher, PublisherEvent, SpaceWriter, TopicOpenError, TopicOptions, TopicWriter};
use rbmq_broker::LocalPublisher;
use rbmq_wire::{ATTRIBUTES_HEADER_BYTES, Attributes, RECORD_HEADER_BYTES, Space, TopicFilter, TopicName};
use rocketbufs::{Epoch, Position};
use tracing::debug;

use super::attempts::Attempts;
use super::confirms::Confirms;
use super::gathering::{Inside, Way};
use super::logs::LogDesk;
use super::openings::{self, RECORD_HEADERS, START_TIMEOUT, Side};
use super::spaces::Spaces;
use crate::protocol::{Bus, PublishError};

/// The most topics that are open for publishing.
const MAX_OPEN: usize = 1000;

/// A topic that has nothing to publish keeps memory for so many bytes, once for what is gathered and once on the way into its log.
const EMPTY_BYTES: usize = 16 << 10;

/// So many bytes, and a message more, wait for room in the logs of topics.
const MAX_HELD: usize = 64 << 20;

/// How long the broker has to take a topic.
const OPEN_TIMEOUT: Duration = Duration::from_millis(50);

/// Opens something at the broker of this process, or at the member of its cluster that has it, for messages of so many bytes. The ring of a merged
/// topic may be too small for the largest one: then it takes smaller ones.
fn open_inside<T>(
    max_message_bytes: u64,
    max_delivery_bytes: Option<u64>,
    open: impl Fn(TopicOptions) -> Result<T, TopicOpenError>,
) -> Result<T, TopicOpenError> {
    let needed = max_message_bytes + RECORD_HEADERS;
    let needed = max_delivery_bytes.map_or(needed, |most| most.min(needed));
    openings::fitting(needed, |most| open(TopicOptions::default().max_delivery_bytes(most)))
}

/// The first level of the names of the logs of spaces, which are the gateway's own affair.
const SPACES: &str = "$space";

/// A topic that is open.
pub(super) struct Open {
    pub(super) way: Way<TopicWriter>,
    /// The name of the log that its messages go to.
    pub(super) log: Epoch,
    /// The number of the last use.
    used: u64,
    /// The bytes that it held when they were counted.
    held: usize,
    /// It is among those that are flushed.
    is_listed: bool,
}

impl Open {
    /// Counts what it holds. Returns how much it was before.
    fn count(&mut self) -> usize {
        std::mem::replace(&mut self.held, self.way.held())
    }
}

/// A filter that clients have subscribed to.
#[derive(Debug, Default)]
struct Wanted {
    count: usize,
    state: State,
    /// The gateway receives all of its topics anyway.
    is_inside: bool,
}

/// What the broker has said of a filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Asked,
    InForce,
    /// Whoever wants it next asks again.
    Refused,
}

/// What the subscriber is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    Subscribe(TopicFilter),
    Unsubscribe(TopicFilter),
}

/// What was counted since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BusCounts {
    /// Messages that clients published.
    pub(crate) published: u64,
    /// Their bytes.
    pub(crate) published_bytes: u64,
}

/// Topics for publishing, and the filters of all clients.
pub(crate) struct Topics {
    pub(super) publisher: Publisher,
    /// None: the broker is another process.
    inside: Option<Inside>,
    pub(super) spaces: Spaces,
    /// Topics that the subscriber receives from the start, besides the spaces.
    foreign: Vec<TopicFilter>,
    pub(super) max_message_bytes: u64,
    pub(super) open: HashMap<TopicName, Open>,
    /// Topics that messages are gathered for, or are on their way into the log.
    gathering: Vec<TopicName>,
    /// The bytes that they hold.
    held: usize,
    max_held: usize,
    uses: u64,
    wanted: HashMap<TopicFilter, Wanted>,
    asks: Vec<Ask>,
    attempts: Attempts,
    /// Topics that the broker took and refuses now.
    refused: Vec<TopicName>,
    /// A message waits for one of them, or is to be tried again soon.
    pub(super) is_missing: bool,
    /// A message has found no room, and its client waits.
    has_refused: bool,
    /// How many filters the broker was asked for and has yet to answer.
    awaited: usize,
    counts: BusCounts,
    /// The logs of kept topics, in the broker's process.
    pub(super) desk: LogDesk,
    /// What the broker confirms; none in its process.
    pub(super) confirms: Option<Confirms>,
}

impl Topics {
    /// Topics of the publisher's broker, which has spaces of these patterns, and gets topics of those patterns from elsewhere. Messages have so
    /// many bytes at most.
    ///
    /// # Errors
    /// A space cannot be opened.
    pub(crate) fn open(
        publisher: Publisher,
        spaces: &[TopicFilter],
        mut foreign: Vec<TopicFilter>,
        max_message_bytes: u64,
        side: Side,
    ) -> Result<Self, TopicOpenError> {
        let (spaces, kept, confirms, bell, inside) = match side {
            Side::Inside { kept, gate, bell } => {
                let open = |space: &TopicFilter| {
                    let log = Space::new(space).map(|space| space.log().clone());
                    let most = log.ok().and_then(|log| kept.max_delivery_bytes(&log));
                    open_inside(max_message_bytes, most, |options| {
                        publisher.space_with(space.as_str(), options.open_timeout(Some(START_TIMEOUT)))
                    })
                };
                let inside = Inside::new(gate, bell.clone());
                let spaces = Spaces::new(spaces.iter().map(open).collect::<Result<_, _>>()?, Some(&inside));
                (spaces, Some(kept), None, bell, Some(inside))
            }
            Side::Beside(bell, receiving) => {
                let spaces = openings::open_spaces(&publisher, spaces, max_message_bytes)?;
                let spaces = Spaces::new(spaces, None);
                // With all topics whose names are in a space: nobody here knows which of them come from elsewhere.
                foreign = spaces.iter().map(|space| space.space().pattern().clone()).collect();
                (spaces, None, Some(Confirms::new(bell.waker(), receiving)), bell, None)
            }
        };
        Ok(Self {
            publisher,
            inside,
            spaces,
            foreign,
            max_message_bytes,
            open: HashMap::new(),
            gathering: Vec::new(),
            held: 0,
            max_held: MAX_HELD,
            uses: 0,
            wanted: HashMap::new(),
            asks: Vec::new(),
            attempts: Attempts::new(confirms.is_some()),
            refused: Vec::new(),
            is_missing: false,
            has_refused: false,
            awaited: 0,
            counts: BusCounts::default(),
            desk: LogDesk::new(kept, bell),
            confirms,
        })
    }

    /// What the subscriber receives from the start: the logs of the spaces, and what comes from elsewhere. So subscriptions of clients to channels
    /// cost no filter at the broker.
    pub(crate) fn always(&self) -> impl Iterator<Item = &str> {
        // Beside the broker, what comes from elsewhere has the spaces too.
        let spaces = self.spaces.iter().filter(|_| self.confirms.is_none());
        let logs = spaces.map(|space| space.space().log().as_str());
        logs.chain(self.foreign.iter().map(TopicFilter::as_str))
    }

    /// What it was asked for since.
    pub(super) fn asked(&self) -> impl Iterator<Item = &str> {
        let outside = self.wanted.iter().filter(|(_, wanted)| !wanted.is_inside);
        outside.map(|(filter, _)| filter.as_str())
    }

    /// Whether the subscriber receives a topic from the start.
    pub(super) fn receives(&self, topic: &TopicName) -> bool {
        self.foreign.iter().any(|foreign| foreign.matches(topic))
    }

    /// The publisher.
    pub(crate) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Takes the publisher's events. Returns whether there is room again.
    pub(crate) fn take_events(&mut self) -> bool {
        // What is gathered finds room without its clients, which may be many and wait for something else.
        let has_taken = self.inside.as_ref().is_some_and(Inside::take_has_room);
        let mut has_room = has_taken && std::mem::take(&mut self.has_refused);
        while let Some(event) = self.publisher.next_event(Some(Duration::ZERO)) {
            match event {
                PublisherEvent::Disconnected(why) => self.tell_connection(Some(&why)),
                PublisherEvent::Reconnected => {
                    self.tell_connection(None);
                    self.attempts.forget();
                    self.confirms.iter_mut().for_each(Confirms::ask_anew);
                    has_room = true;
                }
                PublisherEvent::Room { .. } => has_room = true,
                PublisherEvent::Missed { .. } => {
                    // Refusals may be among them.
                    self.all_ended().iter().for_each(|topic| self.on_topic_refused(topic));
                    has_room = true;
                }
                // A refusal may be that of a try before, for larger messages.
                PublisherEvent::TopicRefused { topic, .. } if self.is_open(&topic) => {}
                PublisherEvent::TopicRefused { topic, .. } => {
                    self.on_topic_refused(&topic);
                    has_room = true;
                }
                PublisherEvent::Ended { .. } => break,
                other => debug!("publisher: {other:?}"),
            }
        }
        has_room
    }

    /// The broker refuses a topic that is open, or the log of a space. The next message is answered with the reason, or opens it.
    fn on_topic_refused(&mut self, topic: &TopicName) {
        const WHY: &str = "the broker refuses the topic";
        self.close(topic, WHY);
        self.leave_space(topic, WHY);
        self.refused.push(topic.clone());
    }

    /// Topics that the broker refuses since the last call, and logs of spaces whose messages are lost.
    pub(crate) fn take_refused(&mut self) -> Vec<TopicName> {
        std::mem::take(&mut self.refused)
    }

    /// What the subscriber is to do next.
    pub(crate) fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// Whether the broker has yet to answer for some filter.
    pub(crate) fn awaits(&self) -> bool {
        self.awaited > 0
    }

    /// The broker refuses a filter. Returns whether somebody waits for it.
    pub(crate) fn on_not_subscribed(&mut self, filter: &TopicFilter) -> bool {
        let waits = self.wanted.get_mut(filter).filter(|wanted| wanted.state == State::Asked);
        let Some(wanted) = waits else { return false };
        wanted.state = State::Refused;
        self.awaited -= 1;
        true
    }

    /// All filters that are not refused are in force. Returns those that were not.
    pub(crate) fn on_settled(&mut self) -> Vec<TopicFilter> {
        let mut settled = Vec::with_capacity(self.awaited);
        self.awaited = 0;
        for (filter, wanted) in &mut self.wanted {
            if wanted.state == State::Asked {
                wanted.state = State::InForce;
                settled.push(filter.clone());
            }
        }
        settled
    }

    /// Ends a round. Returns whether clients wait for a topic that the broker has not taken.
    pub(crate) fn take_missing(&mut self) -> bool {
        self.attempts.end_round();
        std::mem::take(&mut self.is_missing)
    }

    /// What was counted since the last call.
    pub(crate) fn take_counts(&mut self) -> BusCounts {
        std::mem::take(&mut self.counts)
    }

    fn opened(&mut self, topic: &TopicName) -> Result<&mut Open, PublishError> {
        if !self.open.contains_key(topic) {
            self.open_topic(topic)?;
        }
        self.uses += 1;
        let open = self.open.get_mut(topic);
        let open = open.ok_or_else(|| PublishError::Refused("the topic is in a space now".to_owned()))?;
        open.used = self.uses;
        Ok(open)
    }

    /// Opens a topic, which may turn out to be in a space that is not known yet.
    fn open_topic(&mut self, topic: &TopicName) -> Result<(), PublishError> {
        let (begin, is_beside) = (Instant::now(), self.confirms.is_some());
        // While the broker is away, nothing waits for its answer. Clients are read again when it is there.
        if is_beside && !self.publisher.is_connected() {
            return Err(PublishError::Full);
        }
        if self.open.len() >= MAX_OPEN {
            self.close_oldest();
        }
        let attempt = match self.open.len() < MAX_OPEN {
            true => self.attempts.check(topic, begin),
            // Messages to all of them wait to be stored.
            false => Err(PublishError::Full),
        };
        if let Err(error) = attempt {
            self.is_missing |= error == PublishError::Full;
            return Err(error);
        }
        let opened = match is_beside {
            true => openings::open_topic(&self.publisher, topic, self.max_message_bytes),
            false => {
                let most = self.desk.max_delivery_bytes(topic);
                open_inside(self.max_message_bytes, most, |options| {
                    self.publisher.topic_with(topic.as_str(), options.open_timeout(Some(OPEN_TIMEOUT)))
                })
            }
        };
        let local = match (&opened, &self.inside) {
            (Ok(writer), Some(inside)) if writer.space().is_none() => inside.publisher(topic, OPEN_TIMEOUT),
            _ => None,
        };
        local.iter().for_each(|local| local.keep_bytes(EMPTY_BYTES));
        let end = Instant::now();
        self.attempts.asked(begin, end);
        let writer = opened.map_err(|error| {
            let error = self.attempts.failed(topic, &error, end);
            self.is_missing |= error == PublishError::Full;
            error
        })?;
        if !self.enter_space(&writer) {
            let log = local.as_ref().map(LocalPublisher::epoch).or_else(|| writer.epoch());
            let log = log.ok_or_else(|| PublishError::Refused("the topic has ended".to_owned()))?;
            self.open.insert(
                topic.clone(),
                Open { way: Way::new(writer, local), log, used: 0, held: 0, is_listed: false },
            );
        }
        Ok(())
    }

    /// The name of the log that messages to a topic outside of the spaces go to.
    pub(super) fn log_of(&mut self, topic: &TopicName) -> Result<Epoch, PublishError> {
        Ok(self.opened(topic)?.log)
    }

    /// Whether another member of the cluster has the log of an open topic.
    pub(super) fn is_elsewhere(&self, topic: &TopicName) -> bool {
        self.open.get(topic).is_some_and(|open| open.way.local.is_none() && open.way.writer.is_elsewhere())
    }

    /// Why the broker's disk takes nothing of an open topic.
    pub(super) fn disk_failure(&self, topic: &TopicName) -> Option<String> {
        self.open.get(topic)?.way.writer.disk_failure()
    }

    /// The position behind the last message to an open topic.
    pub(super) fn end_of(&self, topic: &TopicName) -> Position {
        self.open.get(topic).map_or(0, |open| open.way.end())
    }

    /// Messages that are gathered are lost.
    pub(super) fn close(&mut self, topic: &TopicName, why: &str) {
        if let Some(open) = self.open.remove(topic) {
            open.way.warn_of_lost(topic, why);
            self.held -= open.held;
            self.desk.closed(open.log, why);
        }
        self.confirms.iter_mut().for_each(|confirms| confirms.closed(topic, why));
    }

    /// Publishes without waiting, to the space or to the topic.
    fn put(
        &mut self,
        topic: &TopicName,
        attributes: Attributes<'_>,
        payload: &[u8],
    ) -> Result<Result<(), rbmq::PublishError>, PublishError> {
        if let Some(done) = self.spaces.put(topic, attributes, payload) {
            return Ok(done);
        }
        if !self.open.contains_key(topic) {
            self.open_topic(topic)?;
            if let Some(done) = self.spaces.put(topic, attributes, payload) {
                return Ok(done);
            }
        }
        if self.held >= self.max_held {
            self.flush();
        }
        if self.held >= self.max_held {
            self.is_missing = true;
            return Err(PublishError::Full);
        }
        let open = self.opened(topic)?;
        let published = open.way.put(topic, attributes, payload);
        let (before, held) = (open.count(), open.held);
        let is_new = held > 0 && !open.is_listed;
        open.is_listed |= is_new;
        self.held = self.held - before + held;
        if is_new {
            self.gathering.push(topic.clone());
        }
        Ok(published)
    }

    /// Publishes what is kept to be published together. What finds no room stays, and nothing more is taken until the events say that there is some.
    pub(crate) fn flush(&mut self) {
        for (log, why) in self.spaces.flush() {
            self.confirms.iter_mut().for_each(|confirms| confirms.closed(&log, &why));
            self.refused.push(log);
        }
        let mut gathering = std::mem::take(&mut self.gathering);
        gathering.retain(|topic| !self.flush_topic(topic));
        self.gathering = gathering;
    }

    /// Publishes what is gathered for a topic. False: it is not all in the log, or in the hands of the connection.
    pub(super) fn flush_topic(&mut self, topic: &TopicName) -> bool {
        let Some(open) = self.open.get_mut(topic) else { return true };
        let flushed = open.way.flush();
        let (before, held) = (open.count(), open.held);
        self.held = self.held - before + held;
        open.is_listed = held > 0;
        match flushed {
            Ok(()) => open.way.writer.pushed_mut().shrink_to(EMPTY_BYTES),
            Err(rbmq::PublishError::TimedOut { .. }) => {}
            Err(error) => {
                self.close(topic, &error.to_string());
                self.refused.push(topic.clone());
                return true;
            }
        }
        held == 0
    }

    /// Whether nothing is kept to be published together.
    pub(crate) fn is_flushed(&self) -> bool {
        self.spaces.are_flushed() && self.open.values().all(|open| open.way.is_flushed())
    }

    /// Of the topics that nothing waits for, closes the half that were not used for the longest time. What they have is still sent.
    fn close_oldest(&mut self) {
        // What is gathered in this round may have room.
        self.flush();
        let is_free = |topic: &TopicName, open: &Open| {
            let awaits = self.confirms.as_ref().is_some_and(|confirms| confirms.awaits(topic));
            !awaits && !self.desk.awaits(open.log) && open.held == 0
        };
        let free = self.open.iter().filter(|(topic, open)| is_free(topic, open));
        let mut free: Vec<_> = free.map(|(topic, open)| (open.used, topic.clone())).collect();
        free.sort_unstable_by_key(|(used, _)| *used);
        free.truncate(free.len().div_ceil(2));
        free.iter().for_each(|(_, topic)| self.close(topic, "the topic was closed"));
    }
}

impl Bus for Topics {
    fn publish(&mut self, topic: &TopicName, attributes: &[u8], payload: &[u8]) -> Result<(), PublishError> {
        let size = payload.len() as u64;
        let most = self.max_message_bytes.saturating_sub(attributes.len() as u64);
        if size > most {
            return Err(PublishError::TooLarge { most });
        }
        let attributes = Attributes::checked_before(attributes);
        match self.put(topic, attributes, payload)? {
            Ok(_) => {
                self.counts.published += 1;
                self.counts.published_bytes += size;
                Ok(())
            }
            Err(rbmq::PublishError::TimedOut { .. }) => {
                self.has_refused = true;
                Err(PublishError::Full)
            }
            Err(rbmq::PublishError::TooLarge { max, .. }) => {
                let headers = (RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES + attributes.len()) as u64;
                Err(PublishError::TooLarge { most: most.min(max.saturating_sub(headers)) })
            }
            Err(error) => {
                self.close(topic, &error.to_string());
                Err(PublishError::Refused(error.to_string()))
            }
        }
    }

    fn subscribe(&mut self, filter: &TopicFilter) -> bool {
        let wanted = self.wanted.entry(filter.clone()).or_default();
        wanted.count += 1;
        if wanted.count == 1 {
            let is_log = filter.levels().next() == Some(SPACES);
            let covers = |space: &SpaceWriter| self.confirms.is_none() && space.covers(filter);
            wanted.is_inside = is_log
                || self.spaces.iter().any(covers)
                || self.foreign.iter().any(|foreign| foreign.covers(filter));
        }
        if wanted.is_inside {
            wanted.state = State::InForce;
        } else if wanted.count == 1 || wanted.state == State::Refused {
            wanted.state = State::Asked;
            self.awaited += 1;
            self.asks.push(Ask::Subscribe(filter.clone()));
        }
        wanted.state == State::InForce
    }

    fn unsubscribe(&mut self, filter: &TopicFilter) {
        let Some(wanted) = self.wanted.get_mut(filter) else { return };
        wanted.count -= 1;
        if wanted.count == 0 {
            let is_inside = wanted.is_inside;
            self.awaited -= usize::from(wanted.state == State::Asked);
            self.wanted.remove(filter);
            if !is_inside {
                self.asks.push(Ask::Unsubscribe(filter.clone()));
            }
        }
    }

    fn is_log_of(&self, log: &TopicName, topic: &TopicName) -> bool {
        let space = self.spaces.iter().find(|space| space.contains(topic));
        space.map_or(topic, |space| space.space().log()) == log
    }
}

#[cfg(test)]
mod tests;
