//! The sections `[log]` and `[http]`, for the observation of a broker.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::BrokerConfigError;

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum LogFormat {
    /// For people: time, level, message.
    #[default]
    Text,
    /// For programs: one JSON object per line.
    Json,
}

described! {
/// The `[log]` section: the log of `rbmq serve` on standard error. A broker inside a program logs through that program's
/// `tracing` and ignores this section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// A level ("error", "warn", "info", "debug", "trace", "off"), or levels of parts as in "info,rocketnet=debug".
    /// RBMQ_LOG, -v and -q override it. Default "info": connections and disconnections, refusals, losses. No level logs
    /// single messages.
    pub level: String,
    /// "text" for people, or "json" for programs: one object per line. Both have RFC 3339 times in UTC. Default "text".
    pub format: LogFormat,
}
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

/// The names of the levels. The log library takes any other single word for a part of the program, and then logs nothing
/// else.
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
/// The `[audit]` section: a log of who logged in, what was refused, whose rights changed, and who was cut off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSettings {
    /// File of the log, a line of JSON for each event; it is made with mode 0640, and SIGHUP opens it again after a rotation. `stderr`:
    /// standard error, for the journal. Default "": no log. At most 2,000 events in a second are written; the others are counted.
    pub file: String,
}
}

described! {
/// The `[http]` section: metrics and health of the broker over HTTP. Off unless `listen` is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpSettings {
    /// Address of the endpoint, as in "127.0.0.1:7412"; port 0 takes a free port. Default "": no endpoint. Without `token_file`,
    /// every client that reaches the address can read the names and rates of all topics.
    pub listen: String,
    /// File with the token that clients of the endpoint must present (`Authorization: Bearer TOKEN`), of at least 16 characters. Others
    /// than its owner and group must not be able to read it. Default "": no token, and `rbmq serve` refuses an address that other
    /// machines can reach. The token is not encrypted on its way: put a proxy with TLS before the endpoint in networks that you do
    /// not trust.
    pub token_file: String,
    /// Largest number of topics with time series of their own in /metrics. The other topics have one sum with the label
    /// topic="#others"; no topic can have this name. Default 1,000. Too large: a topic costs about ten series in the monitoring
    /// system, and a few microseconds of each scrape.
    pub max_topic_series: usize,
    /// Largest number of open connections; further connections are closed. Default 64, at least 1. A connection costs a file
    /// descriptor and at most 64 KiB.
    pub max_connections: usize,
    /// Time within which a client must send its request, in milliseconds. Default 5,000, 10 to 600,000. Too large: silent
    /// clients occupy connections for this time.
    #[serde(deserialize_with = "super::sizes::millis")]
    pub header_timeout_ms: u64,
}
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            listen: String::new(),
            token_file: String::new(),
            max_topic_series: 1_000,
            max_connections: 64,
            header_timeout_ms: 5_000,
        }
    }
}

impl HttpSettings {
    /// `header_timeout_ms` as a duration.
    pub fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    pub(super) fn validate(&self) -> Result<(), BrokerConfigError> {
        if !self.listen.is_empty() && self.listen.parse::<SocketAddr>().is_err() {
            return Err(BrokerConfigError::Word {
                name: "http.listen",
                value: self.listen.clone(),
                expects: "an IP address and a port, as 127.0.0.1:7412 or [::1]:7412, or empty for no endpoint",
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
