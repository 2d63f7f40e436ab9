//! The Kafka level, in a command that was built with it.

use std::sync::Arc;

use commands::Failure;
use multimqc::Level;
use settings::section;

section! {
    /// The table `kafka` of the configuration file. Every build reads the table, so that a file fits all of them.
    "kafka" Kafka {
        brokers: String = "127.0.0.1:9092".into();
        prefix: String = "multimqc".into();
        replicas: i32 = 1, range [at least 0];
        retention_bytes: u64 = 1 << 30, "bytes", range [at least 0];
        segment_bytes: u64 = 64 << 20, "bytes", range [at least 0];
        timeout_ms: u64 = 5000, "ms", range [at least 0];
        restart_gap_bytes: u64 = 64 << 20, "bytes", range [at least 0];
    }
}

impl Kafka {
    /// The level for this many topics.
    #[cfg(feature = "kafka")]
    pub fn level(&self, topics: usize) -> Result<Arc<dyn Level>, Failure> {
        use multimqc_kafka::{KafkaConfig, KafkaLevel};
        let config = KafkaConfig {
            prefix: self.prefix.clone(),
            replicas: self.replicas,
            retention_bytes: Some(self.retention_bytes).filter(|bytes| *bytes > 0),
            segment_bytes: self.segment_bytes,
            timeout: std::time::Duration::from_millis(self.timeout_ms.max(1)),
            max_topics: topics,
            restart_gap_bytes: self.restart_gap_bytes,
            ..KafkaConfig::new(&self.brokers)
        };
        let level =
            KafkaLevel::new(config).map_err(|error| Failure::Failed(format!("level kafka: {error}")))?;
        Ok(Arc::new(level))
    }

    /// The error with the way to get the level.
    #[cfg(not(feature = "kafka"))]
    #[expect(clippy::unused_self, reason = "the same call in both builds")]
    pub fn level(&self, _topics: usize) -> Result<Arc<dyn Level>, Failure> {
        let message =
            "level kafka: this command was built without it; build multimqc-cli with --features kafka";
        Err(Failure::Failed(message.into()))
    }
}

#[cfg(all(test, feature = "kafka"))]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_level() {
        let (here, there) = (Kafka::default(), multimqc_kafka::KafkaConfig::new("127.0.0.1:9092"));
        assert_eq!((here.brokers, here.prefix, here.replicas), (there.brokers, there.prefix, there.replicas));
        assert_eq!(
            (Some(here.retention_bytes), here.segment_bytes),
            (there.retention_bytes, there.segment_bytes)
        );
        assert_eq!(u128::from(here.timeout_ms), there.timeout.as_millis());
        assert_eq!(here.restart_gap_bytes, there.restart_gap_bytes);
    }
}
