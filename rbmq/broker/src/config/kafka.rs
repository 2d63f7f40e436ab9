//! The `[kafka]` section: the last level of kept topics.

use super::archive_section::archive_section;
use super::error::BrokerConfigError;

archive_section! {
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
    }
    /// Largest batch that is sent to Kafka at once, in bytes. Default 512 KiB, 4 KiB to 800 KiB. A larger delivery is sent in parts.
    /// Too small: more calls of Kafka for the same bytes.
    batch_bytes = 512 << 10, range [4096 to 819_200];
}

impl KafkaSettings {
    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.prefix.is_empty() || self.prefix.len() > 60 || !self.prefix.chars().all(legal) {
            return Err(BrokerConfigError::Word {
                name: "kafka.prefix",
                value: self.prefix.clone(),
                expects: "1 to 60 letters, digits, '.', '_' and '-'",
            });
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
}
