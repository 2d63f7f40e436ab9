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
    /// Its consequence for a broker on this machine.
    pub(super) means: String,
    /// What to do about it; none if nothing needs to be done.
    pub(super) mend: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, found: found.into(), means: String::new(), mend: None }
    }

    pub(super) fn new(
        check: &'static str,
        level: Level,
        found: String,
        means: impl Into<String>,
        mend: String,
    ) -> Self {
        Self { check, level, found, means: means.into(), mend: Some(mend) }
    }
}
