//! The `[kafka]` section: the last level of kept topics.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::rules::Rules;
use super::error::BrokerConfigError;
use super::sizes;

described! {
/// The `[kafka]` section: an Apache Kafka that gets what kept topics have on disk, for topics with `kafka = true` in their rule.
/// Subscribers then begin at positions that the disk has no more. Only an `rbmq` that was built with the feature `kafka` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaSettings {
    /// Addresses of Kafka's brokers, `HOST:PORT` with commas between them. Default "": there is no Kafka. A
    /// single one that answers is enough.
    pub brokers: String,
    /// The beginning of the names of Kafka's topics. Default "rbmq". The topic `plant/a` is `rbmq.plant_a.LOG`, with the name of its
    /// log (its epoch). So brokers that share a Kafka use topics of their own, also with the same prefix.
    pub prefix: String,
    /// How many brokers of Kafka keep each record, for topics that are made. Default 1.
    pub replicas: u16,
    /// The most bytes that Kafka keeps of each topic that is made, about. Default 64 GiB; 0: no limit. Kafka removes whole segments of
    /// its own. Too small: no more than the disk has.
    #[serde(deserialize_with = "sizes::bytes")]
    pub retention_bytes: u64,
    /// Kafka's own segments of topics that are made, in bytes. Default 64 MiB, at least 1 MiB.
    #[serde(deserialize_with = "sizes::bytes")]
    pub segment_bytes: u64,
    /// Largest number of topics in Kafka. Default 64, at least 1. Each costs two threads and about 1 MiB. Further topics are on disk
    /// only.
    pub max_topics: usize,
    /// Largest batch that is sent to Kafka at once, in bytes. Default 512 KiB, 4 KiB to 800 KiB. A larger delivery is sent in parts.
    /// Too small: more calls of Kafka for the same bytes.
    #[serde(deserialize_with = "sizes::bytes")]
    pub batch_bytes: u64,
    /// Longest time for which bytes on the disk wait for more before they are sent, in milliseconds. Default 1,000, at least 10. Too
    /// small: a record of Kafka for very few bytes.
    #[serde(deserialize_with = "sizes::millis")]
    pub batch_ms: u64,
    /// How long a call waits for Kafka, in milliseconds. Default 5,000, at least 100. A broker that stops waits for at most one call.
    #[serde(deserialize_with = "sizes::millis")]
    pub timeout_ms: u64,
    /// How long a subscriber waits for a Kafka that does not answer, in milliseconds. Default 60,000. Data that only Kafka has
    /// is reported as lost afterwards.
    #[serde(deserialize_with = "sizes::millis")]
    pub replay_wait_ms: u64,
}
}

impl Default for KafkaSettings {
    fn default() -> Self {
        Self {
            brokers: String::new(),
            prefix: "rbmq".into(),
            replicas: 1,
            retention_bytes: 64 << 30,
            segment_bytes: 64 << 20,
            max_topics: 64,
            batch_bytes: 512 << 10,
            batch_ms: 1_000,
            timeout_ms: 5_000,
            replay_wait_ms: 60_000,
        }
    }
}

impl KafkaSettings {
    /// `batch_ms` as a duration.
    pub fn batch_age(&self) -> Duration {
        Duration::from_millis(self.batch_ms)
    }

    /// `timeout_ms` as a duration.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// `replay_wait_ms` as a duration.
    pub fn replay_wait(&self) -> Duration {
        Duration::from_millis(self.replay_wait_ms)
    }

    pub(super) fn validate(&self, rules: &Rules) -> Result<(), BrokerConfigError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.prefix.is_empty() || self.prefix.len() > 60 || !self.prefix.chars().all(legal) {
            return Err(BrokerConfigError::Word {
                name: "kafka.prefix",
                value: self.prefix.clone(),
                expects: "1 to 60 letters, digits, '.', '_' and '-'",
            });
        }
        let ranges = [
            ("kafka.replicas", u64::from(self.replicas), 1..=32_767, "1 to 32767"),
            ("kafka.segment_bytes", self.segment_bytes, 1 << 20..=1 << 30, "1 MiB to 1 GiB"),
            ("kafka.max_topics", self.max_topics as u64, 1..=10_000, "1 to 10000"),
            ("kafka.batch_bytes", self.batch_bytes, 4 << 10..=800 << 10, "4 KiB to 800 KiB"),
            ("kafka.batch_ms", self.batch_ms, 10..=3_600_000, "10 ms to 1 hour"),
            ("kafka.timeout_ms", self.timeout_ms, 100..=600_000, "100 ms to 10 minutes"),
        ];
        for (name, value, range, expects) in ranges {
            if !range.contains(&value) {
                return Err(BrokerConfigError::Value { name, value, expects });
            }
        }
        if self.brokers.is_empty()
            && let Some(rule) = rules.iter().position(|rule| rule.kafka)
        {
            let message = "kafka = true needs the addresses of a Kafka: set kafka.brokers".to_owned();
            return Err(BrokerConfigError::Rule { rule, field: "kafka", message });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_kafka_would_refuse_are_refused_here() {
        let problem = |change: fn(&mut KafkaSettings)| {
            let mut settings = KafkaSettings::default();
            change(&mut settings);
            settings.validate(&Rules::default()).map_err(|error| error.to_string())
        };
        problem(|_| {}).unwrap();
        for (change, expected) in [
            ((|s| s.prefix = "a/b".into()) as fn(&mut KafkaSettings), "kafka.prefix = \"a/b\""),
            (|s| s.prefix.clear(), "kafka.prefix"),
            (|s| s.replicas = 0, "kafka.replicas = 0"),
            (|s| s.batch_bytes = 1 << 20, "4 KiB to 800 KiB"),
            (|s| s.batch_ms = 0, "kafka.batch_ms = 0"),
            (|s| s.max_topics = 0, "kafka.max_topics = 0"),
        ] {
            let error = problem(change).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_rule_needs_the_address_of_a_kafka() {
        let text = "[broker]\nkeep_dir = '/x'\n[[broker.topics]]\npattern = 'a'\nkeep = true\nkafka = true\n";
        let load = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("rbmq.toml");
            std::fs::write(&path, text).unwrap();
            super::super::BrokerConfig::load(Some(&path)).map_err(|error| error.to_string())
        };
        let error = load(text).unwrap_err();
        assert!(error.contains("set kafka.brokers") && error.ends_with("line 6)"), "{error}");
        let config = load(&format!("{text}[kafka]\nbrokers = 'a:9092,b:9092'\nbatch_ms = '2s'\n")).unwrap();
        assert_eq!((config.kafka.brokers.as_str(), config.kafka.batch_ms), ("a:9092,b:9092", 2_000));
        assert!(config.broker.topics.of(&"a".parse().unwrap()).kafka);
    }
}
