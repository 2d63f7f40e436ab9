//! The end of a wait.

use std::time::{Duration, Instant};

/// When a wait ends; possibly never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// In `timeout` from now. None, and a time beyond the range of the clock: no limit.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The time that is left; none: no limit.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// The time that is left, but at most `step`.
    pub(crate) fn left_within(self, step: Duration) -> Duration {
        self.left().map_or(step, |left| left.min(step))
    }

    /// Whether no time is left.
    pub(crate) fn has_passed(self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}
