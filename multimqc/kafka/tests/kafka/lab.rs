//! Makers of levels for the conformance suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use multimqc::{Level, LevelKind};
use multimqc_conformance::Lab;
use multimqc_kafka::{KafkaConfig, KafkaLevel};

use crate::kafka::Kafka;

/// Levels in one Kafka, each with topics of its own.
pub struct Levels<'a> {
    kafka: &'a Kafka,
    made: AtomicUsize,
}

impl<'a> Levels<'a> {
    pub fn new(kafka: &'a Kafka) -> Levels<'a> {
        Levels { kafka, made: AtomicUsize::new(0) }
    }
}

impl Lab for Levels<'_> {
    fn kind(&self) -> LevelKind {
        LevelKind::Kafka
    }

    fn level(&self, capacity_bytes: u64, _: u64) -> Arc<dyn Level> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let config = KafkaConfig {
            prefix: format!("conformance-{number}"),
            retention_bytes: Some(8 * capacity_bytes),
            max_topics: 2,
            timeout: Duration::from_secs(30),
            ..KafkaConfig::new(self.kafka.address())
        };
        Arc::new(KafkaLevel::new(config).expect("the configuration is good"))
    }

    fn is_first(&self) -> bool {
        false
    }
}
