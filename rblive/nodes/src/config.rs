//! The configuration of a node, from a file or from a program.
//!
//! ```
//! let config = rblive::Config::from_toml(r#"
//!     node = "delivery1"
//!
//!     [[nodes]]
//!     name = "ingest"
//!     id = 1
//!     role = "dissemination"
//!     address = "127.0.0.1:7501"
//!
//!     [[nodes]]
//!     name = "delivery1"
//!     id = 2
//!     role = "delivery"
//!     address = "127.0.0.1:7502"
//!
//!     [[rules]]
//!     streams = "*"
//!     nodes = ["delivery1"]
//! "#)?;
//! assert_eq!(config.this_node()?.id, 2);
//! # Ok::<(), rblive::ConfigError>(())
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use access::CertificateName;
use rocketbufs::config::{Origin, TransportKind, parse_bytes, parse_time, read_file};
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};

use crate::ids::NodeId;

/// The names of this module at the top level of a configuration file.
const NAMES: [&str; 5] = ["node", "nodes", "rules", "streams", "dissemination"];
/// The most nodes of a configuration.
pub const MAX_NODES: usize = 1024;

/// The role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// The node creates streams and disseminates them, and forwards streams that come from other nodes.
    Dissemination,
    /// The node receives streams.
    Delivery,
    /// Both.
    Both,
}

impl NodeRole {
    /// Whether the node sends streams to other nodes.
    pub fn disseminates(self) -> bool {
        self != Self::Delivery
    }

    /// Whether the node's application receives streams.
    pub fn delivers(self) -> bool {
        self != Self::Dissemination
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The name, unique among the nodes.
    pub name: String,
    /// The number, unique among the nodes. Not 0.
    pub id: NodeId,
    /// The role of the node.
    pub role: NodeRole,
    /// The address at which the node takes streams from other nodes: `host:port`. A node that receives no streams needs none.
    #[serde(default)]
    pub address: String,
}

/// Which nodes get a stream, by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The names of streams, where `*` stands for any characters: `live/*`.
    pub streams: String,
    /// The names of the nodes that get these streams from this node.
    pub nodes: Vec<String>,
}

/// The buffers of streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamSettings {
    /// The largest chunk in bytes, with its header. Default: 1 MiB. Small: larger segments are refused. Large: memory.
    #[serde(deserialize_with = "bytes")]
    pub chunk_bytes: u64,
    /// The number of largest chunks that a stream's buffer holds. Default: 5; range 4 to 1,024. The buffer has the next power of
    /// two. Small: slow viewers find their data overwritten. Large: memory on every node, once the buffer was filled.
    pub chunks: u64,
    /// The most streams of this node, created here and received. Default: 10,000.
    pub max_streams: usize,
    /// The largest buffer of a received stream in bytes. Default: 256 MiB. A stream with a larger buffer is refused.
    #[serde(deserialize_with = "bytes")]
    pub max_buffer_bytes: u64,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self { chunk_bytes: 1 << 20, chunks: 5, max_streams: 10_000, max_buffer_bytes: 256 << 20 }
    }
}

/// The connections between nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DisseminationSettings {
    /// The wait before the second attempt to connect to a node, in milliseconds. Each further wait is twice as long. Default: 100.
    #[serde(deserialize_with = "millis")]
    pub reconnect_min_ms: u64,
    /// The longest wait between two attempts. Default: 5 s.
    #[serde(deserialize_with = "millis")]
    pub reconnect_max_ms: u64,
    /// How long the streams of a node that lost its connection wait for its return. Default: 30 s. Small: a short outage ends
    /// streams. Large: viewers wait, and buffers take memory, for this time.
    #[serde(deserialize_with = "millis")]
    pub linger_ms: u64,
    /// The file whose first line is a token that all nodes share, of at least 16 characters. Each end of a connection proves to the
    /// other that it knows the token, which is never sent. Their clocks may be 5 minutes apart. Empty: no token.
    pub token_file: PathBuf,
    /// The names, by node, of which a node's certificate must have one: `CN=…`, `DNS=…`, `URI=…` or `EMAIL=…`. A node that is not named
    /// may have any certificate of the authority. Needs `tls.mode` and, at receivers, `tls.client_certificates = "require"`.
    pub certificates: BTreeMap<String, Vec<String>>,
}

impl Default for DisseminationSettings {
    fn default() -> Self {
        Self {
            reconnect_min_ms: 100,
            reconnect_max_ms: 5000,
            linger_ms: 30_000,
            token_file: PathBuf::new(),
            certificates: BTreeMap::new(),
        }
    }
}

/// The configuration of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name of this node. Empty: the only one of `nodes`.
    pub node: String,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Which nodes get which streams from this node, besides those of [`RsManager::set_outbound`](crate::RsManager::set_outbound).
    pub rules: Vec<Rule>,
    /// The buffers of streams.
    pub streams: StreamSettings,
    /// The connections between nodes.
    pub dissemination: DisseminationSettings,
    /// The framework: transport, memory, workers. The default transport of a node is `auto`: shared memory between nodes of one
    /// machine, TCP otherwise.
    pub framework: rocketbufs::Config,
}

/// A fault of a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not TOML, or a setting of the framework is wrong.
    #[error(transparent)]
    Framework(#[from] rocketbufs::config::ConfigError),
    /// A setting of RBLive is wrong.
    #[error("{0}")]
    Value(String),
}

fn wrong(text: impl Into<String>) -> ConfigError {
    ConfigError::Value(text.into())
}

impl Default for Config {
    /// One node for both roles, on this machine only, at a free port.
    fn default() -> Self {
        let node = Node { name: "local".into(), id: 1, role: NodeRole::Both, address: "127.0.0.1:0".into() };
        let framework = rocketbufs::Config { transport: TransportKind::Auto, ..Default::default() };
        Self {
            node: String::new(),
            nodes: vec![node],
            rules: Vec::new(),
            streams: StreamSettings::default(),
            dissemination: DisseminationSettings::default(),
            framework,
        }
    }
}

/// The part of a file that this module reads.
#[derive(Deserialize)]
#[serde(default)]
struct Sections {
    node: String,
    nodes: Vec<Node>,
    rules: Vec<Rule>,
    streams: StreamSettings,
    dissemination: DisseminationSettings,
}

impl Default for Sections {
    fn default() -> Self {
        let Config { node, nodes, rules, streams, dissemination, .. } = Config::default();
        Self { node, nodes, rules, streams, dissemination }
    }
}

impl Config {
    /// Reads a TOML text. A setting that the text does not name keeps its default.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting; a name that is unknown is an error.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let (config, rest) = Self::from_toml_shared(text, None)?;
        match rest.keys().next() {
            None => config.validate().map(|()| config),
            Some(name) => Err(wrong(format!("there is no setting '{name}'"))),
        }
    }

    /// As [`Config::from_toml`] for a file.
    ///
    /// # Errors
    /// As [`Config::from_toml`], or the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (config, rest) = Self::from_toml_shared(&read_file(path)?, Some(path))?;
        match rest.keys().next() {
            None => config.validate().map(|()| config),
            Some(name) => Err(wrong(format!("{}: there is no setting '{name}'", path.display()))),
        }
    }

    /// As [`Config::from_toml`], for programs with sections of their own in the text. Also returns the sections that belong neither to
    /// the framework nor to this library. The relations between settings are not checked yet, since the program may still change them
    /// ([`Config::validate`]).
    ///
    /// # Errors
    /// As [`Config::from_toml`], except that an unknown name at the top level is no error.
    pub fn from_toml_shared(text: &str, path: Option<&Path>) -> Result<(Self, Table), ConfigError> {
        let (mut framework, mut rest) = rocketbufs::Config::from_toml_shared(text, path)?;
        if framework.origin("transport") == Origin::Default {
            framework.transport = TransportKind::Auto;
        }
        let own = NAMES.iter().filter_map(|name| Some(((*name).to_owned(), rest.remove(*name)?))).collect();
        let sections: Sections = Value::Table(own).try_into().map_err(|error: toml::de::Error| {
            let place = path.map_or(String::new(), |path| format!("{}: ", path.display()));
            wrong(format!("{place}{}", error.message()))
        })?;
        let Sections { node, nodes, rules, streams, dissemination } = sections;
        Ok((Self { node, nodes, rules, streams, dissemination, framework }, rest))
    }

    /// Checks the settings and their relations. Call this after the last change; a manager refuses an invalid configuration.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.framework.validate()?;
        if self.nodes.is_empty() || self.nodes.len() > MAX_NODES {
            return Err(wrong(format!(
                "nodes: there are 1 to {MAX_NODES}, this file has {}",
                self.nodes.len()
            )));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let earlier = &self.nodes[..index];
            if node.id == 0 || earlier.iter().any(|other| other.id == node.id) {
                return Err(wrong(format!(
                    "nodes: '{}' has the id {}, which is 0 or taken",
                    node.name, node.id
                )));
            }
            if node.name.is_empty() || earlier.iter().any(|other| other.name == node.name) {
                return Err(wrong(format!("nodes: the name '{}' is empty or taken", node.name)));
            }
            if node.role.delivers() && node.address.is_empty() {
                return Err(wrong(format!("nodes: '{}' receives streams and needs an address", node.name)));
            }
        }
        for name in self.rules.iter().flat_map(|rule| &rule.nodes) {
            self.node_named(name)?;
        }
        self.this_node()?;
        self.check_certificates()?;
        self.check_ranges()
    }

    fn check_certificates(&self) -> Result<(), ConfigError> {
        let certificates = &self.dissemination.certificates;
        for (node, names) in certificates {
            self.node_named(node)?;
            if names.is_empty() {
                return Err(wrong(format!("dissemination.certificates: '{node}' has no names")));
            }
            for name in names {
                let fault = |error| wrong(format!("dissemination.certificates: {node}: {error}"));
                name.parse::<CertificateName>().map(drop).map_err(fault)?;
            }
        }
        if !certificates.is_empty() && self.framework.tls.mode != "require" {
            return Err(wrong("dissemination.certificates: certificates need tls.mode = \"require\""));
        }
        Ok(())
    }

    /// Whether this node takes streams only from nodes that prove who they are: by a certificate of the authority in `tls.ca`, or by
    /// the token of `dissemination.token_file`.
    pub fn requires_proof(&self) -> bool {
        let tls = &self.framework.tls;
        let by_certificate = tls.mode == "require" && tls.client_certificates == "require";
        by_certificate || !self.dissemination.token_file.as_os_str().is_empty()
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let (streams, times) = (&self.streams, &self.dissemination);
        let ranges = [
            ("streams.chunk_bytes", streams.chunk_bytes, 1024, 1 << 30),
            ("streams.chunks", streams.chunks, 4, 1024),
            ("streams.max_streams", streams.max_streams as u64, 1, 1 << 20),
            ("streams.max_buffer_bytes", streams.max_buffer_bytes, 4096, 1 << 40),
            ("dissemination.reconnect_min_ms", times.reconnect_min_ms, 1, 60_000),
            ("dissemination.reconnect_max_ms", times.reconnect_max_ms, times.reconnect_min_ms, 3_600_000),
            ("dissemination.linger_ms", times.linger_ms, 1, 86_400_000),
        ];
        match ranges.iter().find(|(_, value, least, most)| value < least || value > most) {
            Some((name, value, least, most)) => {
                Err(wrong(format!("{name} = {value}: it must be {least} to {most}")))
            }
            None => Ok(()),
        }
    }

    /// The node of this process.
    ///
    /// # Errors
    /// `node` names none of `nodes`, or is empty while there are several.
    pub fn this_node(&self) -> Result<&Node, ConfigError> {
        match (self.node.as_str(), self.nodes.as_slice()) {
            ("", [only]) => Ok(only),
            ("", _) => Err(wrong("node: say which of the nodes this process is")),
            (name, _) => self.node_named(name),
        }
    }

    fn node_named(&self, name: &str) -> Result<&Node, ConfigError> {
        let named = self.nodes.iter().find(|node| node.name == name);
        named.ok_or_else(|| wrong(format!("there is no node '{name}' in the configuration")))
    }

    /// The nodes that get a stream of this name by the rules.
    pub(crate) fn ruled(&self, stream: &str) -> Vec<NodeId> {
        let rules = self.rules.iter().filter(|rule| matches(&rule.streams, stream));
        let names = rules.flat_map(|rule| &rule.nodes);
        let mut ids: Vec<_> = names.filter_map(|name| Some(self.node_named(name).ok()?.id)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The capacity of a stream's buffer in bytes, before it is rounded up.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.streams.chunks * (self.streams.chunk_bytes + MARKER_BYTES)
    }

    /// The capacity of the buffer that so many renditions share. Other nodes have mostly the same limit as this one.
    pub(crate) fn buffer_bytes_of(&self, renditions: usize) -> u64 {
        let one = self.buffer_bytes().next_power_of_two();
        let all = self.buffer_bytes().saturating_mul(renditions.clamp(1, 64) as u64).next_power_of_two();
        let most = 1 << self.streams.max_buffer_bytes.max(1).ilog2();
        all.min(most).max(one)
    }

    /// The largest delivery in bytes.
    pub(crate) fn delivery_bytes(&self) -> u64 {
        self.streams.chunk_bytes + MARKER_BYTES
    }
}

/// Bytes of the consistency markers of a chunk.
const MARKER_BYTES: u64 = 32;

/// Whether a name matches a pattern in which `*` stands for any characters.
///
/// ```
/// use rblive::config::matches;
/// assert!(matches("live/*", "live/camera") && !matches("live/*", "vod/camera"));
/// ```
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// A number, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Number(u64),
    Text(String),
}

/// Reads a size in bytes, a number or a text with a unit (`"20 GiB"`), for the settings of other crates.
///
/// # Errors
/// The text is no size.
pub fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Quantity::deserialize(deserializer)? {
        Quantity::Number(number) => Ok(number),
        Quantity::Text(text) => parse_bytes(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no size in bytes"))),
    }
}

/// Reads a time, a number of milliseconds or a text with a unit (`"30 s"`), for the settings of other crates.
///
/// # Errors
/// The text is no time.
pub fn millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Quantity::deserialize(deserializer)? {
        Quantity::Number(number) => Ok(number),
        Quantity::Text(text) => {
            let time = parse_time(&text, Duration::from_millis(1));
            time.map(|time| time.as_millis() as u64)
                .ok_or_else(|| serde::de::Error::custom(format!("'{text}' is no time")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in
            [("*", "a/b"), ("live/*", "live/a"), ("*/hd", "a/b/hd"), ("a*c*e", "abcde"), ("a", "a")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("live/*", "vod/a"), ("a", "ab"), ("a*b*c", "acb"), ("*x", "y")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn errors_name_the_setting() {
        let error = |text: &str| Config::from_toml(text).unwrap_err().to_string();
        assert_eq!(error("strems = 1"), "there is no setting 'strems'");
        assert!(error("[streams]\nchunks = 1").contains("streams.chunks = 1: it must be 4 to 1024"));
        assert!(error("[streams]\nchunk = 1").contains("chunk"));
        assert!(error("[streams]\nchunk_bytes = 'much'").contains("'much' is no size"));
        assert!(error("node = 'x'").contains("no node 'x'"));
        assert!(error("[[rules]]\nstreams = '*'\nnodes = ['y']").contains("no node 'y'"));
        let node = "[[nodes]]\nname = 'a'\nid = 1\nrole = 'delivery'\naddress = 'x:1'\n";
        assert!(error(&node.repeat(2)).contains("0 or taken"));
    }

    #[test]
    fn an_empty_file_is_one_node_for_both_roles() {
        let config = Config::from_toml("").unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(
            Config::from_toml("[streams]\nchunk_bytes = '2 MiB'").unwrap().streams.chunk_bytes,
            2 << 20
        );
    }
}
