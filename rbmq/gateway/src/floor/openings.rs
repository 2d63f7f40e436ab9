//! How spaces and topics of a broker in another process are opened.
//!
//! What a gateway in the broker's process reads from its rules, this one learns by asking: which spaces there are, and how large a delivery may be.

use std::sync::Arc;
use std::time::Duration;

use locks::Mutex;
use rbmq::{Publisher, RefuseCode, SpaceWriter, TopicOpenError, TopicOptions, TopicWriter};
use rbmq_broker::{Gate, KeptTopics};
use rbmq_wire::{ATTRIBUTES_HEADER_BYTES, MAX_TOPIC_BYTES, RECORD_HEADER_BYTES, TopicFilter, TopicName};
use tracing::warn;

use super::wake::Bell;

/// The headers of a record with attributes, and the name of its topic.
pub(super) const RECORD_HEADERS: u64 =
    (RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES + 4 + MAX_TOPIC_BYTES) as u64;

/// How long the broker has to take the spaces, before the gateway listens.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the broker has to take a topic. The gateway waits for it.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// The ring of a space, at least: what waits while the broker is away.
const SPACE_RING_BYTES: u64 = 8 << 20;

/// A broker that does not even take such deliveries is not asked for smaller ones.
const LEAST_DELIVERY_BYTES: u64 = 4096;

/// Where the broker is, as the topics see it.
pub(crate) enum Side {
    /// In this process, with the logs of its kept topics. The bell is rung when there is room again.
    Inside { kept: KeptTopics, gate: Gate, bell: Bell },
    /// In another process. The bell is rung when it has confirmed something, and the publisher asks where the subscriber receives.
    Beside(Bell, Receiving),
}

/// Which process of the broker the subscriber receives from, as far as the gateway's thread has seen. A broker that was restarted gets nothing
/// before the gateway would receive it: it may have room for less than what has waited.
#[derive(Debug, Clone, Default)]
pub(crate) struct Receiving(Arc<Mutex<From>>);

#[derive(Debug, Default)]
enum From {
    #[default]
    Nobody,
    Process(u128),
    /// The gateway stops, and receives nothing more.
    Anybody,
}

impl Receiving {
    /// The subscriber receives from this process, or from none.
    pub(super) fn set(&self, instance: Option<u128>) {
        *self.0.lock() = instance.map_or(From::Nobody, From::Process);
    }

    /// The publisher waits for the subscriber no more.
    pub(super) fn end(&self) {
        *self.0.lock() = From::Anybody;
    }

    /// Whether this process may get what the gateway has.
    pub(crate) fn is_from(&self, instance: u128) -> bool {
        match *self.0.lock() {
            From::Nobody => false,
            From::Process(of) => of == instance,
            From::Anybody => true,
        }
    }
}

/// A record stays in its ring until the subscribers have it, so that a broker that dies loses nothing of it.
pub(super) fn options(max_delivery_bytes: u64, timeout: Duration) -> TopicOptions {
    let options = TopicOptions::default().max_delivery_bytes(max_delivery_bytes);
    options.keep_until_delivered(true).open_timeout(Some(timeout))
}

/// Opens something for deliveries of so many bytes, or for smaller ones if the rings of the broker are too small.
pub(super) fn fitting<T>(
    max_delivery_bytes: u64,
    open: impl Fn(u64) -> Result<T, TopicOpenError>,
) -> Result<T, TopicOpenError> {
    let mut most = max_delivery_bytes;
    loop {
        match open(most) {
            Err(TopicOpenError::Refused { code: RefuseCode::Size, .. }) if most > LEAST_DELIVERY_BYTES => {
                // The limits of rings are powers of two.
                most = (most - 1).next_power_of_two() / 2;
            }
            done => return done,
        }
    }
}

fn open_space(
    publisher: &Publisher,
    pattern: &TopicFilter,
    max_message_bytes: u64,
) -> Result<SpaceWriter, TopicOpenError> {
    fitting(max_message_bytes + RECORD_HEADERS, |most| {
        let ring = SPACE_RING_BYTES.max(2 * most);
        publisher.space_with(pattern.as_str(), options(most, START_TIMEOUT).ring_bytes(ring))
    })
}

/// Opens the spaces of these patterns, and that of all topics if there is one, as on a broker with gateways.
pub(super) fn open_spaces(
    publisher: &Publisher,
    patterns: &[TopicFilter],
    max_message_bytes: u64,
) -> Result<Vec<SpaceWriter>, TopicOpenError> {
    let mut spaces = Vec::new();
    for pattern in patterns {
        spaces.push(open_space(publisher, pattern, max_message_bytes)?);
    }
    let all = TopicFilter::all();
    if patterns.contains(&all) {
        return Ok(spaces);
    }
    match open_space(publisher, &all, max_message_bytes) {
        Ok(space) => spaces.push(space),
        Err(TopicOpenError::Refused { code: RefuseCode::Invalid, .. }) => warn!(
            "the broker has no space for all topics, so each topic that clients use is opened and subscribed to one by one: add \
             [[broker.topics]] with pattern = \"#\" and space = true to its configuration, as a broker with a gateway has it"
        ),
        Err(TopicOpenError::Refused { code: RefuseCode::NotAllowed, reason, .. }) => warn!(
            "the gateway's user may not publish all topics ({reason}), so each topic that clients use is opened and subscribed to one by one"
        ),
        Err(other) => return Err(other),
    }
    Ok(spaces)
}

/// Opens a topic.
pub(super) fn open_topic(
    publisher: &Publisher,
    topic: &TopicName,
    max_message_bytes: u64,
) -> Result<TopicWriter, TopicOpenError> {
    let most = max_message_bytes + RECORD_HEADERS;
    fitting(most, |most| publisher.topic_with(topic.as_str(), options(most, OPEN_TIMEOUT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_deliveries_are_tried_until_one_fits() {
        let refused = |code| {
            let topic = "t".parse().expect("a name");
            TopicOpenError::Refused { topic, code, reason: String::new() }
        };
        let open = |most: u64| if most > 65_536 { Err(refused(RefuseCode::Size)) } else { Ok(most) };
        assert_eq!(fitting(256 << 10, open).expect("it fits at last"), 65_536);
        assert_eq!(fitting(1000, open).expect("it fits at once"), 1000);
        let never = fitting(256 << 10, |_| Err::<(), _>(refused(RefuseCode::Size)));
        assert!(matches!(never, Err(TopicOpenError::Refused { code: RefuseCode::Size, .. })));
        let other = fitting(256 << 10, |_| Err::<(), _>(refused(RefuseCode::Limit)));
        assert!(matches!(other, Err(TopicOpenError::Refused { code: RefuseCode::Limit, .. })));
    }
}
