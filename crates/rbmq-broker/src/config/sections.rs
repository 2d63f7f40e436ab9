//! The sections beside `[broker]` that say how a broker is watched: `[log]` and `[http]`.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::BrokerConfigError;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogFormat {
    /// For people: time, level, what happened.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

described! {
/// The `[log]` section: what `rbmq serve` writes to standard error. A broker inside a program logs through that
/// program's `tracing`, and this section is not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// What is logged: a level ("error", "warn", "info", "debug", "trace", "off"), or levels of parts as in
    /// "info,rocketnet=debug". RBMQ_LOG, -v and -q go over it. Default "info": clients that come and go, what is
    /// refused and lost; nothing is logged per message at any level.
    pub level: String,
    /// "text" for people, "json" for programs: one object per line. Times are RFC 3339 in UTC in both. Default "text".
    pub format: LogFormat,
}
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

/// The words for levels; another word alone would be taken for a part of the program, and nothing else be logged.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl LogSettings {
    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        let part = |part: &str| match part.rsplit_once('=') {
            None => is_level(part),
            Some((target, level)) => !target.trim().is_empty() && is_level(level),
        };
        if !self.level.is_empty() && self.level.len() <= 1024 && self.level.split(',').all(part) {
            return Ok(());
        }
        Err(BrokerConfigError::Word {
            name: "log.level",
            value: self.level.clone(),
            expects: "a level (error, warn, info, debug, trace, off) or PART=LEVEL, several separated by commas",
        })
    }
}

fn is_level(word: &str) -> bool {
    LEVELS.iter().any(|level| word.trim().eq_ignore_ascii_case(level))
}

described! {
/// The `[http]` section: metrics and health for whoever watches the broker. Off unless `listen` is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpSettings {
    /// Address of the endpoint, as in "127.0.0.1:7412"; port 0 takes a free one. Default "": there is none. There is no
    /// authentication: whoever reaches it reads the names and rates of all topics.
    pub listen: String,
    /// Topics that have time series of their own in /metrics; the others are summed under topic="#others" (no topic can
    /// have that name). Default 1,000. Large: each costs about ten series in whatever collects them, and a few
    /// microseconds of a scrape.
    pub max_topic_series: usize,
    /// Connections open at once; more are closed when they come. Default 64, at least 1. Each costs a file descriptor and
    /// at most 64 KiB.
    pub max_connections: usize,
    /// How long a client may take to send a request, in milliseconds. Default 5,000, 10 to 600,000. Large: strangers that
    /// say nothing hold a connection for as long.
    #[serde(deserialize_with = "super::sizes::millis")]
    pub header_timeout_ms: u64,
}
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { listen: String::new(), max_topic_series: 1_000, max_connections: 64, header_timeout_ms: 5_000 }
    }
}

impl HttpSettings {
    /// `header_timeout_ms` as a time.
    pub fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        if !self.listen.is_empty() && self.listen.parse::<SocketAddr>().is_err() {
            return Err(BrokerConfigError::Word {
                name: "http.listen",
                value: self.listen.clone(),
                expects: "an IP address and a port, as 127.0.0.1:7412 or [::1]:7412, or empty for none",
            });
        }
        if self.max_connections == 0 {
            return Err(BrokerConfigError::Value {
                name: "http.max_connections",
                value: 0,
                expects: "at least 1",
            });
        }
        if !(10..=600_000).contains(&self.header_timeout_ms) {
            let (name, value) = ("http.header_timeout_ms", self.header_timeout_ms);
            return Err(BrokerConfigError::Value { name, value, expects: "10 to 600000 ms" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_part_of_the_program() {
        let valid = |level: &str| LogSettings { level: level.into(), ..LogSettings::default() }.validate();
        for good in ["info", "Debug", "off", "warn,rbmq=debug", "rbmq::broker=trace, error"] {
            assert!(valid(good).is_ok(), "{good}");
        }
        for bad in ["", "debg", "rbmq", "rbmq=", "=info", "info,", "rbmq=loud"] {
            assert!(valid(bad).is_err(), "{bad}");
        }
    }
}
