//! The broker's configuration: the `[broker]` section of the same file that configures RocketBufs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rocketbufs::Config;
use rocketbufs::config::ConfigError;
use serde::Deserialize;

use super::rules::Rules;

/// Why a broker's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerConfigError {
    /// Something outside of `[broker]`.
    #[error(transparent)]
    Framework(#[from] ConfigError),
    /// Something in `[broker]`.
    #[error("{}: [broker]: {message}", path.display())]
    Section {
        /// The file.
        path: PathBuf,
        /// What is wrong, by its field's name.
        message: String,
    },
    /// A name at the top level that neither knows.
    #[error("{}: '{name}' is no setting; next to [broker] there are transport, [tcp], [buffers], [session] and [limits]", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// A rule of topics.
    #[error("[[broker.topics]]: {message}")]
    Rule {
        /// What is wrong, with the rule's pattern.
        message: String,
    },
    /// A value out of its range.
    #[error("broker.{name} = {value}: it must be {expects}")]
    Value {
        /// The field.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        expects: &'static str,
    },
}

/// The `[broker]` section. Every field has a default; unknown names are refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BrokerSettings {
    /// Address to listen on. Default `127.0.0.1:7411`. There is no authentication: whoever reaches the address may
    /// publish and read everything.
    pub listen: String,
    /// Topics that have a buffer. Default 10,000, at least 1. Small: publishers are refused. Each costs about 1 KiB
    /// besides its buffers' rings.
    pub max_topics: usize,
    /// Publishers connected (or away for less than the linger time). Default 1,000, at least 1.
    pub max_publishers: usize,
    /// Buffers of one publisher that are not ended. Default 1,024, at least 1. Large: one publisher can take all topics.
    pub max_buffers_per_publisher: usize,
    /// Names that one subscriber may ask for. Default 10,000, at least 1. Each costs about 300 bytes.
    pub max_topics_per_subscriber: usize,
    /// Smallest ring of a buffer, in bytes; publishers that ask for less get this. Default 64 KiB. Small rings stop
    /// their publisher often.
    pub min_ring_bytes: u64,
    /// Largest ring of a buffer, in bytes; publishers that ask for more are refused. Default 256 MiB, at least
    /// `min_ring_bytes`. The sum of all rings is limited by `buffers.max_ring_bytes`.
    pub max_ring_bytes: u64,
    /// How long the buffer of a topic that was closed (or whose publisher is gone for good) stays readable, in
    /// milliseconds. Default 60,000. Small: late subscribers find nothing. Large: its ring's memory is held for as long.
    pub closed_linger_ms: u64,
    /// How long subscribers may take to receive what is there when the broker is told to end, in milliseconds.
    /// Default 5,000. 0: nothing is waited for.
    pub drain_timeout_ms: u64,
    /// Rules of topics: the first whose pattern matches counts. Default: none; at most 1,000. Each costs about 200 bytes
    /// and a comparison for every buffer that appears.
    pub topics: Rules,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7411".into(),
            max_topics: 10_000,
            max_publishers: 1_000,
            max_buffers_per_publisher: 1_024,
            max_topics_per_subscriber: 10_000,
            min_ring_bytes: 64 << 10,
            max_ring_bytes: 256 << 20,
            closed_linger_ms: 60_000,
            drain_timeout_ms: 5_000,
            topics: Rules::default(),
        }
    }
}

impl BrokerSettings {
    /// `closed_linger_ms` as a time.
    pub fn closed_linger(&self) -> Duration {
        Duration::from_millis(self.closed_linger_ms)
    }

    /// `drain_timeout_ms` as a time.
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }

    fn validate(&self) -> Result<(), BrokerConfigError> {
        let at_least_one = [
            ("max_topics", self.max_topics),
            ("max_publishers", self.max_publishers),
            ("max_buffers_per_publisher", self.max_buffers_per_publisher),
            ("max_topics_per_subscriber", self.max_topics_per_subscriber),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(BrokerConfigError::Value { name, value: 0, expects: "at least 1" });
            }
        }
        if !(4096..=1 << 40).contains(&self.min_ring_bytes) {
            let (name, value) = ("min_ring_bytes", self.min_ring_bytes);
            return Err(BrokerConfigError::Value { name, value, expects: "4096 to 1099511627776 bytes" });
        }
        if !(self.min_ring_bytes..=1 << 40).contains(&self.max_ring_bytes) {
            let (name, value) = ("max_ring_bytes", self.max_ring_bytes);
            let expects = "at least min_ring_bytes and at most 1099511627776 bytes";
            return Err(BrokerConfigError::Value { name, value, expects });
        }
        let problem = self.topics.problem((self.min_ring_bytes, self.max_ring_bytes));
        problem.map_or(Ok(()), |message| Err(BrokerConfigError::Rule { message }))
    }
}

/// Everything a broker is configured with: RocketBufs' sections and its own.
#[derive(Debug, Clone, Default)]
pub struct BrokerConfig {
    /// Transport, memory, sessions and limits.
    pub framework: Config,
    /// The `[broker]` section.
    pub broker: BrokerSettings,
}

impl BrokerConfig {
    /// Reads the file, if one is given, and applies the environment (`ROCKETBUFS_…`) over RocketBufs' part.
    ///
    /// # Errors
    /// What is wrong, with the file, line or variable.
    pub fn load(path: Option<&Path>) -> Result<Self, BrokerConfigError> {
        let Some(path) = path else {
            return Ok(Self { framework: Config::load(None)?, broker: BrokerSettings::default() });
        };
        let (mut framework, mut rest) = Config::load_shared(path)?;
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        framework.apply_env(variables)?;
        framework.validate()?;
        let section = |e: toml::de::Error| BrokerConfigError::Section {
            path: path.to_owned(),
            message: e.message().to_owned(),
        };
        let broker = match rest.remove("broker") {
            Some(value) => value.try_into::<BrokerSettings>().map_err(section)?,
            None => BrokerSettings::default(),
        };
        if let Some((name, _)) = rest.into_iter().next() {
            return Err(BrokerConfigError::Unknown { path: path.to_owned(), name });
        }
        broker.validate()?;
        Ok(Self { framework, broker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<BrokerConfig, BrokerConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rbmq.toml");
        std::fs::write(&path, text).unwrap();
        BrokerConfig::load(Some(&path))
    }

    #[test]
    fn reads_both_parts() {
        let config = load("[tcp]\nnodelay = false\n[broker]\nmax_topics = 3\n").unwrap();
        assert_eq!(config.broker.max_topics, 3);
        assert!(!config.framework.tcp.nodelay);
        assert_eq!(config.broker.listen, "127.0.0.1:7411");
    }

    #[test]
    fn says_what_is_wrong() {
        let text = |result: Result<BrokerConfig, BrokerConfigError>| result.unwrap_err().to_string();
        assert!(text(load("[broker]\nmax_topic = 3\n")).contains("unknown field `max_topic`"));
        assert!(text(load("[brokers]\n")).contains("'brokers' is no setting"));
        let error = text(load("[broker]\nmin_ring_bytes = 8192\nmax_ring_bytes = 4096\n"));
        assert!(error.contains("broker.max_ring_bytes = 4096"), "{error}");
        let error = text(load("[[broker.topics]]\npattern = 'x'\nring_bytes = 1\n"));
        assert!(error.starts_with("[[broker.topics]]: the rule of pattern 'x': ring_bytes = 1"), "{error}");
        let error = text(load("[[broker.topics]]\npattern = 'x/#/y'\n"));
        assert!(error.contains("'#' is the rest of a topic"), "{error}");
    }
}
