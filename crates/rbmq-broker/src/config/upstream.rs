//! Other brokers to receive from: `[[broker.upstream]]`.

use std::time::Duration;

use rbmq_wire::{TopicFilter, TopicName};
use serde::{Deserialize, Serialize};

use super::sizes::{millis, optional_bytes};

/// Most other brokers that one receives from: each has a thread.
pub(super) const MAX_UPSTREAMS: usize = 64;

/// An entry of `[[broker.upstream]]`: another broker whose topics are received here and passed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSettings {
    /// Its address.
    pub address: String,
    /// Which of its topics. Default all (`#`).
    #[serde(default = "UpstreamSettings::all_topics")]
    pub topics: Vec<TopicFilter>,
    /// Bytes of the ring of each of its buffers here. Default `buffers.size_bytes`, and what its deliveries need.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_bytes")]
    pub ring_bytes: Option<u64>,
    /// How long it keeps this broker's place while the connection is lost, in milliseconds. Default 10,000. Small: what
    /// it keeps no longer by then is lost. Large: its publishers wait as long for a broker that does not come back.
    #[serde(default = "UpstreamSettings::default_hold_ms", deserialize_with = "millis")]
    pub hold_ms: u32,
}

impl UpstreamSettings {
    /// All topics of the broker at this address.
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

    /// Whether a topic is one of those that are received from it.
    pub(crate) fn wants(&self, topic: &TopicName) -> bool {
        self.topics.iter().any(|filter| filter.matches(topic))
    }

    /// `hold_ms` as a time.
    pub fn hold(&self) -> Duration {
        Duration::from_millis(self.hold_ms.into())
    }
}
