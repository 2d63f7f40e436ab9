//! The sections `[log]` and `[audit]`, for the observation of a broker.

use serde::{Deserialize, Serialize};
use settings::{by_serde, section};

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

by_serde!(LogFormat);

section! {
    /// The `[log]` section: the log of `rbmq serve` on standard error. A broker inside a program logs through that program's
    /// `tracing` and ignores this section.
    "log" LogSettings {
        /// A level ("error", "warn", "info", "debug", "trace", "off"), or levels of parts as in "info,rocketnet=debug".
        /// RBMQ_LOG, -v and -q override it. Default "info": connections and disconnections, refusals, losses. No level logs
        /// single messages.
        #[reloadable]
        level: String = "info".into();
        /// "text" for people, or "json" for programs: one object per line. Both have RFC 3339 times in UTC. Default "text".
        format: LogFormat = LogFormat::Text;
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

section! {
    /// The `[audit]` section: a log of who logged in, what was refused, whose rights changed, and who was cut off.
    "audit" AuditSettings {
        /// File of the log, a line of JSON for each event; it is made with mode 0640, and SIGHUP opens it again after a rotation. `stderr`:
        /// standard error, for the journal. Default "": no log. At most 2,000 events in a second are written; the others are counted.
        file: String = String::new();
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
