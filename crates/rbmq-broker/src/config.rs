//! The broker's configuration: its own sections of the file that configures RocketBufs.
//!
//! ```text
//!   default ──▶ file: [broker] [log] [http], and RocketBufs' sections ──▶ environment ──▶ command line
//! ```

#[macro_use]
mod described;
mod reload;
mod sections;
pub(super) mod sizes;
mod sources;
mod upstream;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rocketbufs::Config;
use rocketbufs::config::{ConfigError, Origin, read_file};
use serde::{Deserialize, Serialize};

pub use reload::{Change, Reload};
pub use sections::{HttpSettings, LogFormat, LogSettings};
use sources::Sources;
pub use sources::{Setting, file_parts};
use upstream::MAX_UPSTREAMS;
pub use upstream::UpstreamSettings;

use super::rules::{Rules, rounded};

/// Why a broker's configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerConfigError {
    /// Something in RocketBufs' sections.
    #[error(transparent)]
    Framework(#[from] ConfigError),
    /// Something in the broker's own sections that is no setting, or of another type.
    #[error("{origin}: {message}")]
    Section {
        /// The file and the line.
        origin: Origin,
        /// What is wrong, by its field's name.
        message: String,
    },
    /// A name at the top level that neither knows.
    #[error("{origin}: '{name}' is no setting; {}", sources::instead_of(name))]
    Unknown {
        /// The file and the line.
        origin: Origin,
        /// The name.
        name: String,
    },
    /// A rule of topics.
    #[error("[[broker.topics]]: {message}")]
    Rule {
        /// Which of the rules, from 0.
        rule: usize,
        /// Which of its fields.
        field: &'static str,
        /// What is wrong, with the rule's pattern.
        message: String,
    },
    /// A value out of its range.
    #[error("{name} = {value}: it must be {expects}")]
    Value {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it may be.
        expects: &'static str,
    },
    /// A text that means nothing here.
    #[error("{name} = {value:?}: it must be {expects}")]
    Word {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expects: &'static str,
    },
    /// What is wrong with a value, and who set it.
    #[error("{error} ({origin})")]
    Set {
        /// What is wrong.
        error: Box<BrokerConfigError>,
        /// Who set it.
        origin: Origin,
    },
}

described! {
/// The `[broker]` section. Every field has a default; unknown names are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Names and patterns that one subscriber may ask for. Default 10,000, at least 1. Each costs about 500 bytes.
    pub max_topics_per_subscriber: usize,
    /// Names with `+` or `#` among them. Default 1,000, at least 1. Large: whenever a topic appears, all of them may have to
    /// be looked at.
    pub max_patterns_per_subscriber: usize,
    /// Observers (`rbmq top`) connected at once. Default 16, at least 1. Large: each may keep the broker's thread busy
    /// with its questions.
    pub max_observers: usize,
    /// Questions of one observer that wait for their answers. Default 8, at least 1; one that asks more is
    /// disconnected. Each costs at most 16 KiB.
    pub max_observer_requests: usize,
    /// Smallest ring of a buffer, in bytes; publishers that ask for less get this. Default 64 KiB. Small rings stop
    /// their publisher often.
    #[serde(deserialize_with = "sizes::bytes")]
    pub min_ring_bytes: u64,
    /// Largest ring of a buffer, in bytes; publishers that ask for more are refused. Rings are powers of two: what one takes
    /// is compared. Default 256 MiB, at least `min_ring_bytes` rounded up. The sum of all rings is limited by `buffers.max_ring_bytes`.
    #[serde(deserialize_with = "sizes::bytes")]
    pub max_ring_bytes: u64,
    /// How long the buffer of a topic that was closed (or whose publisher is gone for good) stays readable, in
    /// milliseconds. Default 60,000. Small: late subscribers find nothing. Large: its ring's memory is held for as long.
    #[serde(deserialize_with = "sizes::millis")]
    pub closed_linger_ms: u64,
    /// Other brokers whose topics are received here and passed on. Default none, at most 64.
    pub upstream: Vec<UpstreamSettings>,
    /// How long subscribers may take to receive what is there when the broker is told to end, in milliseconds.
    /// Default 5,000. 0: nothing is waited for.
    #[serde(deserialize_with = "sizes::millis")]
    pub drain_timeout_ms: u64,
    /// Ring of a merged topic (`ingest = "merge"`) whose rule names none, in bytes. Default 4 MiB, at least 64 KiB. What
    /// is in the ring of one publisher must fit into a quarter of it. Subscribers need half as much for it.
    #[serde(deserialize_with = "sizes::bytes")]
    pub merge_ring_bytes: u64,
    /// Ring in which each publisher of a merged topic arrives, in bytes; larger where its deliveries need it (twice the
    /// largest). Default 32 KiB, at least 4 KiB. Small: publishers stop often. Large: memory for each of many.
    #[serde(deserialize_with = "sizes::bytes")]
    pub merge_publisher_ring_bytes: u64,
    /// Runs of a merged topic that not every subscriber has given back yet: publishers wait when there are so many.
    /// Default 65,536, at least 1. Each costs 24 bytes. Small: slow subscribers of tiny messages are felt early.
    pub merge_table_entries: usize,
    /// Publishers that a merged topic knows: connected, ended less than `closed_linger_ms` ago, or gone and remembered.
    /// Default 10,000, at least 1. Each costs about 500 bytes besides its ring.
    pub merge_max_publishers: usize,
    /// Rules of topics: the first whose pattern matches counts. Default: none; at most 1,000. Each costs about 200 bytes
    /// and a comparison for every buffer that appears.
    pub topics: Rules,
}
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7411".into(),
            max_topics: 10_000,
            max_publishers: 1_000,
            max_buffers_per_publisher: 1_024,
            max_topics_per_subscriber: 10_000,
            max_patterns_per_subscriber: 1_000,
            max_observers: 16,
            max_observer_requests: 8,
            min_ring_bytes: 64 << 10,
            max_ring_bytes: 256 << 20,
            closed_linger_ms: 60_000,
            upstream: Vec::new(),
            drain_timeout_ms: 5_000,
            merge_ring_bytes: 4 << 20,
            merge_publisher_ring_bytes: 32 << 10,
            merge_table_entries: 65_536,
            merge_max_publishers: 10_000,
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
            ("broker.max_topics", self.max_topics),
            ("broker.max_publishers", self.max_publishers),
            ("broker.max_buffers_per_publisher", self.max_buffers_per_publisher),
            ("broker.max_topics_per_subscriber", self.max_topics_per_subscriber),
            ("broker.max_patterns_per_subscriber", self.max_patterns_per_subscriber),
            ("broker.max_observers", self.max_observers),
            ("broker.max_observer_requests", self.max_observer_requests),
            ("broker.merge_table_entries", self.merge_table_entries),
            ("broker.merge_max_publishers", self.merge_max_publishers),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(BrokerConfigError::Value { name, value: 0, expects: "at least 1" });
            }
        }
        let written = |name, address: &str| match is_address(address) {
            true => Ok(()),
            false => Err(BrokerConfigError::Word { name, value: address.to_owned(), expects: ADDRESS }),
        };
        written("broker.listen", &self.listen)?;
        self.upstream.iter().try_for_each(|up| written("broker.upstream.address", &up.address))?;
        let upstreams = self.upstream.len();
        if upstreams > MAX_UPSTREAMS {
            let (name, value, expects) = ("broker.upstream", upstreams as u64, "at most 64 entries");
            return Err(BrokerConfigError::Value { name, value, expects });
        }
        if !(4096..=1 << 40).contains(&self.min_ring_bytes) {
            let (name, value) = ("broker.min_ring_bytes", self.min_ring_bytes);
            return Err(BrokerConfigError::Value { name, value, expects: "4096 to 1099511627776 bytes" });
        }
        if !(rounded(self.min_ring_bytes)..=1 << 40).contains(&self.max_ring_bytes) {
            let (name, value) = ("broker.max_ring_bytes", self.max_ring_bytes);
            let expects = "min_ring_bytes, rounded up to a power of two, to 1099511627776 bytes";
            return Err(BrokerConfigError::Value { name, value, expects });
        }
        let rings = [
            ("broker.merge_ring_bytes", self.merge_ring_bytes, 64 << 10),
            ("broker.merge_publisher_ring_bytes", self.merge_publisher_ring_bytes, 4096),
        ];
        for (name, value, least) in rings {
            if !(least..=1 << 31).contains(&value) {
                let expects = "64 KiB (a publisher's 4 KiB) to 2147483648 bytes";
                return Err(BrokerConfigError::Value { name, value, expects });
            }
        }
        self.topics.check((self.min_ring_bytes, self.max_ring_bytes))
    }
}

/// What an address has to be.
const ADDRESS: &str = "a host and a port; it is written host:port, 192.0.2.1:port or [2001:db8::1]:port";

/// Whether this can be an address at all. Whether there is such a host is known when it is used.
fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Whether nobody can listen at both addresses. A name other than `localhost` is not looked up here.
fn same_place(one: &str, other: &str) -> bool {
    let parse = |text: &str| text.replacen("localhost:", "127.0.0.1:", 1).parse::<SocketAddr>().ok();
    let (Some(one), Some(other)) = (parse(one), parse(other)) else { return false };
    let any = one.is_ipv4() == other.is_ipv4() && (one.ip().is_unspecified() || other.ip().is_unspecified());
    one.port() != 0 && one.port() == other.port() && (any || one.ip() == other.ip())
}

/// Everything a broker is configured with: RocketBufs' sections and its own.
#[derive(Debug, Clone, Default)]
pub struct BrokerConfig {
    /// Transport, memory, sessions and limits.
    pub framework: Config,
    /// The `[broker]` section.
    pub broker: BrokerSettings,
    /// The `[log]` section.
    pub log: LogSettings,
    /// The `[http]` section.
    pub http: HttpSettings,
    /// Who set what in the broker's own sections, for errors.
    pub sources: Sources,
}

/// The broker's own part of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Own {
    broker: BrokerSettings,
    log: LogSettings,
    http: HttpSettings,
}

impl BrokerConfig {
    /// Reads the file, if one is given, and applies the environment (`ROCKETBUFS_…`) over RocketBufs' part.
    ///
    /// # Errors
    /// What is wrong, with the file, line or variable.
    pub fn load(path: Option<&Path>) -> Result<Self, BrokerConfigError> {
        let Some(path) = path else {
            return Ok(Self { framework: Config::load(None)?, ..Self::default() });
        };
        let text = read_file(path)?;
        let (mut framework, rest) = Config::from_toml_shared(&text, Some(path))?;
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        framework.apply_env(variables)?;
        framework.validate()?;
        let sources = Sources::of_file(&text, path);
        if let Some(name) = rest.keys().find(|name| sources::own_sections().all(|own| own != **name)) {
            return Err(BrokerConfigError::Unknown { origin: sources.origin(name), name: name.clone() });
        }
        sources.check_names()?;
        let Own { broker, log, http } =
            toml::from_str(&text).map_err(|error| BrokerConfigError::Section {
                origin: sources.line_of(error.span().map(|span| span.start)),
                message: error.message().to_owned(),
            })?;
        let config = Self { framework, broker, log, http, sources };
        config.validate()?;
        Ok(config)
    }

    /// Checks the ranges of the broker's own sections. To be called after the last change.
    ///
    /// # Errors
    /// The first thing that is wrong, with who set it.
    pub fn validate(&self) -> Result<(), BrokerConfigError> {
        let checked = self.broker.validate().and_then(|()| self.log.validate());
        let checked = checked.and_then(|()| self.http.validate()).and_then(|()| self.two_addresses());
        checked.map_err(|error| self.placed(error))
    }

    /// Refuses an endpoint for HTTP where the broker itself listens.
    fn two_addresses(&self) -> Result<(), BrokerConfigError> {
        if !same_place(&self.broker.listen, &self.http.listen) {
            return Ok(());
        }
        let (name, value) = ("http.listen", self.http.listen.clone());
        Err(BrokerConfigError::Word { name, value, expects: "another address than broker.listen" })
    }

    fn placed(&self, error: BrokerConfigError) -> BrokerConfigError {
        let origin = match &error {
            BrokerConfigError::Word { name: "broker.upstream.address", .. } => {
                let wrong = self.broker.upstream.iter().position(|up| !is_address(&up.address));
                self.sources.origin_of_entry("broker.upstream", wrong.unwrap_or_default(), "address")
            }
            BrokerConfigError::Value { name, .. } | BrokerConfigError::Word { name, .. } => {
                self.sources.origin(name)
            }
            BrokerConfigError::Rule { rule, field, .. } => {
                self.sources.origin_of_entry("broker.topics", *rule, field)
            }
            _ => return error,
        };
        match origin {
            Origin::Default => error,
            origin => BrokerConfigError::Set { error: Box::new(error), origin },
        }
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
    fn sizes_may_have_a_unit() {
        let config = load(
            "[broker]\nmin_ring_bytes = '64k'\nmax_ring_bytes = '64 MiB'\n[[broker.topics]]\npattern = 'x'\n\
             ring_bytes = '1 MiB'\nretain_bytes = '100 kB'\nmax_lag_bytes = 4096\n\
             [[broker.upstream]]\naddress = 'a:1'\nring_bytes = '2M'\n",
        );
        let broker = config.unwrap().broker;
        assert_eq!((broker.min_ring_bytes, broker.max_ring_bytes), (65536, 64 << 20));
        let rule = broker.topics.of(&"x".parse().unwrap());
        assert_eq!(
            (rule.ring_bytes, rule.retain_bytes, rule.max_lag_bytes),
            (Some(1 << 20), Some(100_000), Some(4096))
        );
        assert_eq!(broker.upstream[0].ring_bytes, Some(2 << 20));
    }

    #[test]
    fn two_cannot_listen_in_one_place() {
        let both = |one: &str, other: &str| {
            load(&format!("[broker]\nlisten = '{one}'\n[http]\nlisten = '{other}'\n"))
        };
        for (one, other) in [
            ("127.0.0.1:7411", "127.0.0.1:7411"),
            ("localhost:7411", "127.0.0.1:7411"),
            ("127.0.0.1:7411", "0.0.0.0:7411"),
            ("[::]:7411", "[::1]:7411"),
        ] {
            let error = both(one, other).unwrap_err().to_string();
            assert!(error.contains("it must be another address than broker.listen"), "{error}");
            assert!(error.ends_with("rbmq.toml, line 4)"), "{error}");
        }
        // Of several addresses the one that is not said is the default.
        assert!(load("[http]\nlisten = '127.0.0.1:7411'\n").is_err());
        for (one, other) in
            [("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:1", "127.0.0.2:1"), ("here:1", "127.0.0.1:1")]
        {
            both(one, other).unwrap();
        }
    }

    #[test]
    fn times_may_have_a_unit() {
        let config = load(
            "[broker]\nclosed_linger_ms = '2m'\ndrain_timeout_ms = '1.5 s'\n[http]\nheader_timeout_ms = '10s'\n\
             [session]\nlinger_ms = '1m30s'\n[[broker.topics]]\npattern = 'x'\nblock_timeout_ms = '20s'\n\
             linger_ms = 7\nmax_hold_ms = '1h'\n[[broker.upstream]]\naddress = 'a:1'\nhold_ms = '30s'\n",
        )
        .unwrap();
        let BrokerConfig { broker, http, framework, .. } = config;
        assert_eq!((broker.closed_linger_ms, broker.drain_timeout_ms), (120_000, 1500));
        assert_eq!((http.header_timeout_ms, framework.session.linger_ms), (10_000, 90_000));
        let rule = broker.topics.of(&"x".parse().unwrap());
        assert_eq!(
            (rule.block_timeout_ms, rule.linger_ms, rule.max_hold_ms),
            (Some(20_000), Some(7), Some(3_600_000))
        );
        assert_eq!(broker.upstream[0].hold_ms, 30_000);
        assert!(load("[session]\nlinger_ms = '1.5us'\n").is_err());
    }

    #[test]
    fn says_what_is_wrong() {
        let text = |result: Result<BrokerConfig, BrokerConfigError>| result.unwrap_err().to_string();
        assert!(
            text(load("[broker]\nmax_topic = 3\n"))
                .contains("rbmq.toml, line 2); did you mean 'broker.max_topics'?")
        );
        assert!(text(load("[http]\nport = 3\n")).contains("there is no setting 'http.port' ("));
        let unknown = text(load("[brokers]\n"));
        assert!(
            unknown.contains("'brokers' is no setting; did you mean 'broker'? there are [broker], "),
            "{unknown}"
        );
        assert!(unknown.contains("[shm], [rdma], "), "{unknown}");
        assert!(text(load("[bufers]\n")).contains("did you mean 'buffers'?"));
        assert!(text(load("[colours]\n")).contains("'colours' is no setting; there are [broker]"));
        let error = text(load("[broker]\nmin_ring_bytes = 8192\nmax_ring_bytes = 4096\n"));
        assert!(error.contains("broker.max_ring_bytes = 4096"), "{error}");
        assert!(error.ends_with("rbmq.toml, line 3)"), "{error}");
        let error = text(load("[[broker.topics]]\npattern = 'x'\nring_bytes = 1\n"));
        assert!(error.starts_with("[[broker.topics]]: the rule of pattern 'x': ring_bytes = 1"), "{error}");
        assert!(error.ends_with("rbmq.toml, line 3)"), "{error}");
        let second =
            "[[broker.topics]]\npattern = 'x'\n[[broker.topics]]\n\npattern = 'y'\n\nmax_lag_bytes = 0\n";
        let error = text(load(second));
        assert!(error.ends_with("rbmq.toml, line 7)"), "{error}");
        let error = text(load(&second.replace("max_lag_bytes = 0", "policies = []")));
        assert!(error.ends_with("rbmq.toml, line 7)"), "{error}");
        let error = text(load("[[broker.upstream]]\naddress = 'a:1'\n[[broker.upstream]]\naddress = 'b'\n"));
        assert!(error.ends_with("rbmq.toml, line 4)"), "{error}");
        let error = text(load("[[broker.topics]]\npattern = 'x/#/y'\n"));
        assert!(error.contains("'#' is the rest of a topic"), "{error}");
        let error = text(load("[broker]\n\nmax_topics = 'many'\n"));
        assert!(error.contains("rbmq.toml, line 3: invalid type: string \"many\""), "{error}");
        let error = text(load("[broker]\nmin_ring_bytes = '64 mb'\n"));
        assert!(error.contains("rbmq.toml, line 2: '64 mb' is no number of bytes"), "{error}");
        let error = text(load("[log]\nlevel = 'loud'\n"));
        assert!(error.contains("log.level = \"loud\": it must be a level"), "{error}");
        for section in ["[broker]\nlisten", "[[broker.upstream]]\naddress"] {
            for wrong in ["7411", "10.0.0.5", ":7411", "host:port", "host:70000", ""] {
                let error = text(load(&format!("{section} = '{wrong}'\n")));
                assert!(error.contains("it is written host:port"), "{section} {wrong}: {error}");
                assert!(error.contains("rbmq.toml, line "), "{error}");
            }
            for good in ["localhost:7411", "[::1]:0", "10.0.0.5:7411"] {
                load(&format!("{section} = '{good}'\n")).unwrap();
            }
        }
        assert!(text(load("[http]\nlisten = 'here'\n")).contains("an IP address and a port"));
        assert!(text(load("[http]\nheader_timeout_ms = 1\n")).contains("10 to 600000"));
    }
}
