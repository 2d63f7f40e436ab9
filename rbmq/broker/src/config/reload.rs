//! Reloading: which settings of another configuration a running broker applies.
//!
//! A broker applies the settings that only its own thread reads: limits, times, the level of the log. Settings of
//! connections, rings and threads need a restart, and are reported by name.

use std::fmt;

use toml::{Table, Value};

use super::BrokerConfig;
use super::broker::BrokerSettings;
use super::listing::table;
use super::users::UsersSettings;

/// The settings that a running broker applies. They are valid for new objects; existing objects keep the old values.
const RELOADABLE: &[&str] = &[
    "broker.max_topics",
    "broker.max_publishers",
    "broker.max_buffers_per_publisher",
    "broker.max_topics_per_subscriber",
    "broker.max_patterns_per_subscriber",
    "broker.max_observers",
    "broker.min_ring_bytes",
    "broker.max_ring_bytes",
    "broker.merge_ring_bytes",
    "broker.merge_publisher_ring_bytes",
    "broker.merge_table_entries",
    "broker.merge_max_publishers",
    "broker.closed_linger_ms",
    "broker.drain_timeout_ms",
    "broker.max_replays",
    "broker.topics",
    "access.rules",
    "users.file",
    "users.password_cache_ms",
    "users.login_timeout_ms",
    "users.max_waiting_logins",
    "quotas.user_connections",
    "quotas.user_topics",
    "quotas.user_subscriptions",
    "quotas.user_patterns",
    "quotas.user_ring_bytes",
    "quotas.address_connections",
    "quotas.address_topics",
    "quotas.address_subscriptions",
    "quotas.address_patterns",
    "quotas.address_ring_bytes",
    "quotas.user_in_bytes_per_s",
    "quotas.user_out_bytes_per_s",
    "quotas.address_in_bytes_per_s",
    "quotas.address_out_bytes_per_s",
    "quotas.rate_burst_ms",
    "users.jwt_key",
    "users.jwt_issuer",
    "users.jwt_audience",
    "users.jwt_roles",
    "log.level",
    "http.max_topic_series",
];

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
    /// Applies the reloadable settings of another configuration.
    pub(crate) fn reload(&mut self, new: &Self) -> Reload {
        let (old_settings, new_settings) = (self.settings(), new.settings());
        let mut reload = Reload::default();
        let mut broker = table(&self.broker);
        for (old, new) in old_settings.into_iter().zip(new_settings) {
            if old.value == new.value {
                continue;
            }
            let change = Change { name: new.name.clone(), old: old.value, new: new.value.clone() };
            if !RELOADABLE.contains(&new.name.as_str()) {
                reload.needs_restart.push(change);
                continue;
            }
            if let Some(("broker", field)) = new.name.split_once('.') {
                set(&mut broker, field, new.value);
            }
            self.note_origin(&new.name, new.origin);
            reload.applied.push(change);
        }
        self.broker = broker.try_into::<BrokerSettings>().expect("made of two valid sections");
        self.access.rules.clone_from(&new.access.rules);
        let login_threads = self.users.login_threads;
        self.users = UsersSettings { login_threads, ..new.users.clone() };
        self.quotas.clone_from(&new.quotas);
        self.log.level.clone_from(&new.log.level);
        self.http.max_topic_series = new.http.max_topic_series;
        reload
    }
}

fn set(table: &mut Table, field: &str, value: Option<Value>) {
    match value {
        Some(value) => drop(table.insert(field.to_owned(), value)),
        None => drop(table.remove(field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn the_reloadable_settings_exist() {
        let settings = BrokerConfig::default().settings();
        for name in RELOADABLE {
            assert!(settings.iter().any(|setting| setting.name == *name), "{name}");
        }
    }
}
