//! The way of messages to a dead-letter topic.

use std::collections::VecDeque;
use std::time::Duration;

use rbmq_groups::Dead;
use rbmq_wire::{Attributes, AttributesBuf, Records, TopicName, push_record_with};
use rocketbufs::{Epoch, Position};
use tracing::warn;

use super::super::inbox::Event;
use super::super::merge::{LocalAsk, LocalPublisher, NotTaken};
use super::shared::Around;

/// The longest wait for the broker's thread.
const ANSWER: Duration = Duration::from_secs(1);

/// Publishes into the dead-letter topic of a group.
#[derive(Default)]
pub(super) struct Burial {
    publisher: Option<LocalPublisher>,
    /// Messages that were published, and where they end in the log of the publisher.
    published: VecDeque<(Position, Position)>,
}

impl Burial {
    /// Publishes a message. False: the topic does not take it now.
    pub(super) fn publish(&mut self, letter: &Letter<'_>, topic: &TopicName, around: &Around<'_>) -> bool {
        if self.publisher.is_none() {
            self.publisher = open(topic, around);
        }
        let Some(publisher) = &mut self.publisher else {
            warn!("topic '{topic}' takes no dead letters: it is not open");
            return false;
        };
        let mut batch = letter.encode();
        let mut taken = publisher.publish(&mut batch);
        if matches!(taken, Err(NotTaken::TooLarge(_))) {
            batch = letter.record.to_vec();
            taken = publisher.publish(&mut batch);
        }
        match taken {
            Ok(()) => {
                self.published.push_back((letter.dead.position, publisher.position()));
                true
            }
            Err(NotTaken::Full) => {
                // The wake-up that follows is that of what was stored.
                false
            }
            Err(NotTaken::TooLarge(max)) => {
                warn!(
                    "topic '{topic}' takes no dead letter of {} bytes: {max} at most (ring_bytes)",
                    letter.record.len()
                );
                false
            }
            Err(NotTaken::Ended) => {
                self.publisher = None;
                false
            }
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
}

fn open(topic: &TopicName, around: &Around<'_>) -> Option<LocalPublisher> {
    let (ask, answer) = LocalAsk::new(topic.clone(), || ());
    around.events.event(Event::Local(Box::new(ask)));
    let publisher = answer.recv_timeout(ANSWER).ok().flatten()?;
    around.ear.follow_publisher(publisher.epoch(), true);
    Some(publisher)
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
