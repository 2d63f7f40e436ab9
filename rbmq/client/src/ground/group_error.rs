//! Errors of groups and their workers.

use std::time::Duration;

use super::error::ConnectError;
use crate::wire::{GroupNameError, TopicError};

/// What a group or a worker cannot do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// There is no connection to a broker.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The name of the topic is not valid.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The name of the group is not valid.
    #[error(transparent)]
    Name(#[from] GroupNameError),
    /// The broker says no, and would say so again.
    #[error("group '{group}': {reason}")]
    Refused {
        /// The group.
        group: String,
        /// The reason.
        reason: String,
    },
    /// The connection is lost before the broker has answered.
    #[error(
        "the broker ended the connection without an answer: {reason} (a broker of a version without groups does so: update it)"
    )]
    NoGroups {
        /// The reason that it gave.
        reason: String,
    },
    /// Acknowledgements that do not count: the group was reset after their messages came, or its topic has another log, or the broker has no room
    /// to remember them. Their messages come, or come again.
    #[error(
        "group '{group}': {count} acknowledgements do not count: the group was reset, or the broker has no room for them (broker.max_group_pending); their messages come again"
    )]
    InVain {
        /// The group.
        group: String,
        /// How many.
        count: u64,
    },
    /// There was no answer in time. What was acknowledged is told again when the broker answers.
    #[error("the broker has not answered within {waited:?}")]
    TimedOut {
        /// The time-out.
        waited: Duration,
    },
    /// The call came from a callback of the framework, which must not wait.
    #[error("a callback must not wait for messages of a group")]
    InCallback,
}
