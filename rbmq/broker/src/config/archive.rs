//! The archive below the disk: which one there is, and that rules have the one that they want.

use super::super::rules::{ArchiveKind, Rules};
use super::error::BrokerConfigError;
use super::kafka::KafkaSettings;
use super::s3::S3Settings;

/// Checks the sections of archives, and that a rule that wants one has it.
pub(super) fn validate(
    kafka: &KafkaSettings,
    s3: &S3Settings,
    rules: &Rules,
) -> Result<(), BrokerConfigError> {
    kafka.validate()?;
    s3.validate()?;
    if !kafka.brokers.is_empty() && !s3.bucket.is_empty() {
        return Err(BrokerConfigError::Word {
            name: "s3.bucket",
            value: s3.bucket.clone(),
            expects: "empty where kafka.brokers is set: a broker has one archive",
        });
    }
    for (rule, of) in rules.iter().enumerate() {
        let message = match of.archive() {
            Some(ArchiveKind::Kafka) if kafka.brokers.is_empty() => {
                "an archive in Kafka needs the addresses of a Kafka: set kafka.brokers"
            }
            Some(ArchiveKind::S3) if s3.bucket.is_empty() => {
                "an archive in an object store needs the name of a bucket: set s3.bucket"
            }
            _ => continue,
        };
        let field = if of.kafka { "kafka" } else { "archive" };
        return Err(BrokerConfigError::Rule { rule, field, message: message.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::BrokerConfig;
    use super::*;

    #[test]
    fn a_rule_needs_the_address_of_its_archive() {
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
        assert_eq!(config.broker.topics.of(&"a".parse().unwrap()).archive(), Some(ArchiveKind::Kafka));
        let s3 = text.replace("kafka = true", "archive = 's3'");
        let error = load(&s3).unwrap_err();
        assert!(error.contains("set s3.bucket") && error.ends_with("line 6)"), "{error}");
        let s3 = format!("{s3}[s3]\nbucket = 'b'\nbatch_bytes = '1 MiB'\n");
        assert_eq!(load(&s3).unwrap().archive().batch_bytes, 1 << 20);
        let error = load(&format!("{s3}[kafka]\nbrokers = 'a:9092'\n")).unwrap_err();
        assert!(error.contains("a broker has one archive"), "{error}");
    }
}
