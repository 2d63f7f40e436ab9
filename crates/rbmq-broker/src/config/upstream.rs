//! Upstream brokers: `[[broker.upstream]]`.

use std::time::Duration;

use rbmq_wire::{TopicFilter, TopicName};
use serde::{Deserialize, Serialize};

use super::sizes::{millis, optional_bytes};

/// The largest number of upstream brokers. Each has a thread.
pub(super) const MAX_UPSTREAMS: usize = 64;

/// An entry of `[[broker.upstream]]`: another broker whose topics this broker receives and forwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSettings {
    /// The address of the other broker.
    pub address: String,
    /// The topics that are received. Default all (`#`).
    #[serde(default = "UpstreamSettings::all_topics")]
    pub topics: Vec<TopicFilter>,
    /// Ring of each received buffer, in bytes. Default `buffers.size_bytes`, or more if the deliveries need it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub ring_bytes: Option<u64>,
    /// Time for which the other broker keeps the positions of this broker while the connection is lost, in milliseconds.
    /// Default 10,000. Too small: data is lost in longer interruptions. Too large: its publishers wait for this time for a
    /// broker that doesn't come back.
    #[serde(default = "UpstreamSettings::default_hold_ms", deserialize_with = "millis")]
    pub hold_ms: u32,
}

impl UpstreamSettings {
    /// All topics of the broker at an address.
    pub fn new(address: &str) -> Self {
        let (topics, hold_ms) = (Self::all_topics(), Self::default_hold_ms());
        Self { address: address.to_owned(), topics, ring_bytes: None, hold_ms }
    }

    fn all_topics() -> Vec<TopicFilter> {
        vec!["#".parse().expect("a filter")]
    }

    fn default_hold_ms() -> u32 {
        10_000
    }

    /// Whether a topic is received from this broker.
    pub(crate) fn wants(&self, topic: &TopicName) -> bool {
        self.topics.iter().any(|filter| filter.matches(topic))
    }

    /// `hold_ms` as a duration.
    pub fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms.into())
    }
}
