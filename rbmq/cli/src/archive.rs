//! The archives below the disk of kept topics: object stores, and Kafka in a command that was built with it. MultiMQC's level of an Apache
//! Kafka is then the archive of the broker.

use std::sync::Arc;

use commands::Failure;
use rbmq_broker::{Archive, BrokerConfig};
use rbmq_s3::S3Archive;

/// The archive of a configuration, if there is one. It is not asked yet.
///
/// # Errors
/// The section cannot be used.
pub(super) fn of(config: &BrokerConfig) -> Result<Option<Arc<dyn Archive>>, Failure> {
    if !config.s3.bucket.is_empty() {
        let archive = S3Archive::new(&config.s3)
            .map_err(|error| Failure::Failed(format!("the section [s3] cannot be used: {error}")))?;
        return Ok(Some(Arc::new(archive)));
    }
    if config.kafka.brokers.is_empty() {
        return Ok(None);
    }
    #[cfg(feature = "kafka")]
    return level::open(&config.kafka).map(Some);
    #[cfg(not(feature = "kafka"))]
    {
        let message = "kafka.brokers is set, and this rbmq was built without Kafka; build it with: cargo build -p rbmq-cli \
                       --features kafka; or remove the section [kafka], and kafka = true from the rules";
        Err(Failure::Failed(message.into()))
    }
}

#[cfg(feature = "kafka")]
mod level {
    use std::collections::HashMap;
    use std::ops::Range;
    use std::sync::Arc;

    use commands::Failure;
    use locks::Mutex;
    use multimqc::{Batch, Epoch, Level, LevelError, Stop, TopicId};
    use multimqc_kafka::{KafkaConfig, KafkaLevel};
    use rbmq_broker::{Archive, ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog, KafkaSettings};
    use rocketbufs::Position;

    pub(super) fn open(settings: &KafkaSettings) -> Result<Arc<dyn Archive>, Failure> {
        let archive = KafkaArchive::new(settings)
            .map_err(|error| Failure::Failed(format!("the section [kafka] cannot be used: {error}")))?;
        Ok(Arc::new(archive))
    }

    /// The topics of a broker in a Kafka.
    struct KafkaArchive {
        level: Arc<KafkaLevel>,
        prefix: String,
        /// The numbers of the logs in the level. They mean nothing outside of this process.
        numbers: Mutex<HashMap<u128, TopicId>>,
    }

    /// A log in a Kafka.
    struct KafkaLog {
        level: Arc<KafkaLevel>,
        topic: TopicId,
    }

    impl KafkaArchive {
        /// Kafka is not asked yet.
        fn new(settings: &KafkaSettings) -> Result<Self, LevelError> {
            let config = KafkaConfig {
                prefix: settings.prefix.clone(),
                replicas: settings.replicas.into(),
                retention_bytes: Some(settings.retention_bytes).filter(|bytes| *bytes > 0),
                segment_bytes: settings.segment_bytes,
                timeout: settings.timeout(),
                max_topics: settings.max_topics,
                ..KafkaConfig::new(&settings.brokers)
            };
            let level = Arc::new(KafkaLevel::new(config)?);
            Ok(Self { level, prefix: settings.prefix.clone(), numbers: Mutex::default() })
        }

        fn number(&self, epoch: u128) -> Result<TopicId, ArchiveError> {
            let mut numbers = self.numbers.lock();
            let next = u16::try_from(numbers.len())
                .map_err(|_| ArchiveError::Refused("there are too many logs".to_owned()))?;
            Ok(*numbers.entry(epoch).or_insert(TopicId(next)))
        }
    }

    /// The name of Kafka's topic. The epoch makes it unique, whatever becomes of the topic's own name.
    fn name(prefix: &str, log: &ArchivedLog) -> String {
        format!("{prefix}.{}.{:032x}", log.letters(), log.epoch.0)
    }

    /// The error of an archive for one of the level.
    fn failed(error: LevelError) -> ArchiveError {
        if error.is_temporary() {
            ArchiveError::Down(error.to_string())
        } else {
            ArchiveError::Refused(error.to_string())
        }
    }

    impl Archive for KafkaArchive {
        fn open(&self, log: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
            let topic = self.number(log.epoch.0)?;
            let name = name(&self.prefix, log);
            self.level.name_topic(topic, name.clone());
            // 0 is no epoch.
            let epoch = Epoch((log.epoch.0 as u32).max(1));
            let window = self.level.open(topic, log.first, epoch).map_err(failed)?;
            if window.epoch != epoch {
                return Err(ArchiveError::Refused(format!("Kafka's topic {name} has another log")));
            }
            Ok(Arc::new(KafkaLog { level: self.level.clone(), topic }))
        }
    }

    impl ArchiveLog for KafkaLog {
        fn kept(&self) -> Range<Position> {
            self.level.window(self.topic).map_or(0..0, |window| window.first..window.head)
        }

        fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
            let written = self.level.write(self.topic, Batch { offset: position, bytes }).map_err(failed)?;
            // The level leaves out what is there already, whoever has written it.
            match written.repeated {
                0 => Ok(()),
                bytes => Err(ArchiveError::Down(format!(
                    "Kafka had {bytes} of these bytes already; they are compared"
                ))),
            }
        }

        fn read(&self, position: Position, out: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
            // A record that cannot be read stops one subscriber, and not the copying.
            let down = |error: LevelError| ArchiveError::Down(error.to_string());
            let found = self.level.read(self.topic, position, out).map_err(down)?;
            Ok(match found.stop {
                _ if found.bytes > 0 => ArchiveRead::Bytes(found.bytes),
                Stop::Hole(hole) => ArchiveRead::Hole { to: hole.to },
                Stop::Gone(first) => ArchiveRead::Removed { first },
                Stop::Head | Stop::Filled => ArchiveRead::End,
            })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_defaults_of_the_configuration_are_taken() {
            let settings = KafkaSettings { brokers: "127.0.0.1:1".into(), ..KafkaSettings::default() };
            KafkaArchive::new(&settings).unwrap();
        }
    }
}
