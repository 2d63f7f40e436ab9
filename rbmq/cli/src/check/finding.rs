//! The results of checks.

use serde::Serialize;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// Nothing to change.
    Ok,
    /// The broker works, but slower, or it refuses more than the configuration promises.
    Warn,
    /// The broker will fail.
    Bad,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) level: Level,
    /// The state that the check found.
    pub(super) found: String,
    /// The consequence for a broker on this machine.
    pub(super) consequence: String,
    /// The command or setting that fixes it; none if nothing is to be fixed.
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, found: found.into(), consequence: String::new(), fix: None }
    }

    pub(super) fn new(
        check: &'static str,
        level: Level,
        found: String,
        consequence: impl Into<String>,
        fix: String,
    ) -> Self {
        Self { check, level, found, consequence: consequence.into(), fix: Some(fix) }
    }
}
