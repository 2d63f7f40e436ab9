//! The `[kafka]` section: the last level of kept topics.

use std::time::Duration;

use settings::section;

use super::super::rules::Rules;
use super::error::BrokerConfigError;

section! {
    /// The `[kafka]` section: an Apache Kafka that gets what kept topics have on disk, for topics with `kafka = true` in their rule.
    /// Subscribers then begin at positions that the disk has no more. Only an `rbmq` that was built with the feature `kafka` has it.
    "kafka" KafkaSettings {
        /// Addresses of Kafka's brokers, `HOST:PORT` with commas between them. Default "": there is no Kafka. A
        /// single one that answers is enough.
        brokers: String = String::new();
        /// The beginning of the names of Kafka's topics. Default "rbmq". The topic `plant/a` is `rbmq.plant_a.LOG`, with the name of its
        /// log (its epoch). So brokers that share a Kafka use topics of their own, also with the same prefix.
        prefix: String = "rbmq".into();
        /// How many brokers of Kafka keep each record, for topics that are made. Default 1.
        replicas: u16 = 1, range [1 to 32_767];
        /// The most bytes that Kafka keeps of each topic that is made, about. Default 64 GiB; 0: no limit. Kafka removes whole segments of
        /// its own. Too small: no more than the disk has.
        retention_bytes: u64 = 64 << 30, "bytes", range [at least 0];
        /// Kafka's own segments of topics that are made, in bytes. Default 64 MiB, at least 1 MiB.
        segment_bytes: u64 = 64 << 20, "bytes", range [1_048_576 to 1_073_741_824];
        /// Largest number of topics in Kafka. Default 64, at least 1. Each costs two threads and about 1 MiB. Further topics are on disk
        /// only.
        max_topics: usize = 64, range [1 to 10_000];
        /// Largest batch that is sent to Kafka at once, in bytes. Default 512 KiB, 4 KiB to 800 KiB. A larger delivery is sent in parts.
        /// Too small: more calls of Kafka for the same bytes.
        batch_bytes: u64 = 512 << 10, "bytes", range [4096 to 819_200];
        /// Longest time for which bytes on the disk wait for more before they are sent, in milliseconds. Default 1,000, at least 10. Too
        /// small: a record of Kafka for very few bytes.
        batch_ms: u64 = 1_000, "ms", range [10 to 3_600_000];
        /// How long a call waits for Kafka, in milliseconds. Default 5,000, at least 100. A broker that stops waits for at most one call.
        timeout_ms: u64 = 5_000, "ms", range [100 to 600_000];
        /// How long a subscriber waits for a Kafka that does not answer, in milliseconds. Default 60,000. Data that only Kafka has
        /// is reported as lost afterwards.
        replay_wait_ms: u64 = 60_000, "ms", range [at least 0];
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
    use super::super::BrokerConfig;
    use super::*;

    #[test]
    fn values_that_kafka_would_refuse_are_refused_here() {
        let problem = |change: fn(&mut KafkaSettings)| {
            let mut config = BrokerConfig::default();
            change(&mut config.kafka);
            config.validate().map_err(|error| error.to_string())
        };
        problem(|_| {}).unwrap();
        for (change, expected) in [
            ((|s| s.prefix = "a/b".into()) as fn(&mut KafkaSettings), "kafka.prefix = \"a/b\""),
            (|s| s.prefix.clear(), "kafka.prefix"),
            (|s| s.replicas = 0, "kafka.replicas = 0"),
            (|s| s.batch_bytes = 1 << 20, "kafka.batch_bytes = 1048576: it must be 4096 to 819200 bytes"),
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
            BrokerConfig::load(Some(&path)).map_err(|error| error.to_string())
        };
        let error = load(text).unwrap_err();
        assert!(error.contains("set kafka.brokers") && error.ends_with("line 6)"), "{error}");
        let config = load(&format!("{text}[kafka]\nbrokers = 'a:9092,b:9092'\nbatch_ms = '2s'\n")).unwrap();
        assert_eq!((config.kafka.brokers.as_str(), config.kafka.batch_ms), ("a:9092,b:9092", 2_000));
        assert!(config.broker.topics.of(&"a".parse().unwrap()).kafka);
    }
}
