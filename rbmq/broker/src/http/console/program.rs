//! The configuration of the program that serves a broker, as the console reads it and asks for its reload.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use super::calls::Lane;
use super::problem::Problem;
use crate::{BrokerConfig, Change, Reload};

/// The last check before a configuration is applied. After an error nothing changes; its text is the reason, for people.
pub type ReloadCheck = Box<dyn FnOnce(&BrokerConfig) -> Result<(), String> + Send>;

/// The configuration of the program that serves a broker. The calls come from threads that may wait.
pub trait Reloading: Send + Sync {
    /// Reads the configuration as a reload would, and changes nothing.
    ///
    /// # Errors
    /// The reason why a reload would change nothing, for people.
    fn read(&self) -> Result<BrokerConfig, String>;

    /// Reloads the configuration, after a check of what was read. Returns what stays as it was although the configuration says otherwise, for
    /// people: a certificate that cannot be read, a level of the log that an option decides.
    ///
    /// # Errors
    /// The reason why nothing has changed, for people.
    fn reload(&self, check: ReloadCheck) -> Result<Vec<String>, String>;
}

/// The part of the console for reloads.
pub(super) struct Reloads {
    program: Option<Arc<dyn Reloading>>,
    pub(super) lane: Lane,
    /// The marks of differences tell nothing about values that are not shown.
    marks: RandomState,
}

impl Reloads {
    pub(super) fn new(program: Option<Arc<dyn Reloading>>) -> Self {
        Self {
            program,
            lane: Lane::new(1, Duration::from_secs(12), "the program of the broker"),
            marks: RandomState::new(),
        }
    }

    pub(super) fn program(&self) -> Result<Arc<dyn Reloading>, Problem> {
        self.program.clone().ok_or_else(|| {
            Problem::missing("the program that serves this console does not read its configuration again")
        })
    }

    /// The mark of a difference.
    pub(super) fn mark(&self, reload: &Reload) -> String {
        let texts = |changes: &[Change]| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
        format!("{:016x}", self.marks.hash_one((texts(&reload.applied), texts(&reload.needs_restart))))
    }
}
