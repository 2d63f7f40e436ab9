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

use access::CertificateName;
use rocketbufs::config::{Origin, SECTIONS, TransportKind, read_file};
use serde::{Deserialize, Serialize};
use settings::{Section, out_of_range, section};
use toml::Table;

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
    /// The names of streams, where `*` stands for any characters: `stage/*`.
    pub streams: String,
    /// The names of the nodes that get these streams from this node. `edge-*` are all nodes that deliver and have such a name, but this one. A
    /// node that also delivers forwards the streams of other nodes only to nodes that are named in full.
    pub nodes: Vec<String>,
}

section! {
    /// The buffers of streams.
    "streams" StreamSettings {
        /// The largest chunk in bytes, with its header. Default: 1 MiB. In a buffer that has grown, chunks may have an eighth of it. Small:
        /// larger frames are left out until the buffer has grown. Large: memory.
        chunk_bytes: u64 = 1 << 20, "bytes", range [1024 to 1_073_741_824];
        /// The number of largest chunks that a stream's buffer holds when it begins. Default: 5; range 4 to 1,024. The buffer has the next
        /// power of two. Small: buffers of usual streams grow, which viewers see as a discontinuity. Large: memory on every node, once
        /// the buffer was filled.
        chunks: u64 = 5, range [4 to 1024];
        /// The most streams of this node, created here and received. Default: 10,000.
        max_streams: usize = 10_000, range [1 to 1_048_576];
        /// The largest buffer of a stream in bytes. Default: 256 MiB. The buffer of a stream that an encoder publishes here grows so far, as
        /// its rate needs it; a received stream with a larger buffer is refused. Small: streams of a high rate do not play. Large: an encoder
        /// of a high rate takes as much memory on every node.
        max_buffer_bytes: u64 = 256 << 20, "bytes", range [4096 to 1_099_511_627_776];
    }
}

section! {
    /// The connections between nodes.
    "dissemination" DisseminationSettings {
        /// The wait before the second attempt to connect to a node, in milliseconds. Each further wait is twice as long. Default: 100.
        reconnect_min_ms: u64 = 100, "ms", range [1 to 60_000];
        /// The longest wait between two attempts. Default: 5 s. At least `reconnect_min_ms`.
        reconnect_max_ms: u64 = 5000, "ms", range [1 to 3_600_000];
        /// How long the streams of a node that lost its connection wait for its return. Default: 30 s. Small: a short outage ends
        /// streams. Large: viewers wait, and buffers take memory, for this time.
        linger_ms: u64 = 30_000, "ms", range [1 to 86_400_000];
        /// The file whose first line is a token that all nodes share, of at least 16 characters. Each end of a connection proves to the
        /// other that it knows the token, which is never sent. Their clocks may be 5 minutes apart. Empty: no token.
        token_file: PathBuf = PathBuf::new();
        /// The names, by node, of which a node's certificate must have one: `CN=…`, `DNS=…`, `URI=…` or `EMAIL=…`. A node that is not named
        /// may have any certificate of the authority. Needs `tls.mode` and, at receivers, `tls.client_certificates = "require"`.
        certificates: BTreeMap<String, Vec<String>> = BTreeMap::new();
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
    /// Whether further nodes are found while this one runs ([`RsManager::set_found_nodes`](crate::RsManager::set_found_nodes)), so that rules
    /// may name nodes that are not known yet. No file sets it.
    pub finds_nodes: bool,
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
            finds_nodes: false,
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
        config.alone(&rest, text, None)
    }

    /// As [`Config::from_toml`] for a file.
    ///
    /// # Errors
    /// As [`Config::from_toml`], or the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = read_file(path)?;
        let (config, rest) = Self::from_toml_shared(&text, Some(path))?;
        config.alone(&rest, &text, Some(path))
    }

    /// Refuses names that are of no part of this configuration.
    fn alone(self, rest: &Table, text: &str, path: Option<&Path>) -> Result<Self, ConfigError> {
        let (_, lines) = settings::parse(text, path)?;
        let known = NAMES.into_iter().chain(SECTIONS).chain(["transport"]);
        settings::refuse_unknown(rest, known, &lines)?;
        self.validate().map(|()| self)
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
        rest.retain(|name, _| NAMES.iter().all(|own| *own != name));
        let sections: Sections = settings::read_parts(text, path)?;
        let Sections { node, nodes, rules, streams, dissemination } = sections;
        Ok((Self { node, nodes, rules, streams, dissemination, finds_nodes: false, framework }, rest))
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
            if is_pattern(name) { self.may_stand(name)? } else { self.may_name(name)? }
        }
        self.this_node()?;
        self.check_certificates()?;
        self.check_ranges()
    }

    fn check_certificates(&self) -> Result<(), ConfigError> {
        let certificates = &self.dissemination.certificates;
        for (node, names) in certificates {
            self.may_name(node)?;
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
        let sections: [&dyn Section; 2] = [&self.streams, &self.dissemination];
        if let Some(fault) = sections.into_iter().find_map(out_of_range) {
            return Err(wrong(fault.to_string()));
        }
        let DisseminationSettings { reconnect_min_ms: least, reconnect_max_ms: most, .. } =
            &self.dissemination;
        if most < least {
            let expects = format!("at least dissemination.reconnect_min_ms = {least}");
            return Err(wrong(format!("dissemination.reconnect_max_ms = {most}: it must be {expects}")));
        }
        Ok(())
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

    /// Refuses the name of a node that is not known, and cannot be found later.
    fn may_name(&self, name: &str) -> Result<(), ConfigError> {
        if self.finds_nodes { Ok(()) } else { self.node_named(name).map(drop) }
    }

    /// Refuses a pattern that stands for no node, and for none that can be found later.
    fn may_stand(&self, pattern: &str) -> Result<(), ConfigError> {
        let stands = |node: &Node| node.role.delivers() && matches(pattern, &node.name);
        if self.finds_nodes || self.nodes.iter().any(stands) {
            return Ok(());
        }
        Err(wrong(format!("rules: '{pattern}' stands for no node of the configuration that delivers")))
    }

    /// Whether a node gets a stream of this name by the rules. `is_own`: the stream was created here.
    pub(crate) fn is_ruled(&self, stream: &str, is_own: bool, node: &Node) -> bool {
        // Nodes that both forward and deliver would send each other what all of them have.
        let by_pattern =
            node.role.delivers() && (is_own || self.this_node().is_ok_and(|own| !own.role.delivers()));
        let is_other = self.this_node().is_ok_and(|own| own.id != node.id);
        let names = |name: &String| match is_pattern(name) {
            true => by_pattern && is_other && matches(name, &node.name),
            false => *name == node.name,
        };
        self.rules.iter().any(|rule| matches(&rule.streams, stream) && rule.nodes.iter().any(names))
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

    /// The capacity of a buffer that has room for so many bytes, and for chunks of this size, as far as buffers may grow.
    pub fn grown_bytes(&self, needed: u64, chunk_bytes: u64) -> u64 {
        let most = 1 << self.streams.max_buffer_bytes.max(1).ilog2();
        let chunks = CHUNKS_WHEN_GROWN.saturating_mul(chunk_bytes.saturating_add(MARKER_BYTES));
        let needed = if chunk_bytes > self.streams.chunk_bytes { needed.max(chunks) } else { needed };
        needed.clamp(1, most).next_power_of_two().max(self.buffer_bytes().next_power_of_two())
    }

    /// The largest chunk of a buffer of this capacity.
    pub(crate) fn chunk_bytes_of(&self, capacity: u64) -> u64 {
        let grown =
            if capacity > self.buffer_bytes().next_power_of_two() { capacity / CHUNKS_WHEN_GROWN } else { 0 };
        self.streams.chunk_bytes.max(grown.saturating_sub(MARKER_BYTES))
    }
}

/// The largest chunks that a buffer holds that has grown.
const CHUNKS_WHEN_GROWN: u64 = 8;

/// Bytes of the consistency markers of a chunk.
pub(crate) const MARKER_BYTES: u64 = 32;

/// Whether a rule's name of a node stands for several.
fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

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
        assert_eq!(
            error("\nstrems = 1"),
            "there is no setting 'strems' (configuration, line 2); did you mean 'streams'?"
        );
        assert!(error("[streams]\nchunks = 1").contains("streams.chunks = 1: it must be 4 to 1024"));
        assert_eq!(
            error("[streams]\nchunk = 1"),
            "configuration, line 2: there is no setting 'streams.chunk'; did you mean 'streams.chunks'?"
        );
        let much = error("[streams]\n\nchunk_bytes = 'much'");
        let expected = "configuration, line 3: streams.chunk_bytes = \"much\": it must be 1024 to 1073741824 bytes; its units are KiB";
        assert!(much.starts_with(expected), "{much}");
        assert!(
            error("[dissemination]\nreconnect_min_ms = '10s'")
                .contains("at least dissemination.reconnect_min_ms = 10000")
        );
        assert!(error("node = 'x'").contains("no node 'x'"));
        assert!(error("[[rules]]\nstreams = '*'\nnodes = ['y']").contains("no node 'y'"));
        let node = "[[nodes]]\nname = 'a'\nid = 1\nrole = 'delivery'\naddress = 'x:1'\n";
        assert!(error(&node.repeat(2)).contains("0 or taken"));
    }

    #[test]
    fn a_pattern_finds_the_nodes_that_deliver() {
        let text = |own: &str| {
            format!(
                "node = '{own}'\n[[nodes]]\nname = 'in'\nid = 1\nrole = 'dissemination'\naddress = 'x:1'\n\
                 [[nodes]]\nname = 'edge-1'\nid = 2\nrole = 'both'\naddress = 'x:2'\n\
                 [[nodes]]\nname = 'edge-2'\nid = 3\nrole = 'delivery'\naddress = 'x:3'\n\
                 [[rules]]\nstreams = 'live/*'\nnodes = ['edge-*']\n[[rules]]\nstreams = 'one'\nnodes = ['edge-2']\n"
            )
        };
        let ruled = |own: &str, stream: &str, is_own: bool| -> Vec<NodeId> {
            let config = Config::from_toml(&text(own)).unwrap();
            let of = config.nodes.iter().filter(|node| config.is_ruled(stream, is_own, node));
            of.map(|node| node.id).collect()
        };
        assert_eq!(ruled("in", "live/a", true), [2, 3]);
        assert_eq!(ruled("in", "live/a", false), [2, 3]);
        assert_eq!(ruled("in", "one", true), [3]);
        assert_eq!(ruled("edge-1", "live/a", true), [3], "not to itself");
        assert_eq!(ruled("edge-1", "live/a", false), [0; 0], "the others have it from where it comes from");
        assert_eq!(ruled("edge-1", "one", false), [3]);
        let validate = |config: Config| config.validate().map_err(|error| error.to_string());
        for slip in ["later", "egde-*", "i*"] {
            let unknown = text("in").replace("'edge-*'", &format!("'{slip}'"));
            let (config, _) = Config::from_toml_shared(&unknown, None).unwrap();
            assert!(validate(config.clone()).is_err_and(|told| told.contains(slip)), "{slip}");
            assert_eq!(validate(Config { finds_nodes: true, ..config }), Ok(()));
        }
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
