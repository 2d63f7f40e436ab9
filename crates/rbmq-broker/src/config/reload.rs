//! What changes when a running broker is given another configuration, and what cannot.
//!
//! A broker takes over what only its own thread asks for: limits, times, the log's level. What connections, rings and
//! threads were made with stays until the broker is started again, and is told by name.

use std::fmt;

use toml::{Table, Value};

use super::sources::table;
use super::{BrokerConfig, BrokerSettings};

/// The settings that a running broker takes over. They count from then on: what exists keeps what it was given.
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
    "broker.topics",
    "log.level",
    "http.max_topic_series",
];

/// A setting whose value is another one now.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// Section and field.
    pub name: String,
    /// What it was; none if it was unset.
    pub old: Option<Value>,
    /// What the new configuration says; none if that leaves it unset.
    pub new: Option<Value>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or("(unset)".to_owned(), Value::to_string);
        write!(f, "{}: {} -> {}", self.name, text(&self.old), text(&self.new))
    }
}

/// What came of a new configuration.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Reload {
    /// What is in force from now on.
    pub applied: Vec<Change>,
    /// What counts only after a restart.
    pub needs_restart: Vec<Change>,
}

impl BrokerConfig {
    /// Takes over what can be taken over while a broker runs.
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
    fn what_can_change_changes_and_the_rest_is_told() {
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
        // What was not taken over is told every time.
        assert_eq!(running.reload(&new).needs_restart.len(), 3);
        assert!(running.reload(&new).applied.is_empty());
    }

    #[test]
    fn what_is_listed_exists() {
        let settings = BrokerConfig::default().settings();
        for name in RELOADABLE {
            assert!(settings.iter().any(|setting| setting.name == *name), "{name}");
        }
    }
}
