//! What everything else stands on: options, errors, limits of time.

pub(crate) mod deadline;
pub(crate) mod error;
pub(crate) mod group_error;
pub(crate) mod level;
pub(crate) mod login;
pub(crate) mod options;
pub(crate) mod output_state;
pub(crate) mod watch;
