//! The broker's configuration: its own sections of the file that configures RocketBufs.
//!
//! ```text
//!   default ──▶ file: gateway [broker] [users] [access] [quotas] [audit] [kafka] [s3] [cluster] [log] [http], and RocketBufs' sections ──▶ environment ──▶ command line
//! ```

mod access;
mod archive;
mod archive_section;
mod broker;
mod cluster;
mod endpoint;
mod error;
mod explain;
mod exposure;
mod gateway;
mod http;
mod ingest;
mod kafka;
mod listing;
mod quotas;
mod reload;
mod s3;
mod sections;
mod sources;
mod upstream;
mod users;

use std::path::Path;
use std::sync::Arc;

use ::access::{Rights, RuleError};
use rbmq_wire::TopicFilter;
use rocketbufs::Config;
use rocketbufs::config::{Origin, read_file};
use serde::Deserialize;
use settings::{OutOfRange, Section, environment, out_of_range};

use super::rules::Rule;
pub use access::AccessSettings;
pub(crate) use archive_section::ArchiveOptions;
pub use broker::BrokerSettings;
use broker::{are_the_same, is_address};
pub use cluster::{ClusterSettings, OnLoss};
#[cfg(feature = "https")]
pub(crate) use endpoint::EndpointFiles;
pub use endpoint::{EndpointClients, EndpointConsole, EndpointTls};
pub use error::BrokerConfigError;
pub use explain::{Explained, OriginOfRule, explain_right, explain_topic};
pub use exposure::Exposed;
pub use gateway::{GatewayProtocol, GatewaySettings, OutsideSettings, SlowClient};
pub use http::HttpSettings;
pub use ingest::{IngestLevel, IngestSettings, IngestSource};
pub use kafka::KafkaSettings;
pub use listing::Setting;
pub use quotas::QuotaSettings;
pub use reload::{Change, Reload, Reread};
pub use s3::S3Settings;
pub use sections::{AuditSettings, LogFormat, LogSettings};
use sources::Sources;
pub use sources::file_parts;
pub(crate) use upstream::MAX_UPSTREAMS;
pub use upstream::UpstreamSettings;
pub use users::UsersSettings;

/// The smallest ring of the space for topics without a rule.
const SPACE_RING_BYTES: u64 = 8 << 20;

/// What names and attributes add to a message of a gateway at most.
const MAX_FRAMING_BYTES: u64 = 4096;

/// The configuration of a broker: RocketBufs' sections and the broker's own.
#[derive(Debug, Clone, Default)]
pub struct BrokerConfig {
    /// Transport, memory, sessions and limits.
    pub framework: Config,
    /// The settings outside of all sections: `[[gateway]]`.
    pub outside: OutsideSettings,
    /// The `[broker]` section.
    pub broker: BrokerSettings,
    /// The `[users]` section.
    pub users: UsersSettings,
    /// The `[access]` section.
    pub access: AccessSettings,
    /// The `[quotas]` section.
    pub quotas: QuotaSettings,
    /// The `[audit]` section.
    pub audit: AuditSettings,
    /// The `[kafka]` section.
    pub kafka: KafkaSettings,
    /// The `[s3]` section.
    pub s3: S3Settings,
    /// The `[cluster]` section.
    pub cluster: ClusterSettings,
    /// The `[log]` section.
    pub log: LogSettings,
    /// The `[http]` section.
    pub http: HttpSettings,
    /// The origin of each setting in the broker's own sections, for errors.
    pub sources: Sources,
}

/// The broker's own sections of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Own {
    gateway: Vec<GatewaySettings>,
    broker: BrokerSettings,
    users: UsersSettings,
    access: AccessSettings,
    quotas: QuotaSettings,
    audit: AuditSettings,
    kafka: KafkaSettings,
    s3: S3Settings,
    cluster: ClusterSettings,
    log: LogSettings,
    http: HttpSettings,
}

impl BrokerConfig {
    /// Reads a file, and then the environment variables `ROCKETBUFS_…` for RocketBufs' sections. Without a file all
    /// settings of the broker have their defaults.
    ///
    /// # Errors
    /// The first problem, with its file and line, or its variable.
    pub fn load(path: Option<&Path>) -> Result<Self, BrokerConfigError> {
        let Some(path) = path else {
            return Ok(Self { framework: Config::load(None)?, ..Self::default() });
        };
        let text = read_file(path)?;
        let (mut framework, rest) = Config::from_toml_shared(&text, Some(path))?;
        framework.apply_env(environment())?;
        framework.validate()?;
        let sources = Sources::of_file(&text, path)?;
        if let Some(name) = rest.keys().find(|name| sources::own_sections().all(|own| own != **name)) {
            let known = sources::alternatives_to(name);
            return Err(BrokerConfigError::Unknown {
                origin: sources.origin(name),
                name: name.clone(),
                known,
            });
        }
        let Own { gateway, broker, users, access, quotas, audit, kafka, s3, cluster, log, http } =
            toml::from_str(&text).map_err(|error| BrokerConfigError::Section {
                origin: sources.lines.of_error(&error),
                message: settings::message(&error, &text),
            })?;
        let outside = OutsideSettings { gateway };
        let config = Self {
            framework,
            outside,
            broker,
            users,
            access,
            quotas,
            audit,
            kafka,
            s3,
            cluster,
            log,
            http,
            sources,
        };
        config.validate()?;
        Ok(config)
    }

    /// The broker's own sections, in the order of a file.
    fn sections(&self) -> [&dyn Section; 11] {
        let Self { outside, broker, users, access, quotas, audit, kafka, s3, cluster, log, http, .. } = self;
        [outside, broker, users, access, quotas, audit, kafka, s3, cluster, log, http]
    }

    /// How the archive is used. Without one the settings of an archive count that a program brings of its own.
    pub(crate) fn archive(&self) -> ArchiveOptions {
        if self.s3.bucket.is_empty() { self.kafka.options() } else { self.s3.options() }
    }

    /// The gateways: `[[gateway]]`.
    pub fn gateways(&self) -> &[GatewaySettings] {
        &self.outside.gateway
    }

    /// The `[broker]` section in force. With gateways, the topics without another rule live in one space: so many channels cost one ring,
    /// and have one order. The rings of spaces without a size take the largest messages of the gateways.
    pub(crate) fn broker_in_force(&self) -> BrokerSettings {
        let mut broker = self.broker.clone();
        if !self.gateways().is_empty() {
            let mut all = Rule::new(TopicFilter::all());
            all.space = true;
            let ring = self.framework.buffers.size_bytes;
            let largest =
                self.gateways().iter().map(|gateway| gateway.largest_message(ring)).max().unwrap_or(0);
            // The ring of a publisher has two deliveries, and the one of the space eight such rings.
            let needed = (2 * (largest + MAX_FRAMING_BYTES)).next_power_of_two() * 8;
            let least = SPACE_RING_BYTES.max(broker.merge_ring_bytes);
            let ring_bytes = needed.max(least).min(broker.max_ring_bytes);
            let mut rules: Vec<Rule> = broker.topics.iter().cloned().chain([all]).collect();
            for space in rules.iter_mut().filter(|rule| rule.space) {
                space.ring_bytes.get_or_insert(ring_bytes);
            }
            broker.topics = rules.into();
        }
        broker
    }

    /// The rights that the rules of access give. None: there are neither rules nor users, and every client may do everything.
    ///
    /// # Errors
    /// The first invalid rule.
    pub fn rights(&self) -> Result<Option<Arc<Rights>>, RuleError> {
        if self.access.rules.is_empty() && !self.users.is_required() {
            return Ok(None);
        }
        Rights::new(self.access.rules.clone()).map(|rights| Some(Arc::new(rights)))
    }

    /// Checks the values of the broker's own sections. Call this after the last change.
    ///
    /// # Errors
    /// The first invalid value, with its origin.
    pub fn validate(&self) -> Result<(), BrokerConfigError> {
        let checked = self.check_ranges().and_then(|()| self.broker.validate());
        let checked = checked.and_then(|()| archive::validate(&self.kafka, &self.s3, &self.broker.topics));
        let checked = checked.and_then(|()| self.cluster.validate());
        let checked = checked.and_then(|()| self.cluster.validate_archive(&self.broker.topics));
        let checked = checked.and_then(|()| self.users.validate()).and_then(|()| self.access.validate());
        let checked = checked.and_then(|()| self.log.validate());
        let checked = checked
            .and_then(|()| self.http.validate(&self.framework.tls.mode))
            .and_then(|()| self.check_addresses());
        checked.map_err(|error| self.with_origin(error))
    }

    /// Refuses a number out of its range.
    fn check_ranges(&self) -> Result<(), BrokerConfigError> {
        match self.sections().into_iter().find_map(out_of_range) {
            None => Ok(()),
            Some(OutOfRange { name, value, expects }) => {
                // A number that is no integer of TOML is larger than those.
                let value = value.as_integer().map_or(u64::MAX, i64::cast_unsigned);
                Err(BrokerConfigError::Value { name, value, expects })
            }
        }
    }

    /// Refuses two endpoints on one address.
    fn check_addresses(&self) -> Result<(), BrokerConfigError> {
        gateway::check(self.gateways(), &self.framework.tls.mode, &[&self.broker.listen, &self.http.listen])?;
        if !are_the_same(&self.broker.listen, &self.http.listen) {
            return Ok(());
        }
        let (name, value) = ("http.listen", self.http.listen.clone());
        Err(BrokerConfigError::Word { name, value, expects: "another address than broker.listen" })
    }

    /// Adds the origin of the value to an error.
    fn with_origin(&self, error: BrokerConfigError) -> BrokerConfigError {
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
            BrokerConfigError::Access { rule, field, .. } => {
                self.sources.origin_of_entry("access.rules", *rule, field)
            }
            BrokerConfigError::Ingest { entry, field, .. } => {
                self.sources.origin_of_entry("broker.ingest", *entry, field)
            }
            BrokerConfigError::Gateway { entry, field, .. } => {
                self.sources.origin_of_entry("gateway", *entry, field)
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
    fn gateways_have_a_space_behind_all_rules() {
        let rules = "[[broker.topics]]\npattern = 'x'\nring_bytes = '1 MiB'\n";
        let config = load(rules).unwrap();
        assert_eq!(config.broker_in_force(), config.broker);
        let config = load(&format!("{rules}[[gateway]]\nprotocol = 'resp'\n")).unwrap();
        let in_force = config.broker_in_force();
        let rules: Vec<_> = in_force.topics.iter().map(|rule| (rule.pattern.as_str(), rule.space)).collect();
        assert_eq!(rules, [("x", false), ("#", true)]);
        assert_eq!(config.broker.topics.iter().count(), 1);
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
    fn the_broker_and_its_http_endpoint_need_different_addresses() {
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
        // The broker's address has its default here.
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
    fn a_value_of_another_type_is_answered_with_the_range() {
        for (setting, expected) in [
            ("max_topics = 'many'", "line 2: broker.max_topics = \"many\": it must be at least 1"),
            (
                "min_ring_bytes = '64 mb'",
                "= \"64 mb\": it must be 4096 to 1099511627776 bytes; its units are KiB, ",
            ),
        ] {
            let error = load(&format!("[broker]\n{setting}\n")).unwrap_err().to_string();
            assert!(error.contains("rbmq.toml, line 2: broker.m") && error.contains(expected), "{error}");
        }
    }

    #[test]
    fn errors_name_the_problem_and_its_line() {
        let text = |result: Result<BrokerConfig, BrokerConfigError>| result.unwrap_err().to_string();
        assert!(text(load("[broker]\nmax_topic = 3\n")).ends_with(
            "rbmq.toml, line 2: there is no setting 'broker.max_topic'; did you mean 'broker.max_topics'?"
        ));
        assert!(text(load("[http]\nport = 3\n")).contains("there is no setting 'http.port'; "));
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
