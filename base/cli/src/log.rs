//! The log of a client, on standard error.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::terminal::colors;

/// Starts the log. The environment variable takes precedence over `level`; parts of it that are no filter are ignored.
///
/// # Panics
/// If the process has a log already.
pub fn start(variable: &str, level: LevelFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter(variable, level))
        .with_writer(std::io::stderr)
        .with_ansi(colors(&std::io::stderr()))
        .with_target(false)
        .init();
}

/// The filter of the environment variable, with this level as the default.
pub fn filter(variable: &str, level: LevelFilter) -> EnvFilter {
    EnvFilter::builder().with_default_directive(level.into()).with_env_var(variable).from_env_lossy()
}
