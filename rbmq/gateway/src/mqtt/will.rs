//! The will of a client.

use std::time::Duration;

use rbmq_wire::TopicName;

use super::journal::entry::Testament;

/// What it takes in memory beside its contents, about.
const ENTRY: usize = 100;

/// A will.
#[derive(Debug)]
pub(super) struct OwnedWill {
    pub(super) topic: TopicName,
    pub(super) qos: u8,
    pub(super) retain: bool,
    /// Encoded properties without the will delay.
    pub(super) properties: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) delay: Duration,
    /// From the journal: whether the client may still publish it is not known.
    pub(super) is_restored: bool,
}

impl OwnedWill {
    /// As the journal has it.
    pub(super) fn testament(&self) -> Testament<'_> {
        let Self { topic, qos, retain, properties, payload, delay, .. } = self;
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        Testament { topic: topic.as_str(), qos: *qos, retain: *retain, delay_ms, properties, payload }
    }

    /// From the journal. None: no topic has this name.
    pub(super) fn restore(will: Testament<'_>) -> Option<Self> {
        let Testament { topic, qos, retain, delay_ms, properties, payload } = will;
        let (topic, delay) = (topic.parse().ok()?, Duration::from_millis(delay_ms));
        let (properties, payload) = (properties.to_vec(), payload.to_vec());
        Some(Self { topic, qos, retain, properties, payload, delay, is_restored: true })
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        ENTRY + self.topic.as_str().len() + self.properties.len() + self.payload.len()
    }
}
