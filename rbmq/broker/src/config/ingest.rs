//! Messages from below: `[[broker.ingest]]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rbmq_wire::{TopicError, TopicName};
use serde::{Deserialize, Serialize};
use settings::{bytes, millis};

use super::error::BrokerConfigError;

/// The largest number of ingests.
const MAX_INGESTS: usize = 64;

/// The longest name of an interface, in bytes.
const MAX_INTERFACE_BYTES: usize = 15;

/// The port for pushes in the plain form that topic 0 has, as in `multimqc serve`.
const PLAIN_PUSH_PORT: u16 = 19_999;

const _: () = assert!(MAX_INTERFACE_BYTES < 16, "IFNAMSIZ with its final zero");

/// Where messages come from: `multimqc:INTERFACE/TOPIC`.
///
/// ```
/// use rbmq_broker::IngestSource;
///
/// let source: IngestSource = "multimqc:eth0/7".parse()?;
/// assert_eq!((source.interface.as_str(), source.topic), ("eth0", 7));
/// assert!("mqtt:eth0/7".parse::<IngestSource>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IngestSource {
    /// The network interface.
    pub interface: String,
    /// The number of the topic in MultiMQC.
    pub topic: u16,
}

impl FromStr for IngestSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!("'{text}': {why}; a source is multimqc:INTERFACE/TOPIC, as in multimqc:eth0/7"))
        };
        let Some(rest) = text.strip_prefix("multimqc:") else {
            return wrong("only multimqc: is known");
        };
        let Some((interface, topic)) = rest.rsplit_once('/') else {
            return wrong("a topic is missing");
        };
        let forbidden = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        if interface.is_empty() || interface.len() > MAX_INTERFACE_BYTES || interface.contains(forbidden) {
            return wrong("the name of an interface has 1 to 15 bytes without spaces, '/' and ':'");
        }
        match topic.parse() {
            Ok(topic) => Ok(Self { interface: interface.to_owned(), topic }),
            Err(_) => wrong("the topic is a number from 0 to 65535"),
        }
    }
}

impl fmt::Display for IngestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "multimqc:{}/{}", self.interface, self.topic)
    }
}

impl TryFrom<String> for IngestSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<IngestSource> for String {
    fn from(source: IngestSource) -> Self {
        source.to_string()
    }
}

/// The level that takes messages from the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum IngestLevel {
    /// The level in the kernel, or the user level where the process has not the rights.
    #[default]
    Auto,
    /// The level in the kernel; otherwise the broker does not start.
    Kernel,
    /// Sockets and a ring in the broker's memory.
    User,
}

/// An entry of `[[broker.ingest]]`: messages that arrive over UDP at an interface and become messages of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct IngestSettings {
    /// The interface and the number of the topic there: `multimqc:INTERFACE/TOPIC`.
    pub source: IngestSource,
    /// The topic of the broker. Default `multimqc/TOPIC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The level that takes messages: `auto`, `kernel` or `user`. Default `auto`: `kernel` where the process has the rights.
    #[serde(default)]
    pub level: IngestLevel,
    /// The port for pushes in the header form. Default 19997. All topics of an interface have the same port.
    #[serde(default = "IngestSettings::default_port")]
    pub port: u16,
    /// A port for pushes in the plain form. Default 19999 for topic 0, and none for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_port: Option<u16>,
    /// Ring of the level for each topic, in bytes: what can arrive while the broker has no room. Default 16 MiB, a power of two
    /// from 512 KiB to 256 MiB. Too small: bursts and slow subscribers lose messages.
    #[serde(default = "IngestSettings::default_ring_bytes", deserialize_with = "bytes")]
    pub ring_bytes: u64,
    /// How long a message waits at most for others, in milliseconds. Default 1, at most 1,000. 0: each message is taken at once,
    /// which costs more processor time.
    #[serde(default = "IngestSettings::default_max_age_ms", deserialize_with = "millis")]
    pub max_age_ms: u32,
    /// A folder in a bpf file system: the level in the kernel goes on without the broker, and the next broker takes over what has
    /// arrived. Default none: the level ends with the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<PathBuf>,
}

impl IngestSettings {
    /// An ingest of a source with default settings.
    pub fn new(source: IngestSource) -> Self {
        Self {
            source,
            topic: None,
            level: IngestLevel::Auto,
            port: Self::default_port(),
            push_port: None,
            ring_bytes: Self::default_ring_bytes(),
            max_age_ms: Self::default_max_age_ms(),
            keep: None,
        }
    }

    fn default_port() -> u16 {
        19_997
    }

    fn default_ring_bytes() -> u64 {
        16 << 20
    }

    fn default_max_age_ms() -> u32 {
        1
    }

    /// The topic of the broker.
    ///
    /// # Errors
    /// `topic` is no name of a topic.
    pub fn topic_name(&self) -> Result<TopicName, TopicError> {
        match &self.topic {
            Some(topic) => topic.parse(),
            None => format!("multimqc/{}", self.source.topic).parse(),
        }
    }

    /// The port for pushes in the plain form, if there is one.
    pub fn plain_push_port(&self) -> Option<u16> {
        self.push_port.or((self.source.topic == 0).then_some(PLAIN_PUSH_PORT))
    }

    /// `max_age_ms` as a duration.
    pub fn max_age(&self) -> Duration {
        Duration::from_millis(self.max_age_ms.into())
    }

    /// Settings that all topics of an interface have in common.
    fn of_interface(&self) -> impl PartialEq + '_ {
        (self.level, self.port, self.ring_bytes, self.max_age_ms, &self.keep)
    }

    fn problem(&self) -> Option<(&'static str, String)> {
        let is = |field, problem: String| Some((field, problem));
        if let Err(error) = self.topic_name() {
            return is("topic", error.to_string());
        }
        if !self.ring_bytes.is_power_of_two() || !(512 << 10..=256 << 20).contains(&self.ring_bytes) {
            return is(
                "ring_bytes",
                format!(
                    "ring_bytes = {}: it must be a power of two from 512 KiB to 256 MiB",
                    self.ring_bytes
                ),
            );
        }
        if self.max_age_ms > 1000 {
            return is("max_age_ms", format!("max_age_ms = {}: it must be at most 1000", self.max_age_ms));
        }
        if self.port == 0 || self.push_port == Some(0) {
            let field = if self.port == 0 { "port" } else { "push_port" };
            return is(field, format!("{field} = 0: senders must know the port"));
        }
        if self.keep.is_some() && self.level == IngestLevel::User {
            return is("keep", "keep: only the level in the kernel goes on without the broker".into());
        }
        None
    }
}

/// Checks all entries.
pub(super) fn check(all: &[IngestSettings]) -> Result<(), BrokerConfigError> {
    if all.len() > MAX_INGESTS {
        let (name, value, expects) = ("broker.ingest", all.len() as u64, "at most 64 entries");
        return Err(BrokerConfigError::Value { name, value, expects });
    }
    for (entry, settings) in all.iter().enumerate() {
        let problem = settings.problem().or_else(|| conflict(&all[..entry], settings));
        if let Some((field, problem)) = problem {
            let message = format!("{}: {problem}", settings.source);
            return Err(BrokerConfigError::Ingest { entry, field, message });
        }
    }
    Ok(())
}

/// A setting of an entry that an earlier entry forbids.
fn conflict(earlier: &[IngestSettings], settings: &IngestSettings) -> Option<(&'static str, String)> {
    let source = &settings.source;
    let topic = settings.topic_name().ok()?;
    if earlier.iter().any(|other| other.topic_name().as_ref() == Ok(&topic)) {
        return Some(("topic", format!("topic '{topic}' has another source already")));
    }
    let mut neighbours = earlier.iter().filter(|other| other.source.interface == source.interface);
    if neighbours.clone().any(|other| other.source.topic == source.topic) {
        return Some(("source", "the source is named twice".into()));
    }
    if neighbours.clone().any(|other| other.of_interface() != settings.of_interface()) {
        let problem = "all topics of an interface have the same level, port, ring_bytes, max_age_ms and keep";
        return Some(("source", problem.into()));
    }
    let port = settings.plain_push_port()?;
    let taken = port == settings.port || neighbours.any(|other| other.plain_push_port() == Some(port));
    taken.then(|| ("push_port", format!("port {port} has another use on this interface")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_of(text: &str) -> Result<(), String> {
        #[derive(Deserialize)]
        struct File {
            ingest: Vec<IngestSettings>,
        }
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        check(&file.ingest).map_err(|error| error.to_string())
    }

    #[test]
    fn entries_have_defaults() {
        let settings = IngestSettings::new("multimqc:eth0/0".parse().unwrap());
        assert_eq!(settings.topic_name().unwrap().as_str(), "multimqc/0");
        assert_eq!((settings.port, settings.plain_push_port()), (19_997, Some(19_999)));
        assert_eq!(IngestSettings::new("multimqc:eth0/1".parse().unwrap()).plain_push_port(), None);
        let two = "[[ingest]]\nsource = 'multimqc:eth0/0'\n[[ingest]]\nsource = 'multimqc:eth0/1'\nring_bytes = '16 MiB'\n";
        assert_eq!(check_of(two), Ok(()));
    }

    #[test]
    fn wrong_entries_have_a_reason() {
        for (entries, says) in [
            ("source = 'mqtt:eth0/1'", "only multimqc: is known; a source is multimqc:INTERFACE/TOPIC"),
            ("source = 'multimqc:eth0'", "a topic is missing"),
            ("source = 'multimqc:/1'", "1 to 15 bytes"),
            ("source = 'multimqc:a-name-of-16-byte/1'", "1 to 15 bytes"),
            ("source = 'multimqc:eth0/65536'", "a number from 0 to 65535"),
            ("source = 'multimqc:eth0/1'\ntopic = 'a/#'", "a topic's name cannot contain '#'"),
            ("source = 'multimqc:eth0/1'\nring_bytes = 1000000", "a power of two from 512 KiB to 256 MiB"),
            ("source = 'multimqc:eth0/1'\nmax_age_ms = 1001", "at most 1000"),
            ("source = 'multimqc:eth0/1'\nport = 0", "senders must know the port"),
            ("source = 'multimqc:eth0/1'\npush_port = 0", "push_port = 0"),
            ("source = 'multimqc:eth0/1'\nlevel = 'nic'", "unknown variant `nic`"),
            (
                "source = 'multimqc:eth0/1'\nlevel = 'user'\nkeep = '/sys/fs/bpf/x'",
                "only the level in the kernel",
            ),
            ("source = 'multimqc:eth0/1'\npush_port = 19997", "port 19997 has another use"),
            (
                "source = 'multimqc:eth0/1'\n[[ingest]]\nsource = 'multimqc:eth0/1'\ntopic = 'b'",
                "named twice",
            ),
            (
                "source = 'multimqc:eth0/1'\n[[ingest]]\nsource = 'multimqc:eth1/1'",
                "'multimqc/1' has another source",
            ),
            (
                "source = 'multimqc:eth0/1'\n[[ingest]]\nsource = 'multimqc:eth0/2'\nport = 5",
                "have the same level, port",
            ),
        ] {
            let error = check_of(&format!("[[ingest]]\n{entries}\n")).unwrap_err();
            assert!(error.contains(says), "{entries}: {error}");
        }
    }
}
