//! The way of messages to a dead-letter topic.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};

use rbmq_groups::Dead;
use rbmq_wire::{Attributes, AttributesBuf, Records, TopicName, push_record_with};
use rocketbufs::{Epoch, Position};
use tracing::warn;

use super::super::inbox::Event;
use super::super::kept::Ear;
use super::super::merge::{LocalAsk, LocalPublisher, NotTaken};
use super::shared::Around;

/// A topic that is not there is looked for again after this time, in milliseconds.
const RETRY_MS: u64 = 1000;

/// The answer of the broker's thread is looked for after this time, in milliseconds.
const ANSWER_MS: u64 = 20;

/// Publishes into the dead-letter topic of a group. The topic has been made by somebody who publishes it.
#[derive(Default)]
pub(super) struct Burial {
    publisher: Option<LocalPublisher>,
    /// The answer of the broker's thread, which makes the publisher.
    asked: Option<Receiver<Option<LocalPublisher>>>,
    /// Messages that were published and are not stored, and where they end in the log of the publisher.
    published: VecDeque<(Position, Position)>,
    /// Nothing is asked before this time.
    retry: u64,
    /// The log says what it does not take once.
    has_warned: bool,
}

/// What became of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// It is published. That it is stored follows.
    Published,
    /// The publisher has one that is not merged. The groups are woken when it is.
    Wait,
    /// The topic does not take it now.
    Later,
}

impl Burial {
    /// Whether the topic takes a message of so many bytes; only then is the message read. The largest messages go without their properties.
    pub(super) fn takes(&mut self, len: u32, topic: &TopicName) -> bool {
        let max = self.publisher.as_ref().map_or(0, LocalPublisher::max_bytes);
        let takes = len as usize <= max;
        if !takes {
            self.warn(
                topic,
                &format!(
                    "one has {len} bytes, and it takes {max} at most (broker.max_message_bytes, ring_bytes)"
                ),
            );
        }
        takes
    }

    /// Publishes a message.
    pub(super) fn publish(&mut self, letter: &Letter<'_>) -> Sent {
        let Some(publisher) = &mut self.publisher else { return Sent::Later };
        let mut batch = letter.encode();
        let mut taken = publisher.publish(&mut batch);
        if matches!(taken, Err(NotTaken::TooLarge(_))) {
            batch = letter.record.to_vec();
            taken = publisher.publish(&mut batch);
        }
        match taken {
            Ok(()) => {
                self.has_warned = false;
                self.published.push_back((letter.dead.position, publisher.position()));
                Sent::Published
            }
            Err(NotTaken::Full) => Sent::Wait,
            // `ended` takes back what is not stored. A letter that is too large was not read.
            Err(NotTaken::Ended | NotTaken::TooLarge(_)) => Sent::Later,
        }
    }

    /// Whether letters can be published. It asks for a publisher, if there is none, and takes the answer; both have their time, however many
    /// letters wait. It does not wait: the broker's thread may wait for this one.
    pub(super) fn is_open(&mut self, topic: &TopicName, around: &Around<'_>) -> bool {
        if self.publisher.is_some() {
            return true;
        }
        if self.retry <= around.now {
            self.retry = around.now + ANSWER_MS;
            self.open(topic, around);
        }
        self.publisher.is_some()
    }

    /// When it asks next, if it has no publisher.
    pub(super) fn asks_at(&self) -> Option<u64> {
        self.publisher.is_none().then_some(self.retry)
    }

    fn open(&mut self, topic: &TopicName, around: &Around<'_>) {
        let Some(asked) = &self.asked else {
            // Nobody would say that a letter is stored.
            if around.logs.of(topic).is_none() {
                self.retry = around.now + RETRY_MS;
                return self.warn(topic, "it has no log on the disk of this broker");
            }
            let wake = around.wake.clone();
            let (ask, answer) = LocalAsk::new(topic.clone(), move || wake());
            let ask = ask.with_growth();
            around.events.event(Event::Local(Box::new(ask)));
            self.asked = Some(answer);
            return;
        };
        match asked.try_recv() {
            Ok(Some(publisher)) => {
                around.ear.follow_publisher(publisher.epoch(), true);
                (self.publisher, self.asked) = (Some(publisher), None);
            }
            Err(TryRecvError::Empty) => {}
            Ok(None) | Err(TryRecvError::Disconnected) => {
                self.asked = None;
                self.retry = around.now + RETRY_MS;
                self.warn(topic, "it is not open");
            }
        }
    }

    fn warn(&mut self, topic: &TopicName, reason: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            warn!("topic '{topic}' takes no dead letters: {reason}");
        }
    }

    /// The name of the publisher's log.
    pub(super) fn log(&self) -> Option<Epoch> {
        self.publisher.as_ref().map(LocalPublisher::epoch)
    }

    /// Everything of the publisher's log below a position is stored. Returns the messages that are.
    pub(super) fn stored(&mut self, to: Position) -> Vec<Position> {
        let count = self.published.partition_point(|(_, end)| *end <= to);
        self.published.drain(..count).map(|(position, _)| position).collect()
    }

    /// If the publisher's log has ended: the messages of which nobody will say that they are stored, which are to be published again.
    pub(super) fn ended(&mut self, ear: &Ear) -> Vec<Position> {
        if !self.publisher.as_ref().is_some_and(LocalPublisher::has_ended) {
            return Vec::new();
        }
        self.close(ear);
        self.published.drain(..).map(|(position, _)| position).collect()
    }

    /// Ends the publisher.
    pub(super) fn close(&mut self, ear: &Ear) {
        if let Some(publisher) = self.publisher.take() {
            ear.follow_publisher(publisher.epoch(), false);
        }
    }
}

/// A message for a dead-letter topic.
pub(super) struct Letter<'a> {
    pub(super) dead: Dead,
    pub(super) record: &'a [u8],
    pub(super) topic: &'a TopicName,
    pub(super) group: &'a str,
}

impl Letter<'_> {
    /// The record as it was, with properties that say where it comes from.
    fn encode(&self) -> Vec<u8> {
        let Self { dead, record, topic, group } = *self;
        let mut batch = Vec::with_capacity(record.len() + 256);
        let mut attributes = AttributesBuf::default();
        let whole = Records::new(record).next_record();
        let (before, payload) =
            whole.map_or((Attributes::EMPTY, record), |record| (record.attributes, record.payload));
        attributes.copy_from(before);
        let facts = [
            ("rbmq-topic", topic.to_string()),
            ("rbmq-group", group.to_owned()),
            ("rbmq-position", dead.position.to_string()),
            ("rbmq-attempts", dead.attempts.to_string()),
        ];
        for (key, value) in facts {
            // They are short.
            let _ = attributes.property(key, &value);
        }
        push_record_with(&mut batch, attributes.attributes(), payload);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::kept::News;
    use super::*;

    #[test]
    fn what_an_ended_publisher_has_not_stored_is_published_again() {
        let ear = News::default().listen(|| ());
        let (mut burial, (publisher, ring)) = (Burial::default(), LocalPublisher::of_nobody(Epoch(1)));
        burial.publisher = Some(publisher);
        burial.published.extend([(7, 100), (8, 200)]);
        assert_eq!((burial.stored(100), burial.ended(&ear)), (vec![7], vec![]));
        drop(ring);
        assert_eq!((burial.ended(&ear), burial.log()), (vec![8], None));
        // The positions of the next one say nothing of what the first one published.
        let (publisher, _ring) = LocalPublisher::of_nobody(Epoch(2));
        burial.publisher = Some(publisher);
        assert_eq!((burial.stored(1000), burial.ended(&ear)), (vec![], vec![]));
    }
}
