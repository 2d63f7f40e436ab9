//! The log on standard error: of a client, which waits for its reader a moment, and of a server, which never does.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::failure::Failure;
use crate::lines::{self, Lines};
use crate::messages::Messages;
use crate::terminal::colors;

/// Starts the log. The environment variable takes precedence over `level`; parts of it that are no filter are ignored.
///
/// # Panics
/// If the process has a log already.
pub fn start(variable: &str, level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter(variable, level))
        .with_writer(|| Messages)
        .with_ansi(colors(&std::io::stderr()))
        .with_target(false)
        .init();
}

/// The log of a server. Dropping it waits a short time until all lines are written.
pub struct ServerLog(Lines);

/// Starts the log of a server, as [`start`] that of a client.
///
/// # Errors
/// `Failed`: the system refuses the thread that writes.
///
/// # Panics
/// If the process has a log already.
pub fn start_server(variable: &str, level: LevelFilter) -> Result<ServerLog, Failure> {
    let report = |lines| tracing::warn!(lines, "lines of this log were dropped: its reader is too slow");
    let lines = Lines::start("log", std::io::stderr(), lines::MAX_BYTES, report)
        .map_err(|error| Failure::Failed(format!("cannot start the log: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter(variable, level))
        .with_writer(lines.clone())
        .with_ansi(colors(&std::io::stderr()))
        .with_target(false)
        .init();
    Ok(ServerLog(lines))
}

impl Drop for ServerLog {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// The filter of the environment variable, with this level as the default.
pub fn filter(variable: &str, level: LevelFilter) -> EnvFilter {
    EnvFilter::builder().with_default_directive(level.into()).with_env_var(variable).from_env_lossy()
}
