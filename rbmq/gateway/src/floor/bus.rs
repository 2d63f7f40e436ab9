//! The topics of the broker, as a gateway publishes and receives them.
//!
//! One publisher and one subscriber serve all clients. A topic is opened when a client publishes to it, and closed when others are published to
//! and there are many.

use std::collections::HashMap;
use std::time::Duration;

use rbmq::{Publisher, PublisherEvent, TopicOpenError, TopicOptions, TopicWriter};
use rbmq_wire::{ATTRIBUTES_HEADER_BYTES, Attributes, RECORD_HEADER_BYTES, TopicFilter, TopicName};
use tracing::debug;

use crate::protocol::{Bus, PublishError};

/// The most topics that are open for publishing.
const MAX_OPEN: usize = 1000;

/// How long the broker has to take a topic.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The headers of a record with attributes.
const RECORD_HEADERS: u64 = (RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES) as u64;

/// A topic that is open.
struct Open {
    writer: TopicWriter,
    /// The number of the last use.
    used: u64,
}

/// A filter that clients have subscribed to.
#[derive(Debug, Default)]
struct Wanted {
    count: usize,
    is_in_force: bool,
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
    publisher: Publisher,
    max_message_bytes: u64,
    open: HashMap<TopicName, Open>,
    uses: u64,
    wanted: HashMap<TopicFilter, Wanted>,
    asks: Vec<Ask>,
    counts: BusCounts,
}

impl Topics {
    /// Topics of the publisher's broker. Messages have so many bytes at most.
    pub(crate) fn new(publisher: Publisher, max_message_bytes: u64) -> Self {
        let (open, wanted) = (HashMap::new(), HashMap::new());
        let counts = BusCounts::default();
        Self { publisher, max_message_bytes, open, uses: 0, wanted, asks: Vec::new(), counts }
    }

    /// The publisher.
    pub(crate) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Takes the publisher's events. Returns whether there is room again.
    pub(crate) fn take_events(&mut self) -> bool {
        let mut has_room = false;
        while let Some(event) = self.publisher.next_event(Some(Duration::ZERO)) {
            match event {
                PublisherEvent::Room { .. } | PublisherEvent::Reconnected => has_room = true,
                PublisherEvent::TopicRefused { topic, .. } => {
                    // The next message is answered with the reason, or opens it.
                    self.open.remove(&topic);
                    has_room = true;
                }
                PublisherEvent::Ended { .. } => break,
                other => debug!("publisher: {other:?}"),
            }
        }
        has_room
    }

    /// What the subscriber is to do next.
    pub(crate) fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// Whether some filter is not in force.
    pub(crate) fn awaits(&self) -> bool {
        self.wanted.values().any(|wanted| !wanted.is_in_force)
    }

    /// All filters are in force. Returns those that were not.
    pub(crate) fn on_settled(&mut self) -> Vec<TopicFilter> {
        let mut settled = Vec::new();
        for (filter, wanted) in &mut self.wanted {
            if !std::mem::replace(&mut wanted.is_in_force, true) {
                settled.push(filter.clone());
            }
        }
        settled
    }

    /// What was counted since the last call.
    pub(crate) fn take_counts(&mut self) -> BusCounts {
        std::mem::take(&mut self.counts)
    }

    fn open(&mut self, topic: &TopicName) -> Result<&mut Open, PublishError> {
        if !self.open.contains_key(topic) {
            if self.open.len() >= MAX_OPEN {
                self.close_oldest();
            }
            let options = TopicOptions::default()
                .max_delivery_bytes(self.max_message_bytes + RECORD_HEADERS)
                .open_timeout(Some(OPEN_TIMEOUT));
            let writer = self.publisher.topic_with(topic.as_str(), options).map_err(|error| match error {
                TopicOpenError::TimedOut { .. } => PublishError::Full,
                other => PublishError::Refused(other.to_string()),
            })?;
            self.open.insert(topic.clone(), Open { writer, used: 0 });
        }
        self.uses += 1;
        let open = self.open.get_mut(topic).expect("it was opened");
        open.used = self.uses;
        Ok(open)
    }

    /// Closes the half of the topics that were not used for the longest time. What they have is still sent.
    fn close_oldest(&mut self) {
        let mut uses: Vec<u64> = self.open.values().map(|open| open.used).collect();
        let middle = uses.len() / 2;
        let (_, middle, _) = uses.select_nth_unstable(middle);
        let middle = *middle;
        self.open.retain(|_, open| open.used >= middle);
    }
}

impl Bus for Topics {
    fn publish(&mut self, topic: &TopicName, attributes: &[u8], payload: &[u8]) -> Result<(), PublishError> {
        let size = payload.len() as u64;
        let most = self.max_message_bytes.saturating_sub(attributes.len() as u64);
        if size > most {
            return Err(PublishError::TooLarge { most });
        }
        let writer = &mut self.open(topic)?.writer;
        let now = Some(Duration::ZERO);
        let published = match attributes {
            [] => writer.publish_timeout(payload, now),
            _ => writer.publish_with_timeout(Attributes::checked_before(attributes), payload, now),
        };
        match published {
            Ok(_) => {
                self.counts.published += 1;
                self.counts.published_bytes += size;
                Ok(())
            }
            Err(rbmq::PublishError::TimedOut { .. }) => Err(PublishError::Full),
            Err(rbmq::PublishError::TooLarge { .. }) => Err(PublishError::TooLarge { most }),
            Err(error) => {
                self.open.remove(topic);
                Err(PublishError::Refused(error.to_string()))
            }
        }
    }

    fn subscribe(&mut self, filter: &TopicFilter) -> bool {
        let wanted = self.wanted.entry(filter.clone()).or_default();
        wanted.count += 1;
        if wanted.count == 1 {
            self.asks.push(Ask::Subscribe(filter.clone()));
        }
        wanted.is_in_force
    }

    fn unsubscribe(&mut self, filter: &TopicFilter) {
        let Some(wanted) = self.wanted.get_mut(filter) else { return };
        wanted.count -= 1;
        if wanted.count == 0 {
            self.wanted.remove(filter);
            self.asks.push(Ask::Unsubscribe(filter.clone()));
        }
    }
}
