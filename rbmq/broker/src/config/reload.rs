//! Reloading: which settings of another configuration a running broker applies.
//!
//! A broker applies the settings that only its own thread reads: limits, times, the level of the log. Settings of
//! connections, rings and threads need a restart, and are reported by name.

use std::fmt;

use settings::{Changed, Configuration, Section};
use toml::Value;

use super::BrokerConfig;

/// A setting with a changed value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// Section and field.
    pub name: String,
    /// The old value; none if the setting was unset.
    pub old: Option<Value>,
    /// The new value; none if the setting is unset.
    pub new: Option<Value>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or("(unset)".to_owned(), Value::to_string);
        write!(f, "{}: {} -> {}", self.name, text(&self.old), text(&self.new))
    }
}

/// The result of a reload.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Reload {
    /// The settings that were applied.
    pub applied: Vec<Change>,
    /// The settings that need a restart.
    pub needs_restart: Vec<Change>,
    /// Whether the certificates were read again: none if TLS is off. After an error, with its text here, the broker keeps those
    /// that it had.
    pub certificates: Option<Result<(), String>>,
}

impl BrokerConfig {
    /// The changes that a reload of another configuration would make, and makes none.
    pub(crate) fn difference(&self, new: &Self) -> Reload {
        self.clone().reload(new)
    }

    /// Applies the reloadable settings of another configuration. They are valid for new objects; existing objects keep the old
    /// values.
    pub(crate) fn reload(&mut self, new: &Self) -> Reload {
        let (mut changes, topics) = (Vec::new(), self.broker.topics.clone());
        let in_force = self.broker_in_force().topics;
        self.outside.reload(&new.outside, &mut changes);
        self.broker.reload(&new.broker, &mut changes);
        self.users.reload(&new.users, &mut changes);
        self.access.reload(&new.access, &mut changes);
        self.quotas.reload(&new.quotas, &mut changes);
        self.audit.reload(&new.audit, &mut changes);
        self.kafka.reload(&new.kafka, &mut changes);
        self.s3.reload(&new.s3, &mut changes);
        self.cluster.reload(&new.cluster, &mut changes);
        self.log.reload(&new.log, &mut changes);
        self.http.reload(&new.http, &mut changes);
        changes.extend(self.framework.changes(&new.framework));
        // Publishers know for each name whether it is in a space, and write there.
        let other_spaces = !in_force.has_same_spaces(&self.broker_in_force().topics);
        if other_spaces {
            self.broker.topics = topics;
        }
        let mut reload = Reload::default();
        for Changed { spec, old, new: value } in changes {
            let change = Change { name: spec.name.to_owned(), old, new: value };
            if spec.reloadable && !(other_spaces && spec.name == "broker.topics") {
                self.note_origin(spec.name, new.sources.origin(spec.name));
                reload.applied.push(change);
            } else {
                reload.needs_restart.push(change);
            }
        }
        reload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GatewayProtocol, GatewaySettings};
    use crate::rules::Rule;

    const TOPICS: &str = r#"broker.topics: [] -> [{ ingest = "splice", pattern = "a/#", policies = ["block", "drop", "disconnect"] }]"#;

    #[test]
    fn reloadable_settings_are_applied_and_the_others_reported() {
        let mut running = BrokerConfig::default();
        let mut new = BrokerConfig::default();
        new.broker.max_topics = 5;
        new.broker.topics = vec![Rule::new("a/#".parse().unwrap())].into();
        new.broker.listen = "127.0.0.1:1".into();
        new.log.level = "debug".into();
        new.framework.tcp.nodelay = false;
        new.framework.tcp.congestion_control = Some("reno".into());
        let reload = running.reload(&new);
        let names = |changes: &[Change]| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            names(&reload.applied),
            ["broker.max_topics: 10000 -> 5", TOPICS, r#"log.level: "info" -> "debug""#]
        );
        assert_eq!(
            names(&reload.needs_restart),
            [
                r#"broker.listen: "127.0.0.1:7411" -> "127.0.0.1:1""#,
                "tcp.nodelay: true -> false",
                r#"tcp.congestion_control: (unset) -> "reno""#
            ]
        );
        assert_eq!(running.broker.max_topics, 5);
        assert_eq!(running.broker.topics, new.broker.topics);
        assert_eq!(running.broker.listen, "127.0.0.1:7411");
        assert_eq!(running.log.level, "debug");
        // Settings that need a restart are reported every time.
        assert_eq!(running.reload(&new).needs_restart.len(), 3);
        assert!(running.reload(&new).applied.is_empty());
    }

    #[test]
    fn rules_with_other_spaces_need_a_restart() {
        let rule = |space| Rule { space, ..Rule::new("a/#".parse().unwrap()) };
        let (mut running, mut new) = (BrokerConfig::default(), BrokerConfig::default());
        running.broker.topics = vec![rule(false)].into();
        new.broker.topics = vec![rule(true)].into();
        new.broker.max_topics = 5;
        let reload = running.reload(&new);
        assert_eq!((reload.applied.len(), &*reload.applied[0].name), (1, "broker.max_topics"));
        assert_eq!((reload.needs_restart.len(), &*reload.needs_restart[0].name), (1, "broker.topics"));
        assert_eq!(running.broker.topics, vec![rule(false)].into());
        // A later rule decides nothing about spaces.
        let mut running = new.clone();
        new.broker.topics = vec![rule(true), Rule::new("a/#".parse().unwrap())].into();
        assert_eq!(running.reload(&new).applied[0].name, "broker.topics");
        assert_eq!(running.broker.topics, new.broker.topics);
    }

    #[test]
    fn a_rule_takes_topics_out_of_the_space_of_gateways_only_at_a_restart() {
        let (mut running, mut new) = (BrokerConfig::default(), BrokerConfig::default());
        let gateway = GatewaySettings::new(GatewayProtocol::Mqtt);
        running.outside.gateway = vec![gateway.clone()];
        new.outside.gateway = vec![gateway];
        new.broker.topics = vec![Rule::new("a/#".parse().unwrap())].into();
        assert_eq!(running.reload(&new).needs_restart[0].name, "broker.topics");
        assert_eq!(running.broker.topics, BrokerConfig::default().broker.topics);
        // Other settings of the same rules are for now.
        let mut running = new.clone();
        let max_lag_bytes = Some(1 << 20);
        new.broker.topics = vec![Rule { max_lag_bytes, ..Rule::new("a/#".parse().unwrap()) }].into();
        assert_eq!(running.reload(&new).applied[0].name, "broker.topics");
        // A gateway that comes with the restart makes no space before.
        let mut running = BrokerConfig::default();
        let reload = running.reload(&new);
        assert_eq!((&*reload.applied[0].name, &*reload.needs_restart[0].name), ("broker.topics", "gateway"));
    }

    #[test]
    fn settings_of_threads_files_and_addresses_need_a_restart() {
        let mut needs_restart = Vec::new();
        for section in BrokerConfig::default().sections() {
            let specs = section.specs().iter().filter(|spec| !spec.reloadable);
            needs_restart.extend(specs.map(|spec| spec.name));
        }
        needs_restart.retain(|name| {
            !name.starts_with("kafka.") && !name.starts_with("s3.") && !name.starts_with("cluster.")
        });
        assert_eq!(
            needs_restart,
            [
                "gateway",
                "broker.listen",
                "broker.max_observer_requests",
                "broker.upstream",
                "broker.ingest",
                "broker.keep_dir",
                "broker.keep_sync_ms",
                "broker.max_groups",
                "broker.max_group_pending",
                "broker.max_group_pending_bytes",
                "broker.max_group_workers",
                "broker.max_group_ring_bytes",
                "broker.max_group_credit",
                "users.login_threads",
                "access.insecure",
                "audit.file",
                "log.format",
                "http.listen",
                "http.names",
                "http.token_file",
                "http.tls",
                "http.cert",
                "http.key",
                "http.ca",
                "http.client_certificates",
                "http.console",
                "http.max_streams",
                "http.max_connections",
                "http.header_timeout_ms",
            ]
        );
    }
}
