//! The log on standard error. Who decides what is in it, from the strongest:
//!
//! ```text
//!   RBMQ_LOG ──▶ -v, -q ──▶ log.level of the configuration (a broker's; changes with SIGHUP) ──▶ the default
//! ```
//!
//! A broker never waits for who reads its log ([`super::lines`]); a client may.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rbmq_broker::BrokerConfig;
use rbmq_broker::{BrokerConfigError, LogFormat, LogSettings};
use tracing::level_filters::LevelFilter;
use tracing::warn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use super::failure::Failure;
use super::lines::{self, Lines};
use super::terminal::colors;

/// The variable that goes over everything else.
pub(super) const VARIABLE: &str = "RBMQ_LOG";

/// What the command line says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wishes {
    pub(super) verbose: u8,
    pub(super) quiet: bool,
}

/// What the variable says; none if it is empty.
pub(super) fn variable() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty())
}

/// Refuses what the variable says if `log.level` of a file could not say it: it would turn the log off without a word,
/// and warnings with it.
pub(super) fn check_variable() -> Result<(), Failure> {
    let Some(value) = variable() else { return Ok(()) };
    let shown = value.display();
    let Some(text) = value.to_str() else {
        return Err(Failure::Failed(format!("{VARIABLE} = \"{shown}\": it must be text")));
    };
    let log = LogSettings { level: text.to_owned(), ..LogSettings::default() };
    match (BrokerConfig { log, ..BrokerConfig::default() }).validate() {
        Err(BrokerConfigError::Word { expects, .. }) => {
            Err(Failure::Failed(format!("{VARIABLE} = \"{shown}\": it must be {expects}")))
        }
        other => other.map_err(Failure::failed),
    }
}

/// Changes a broker's log while it runs. Dropping it waits until what was logged is written, if somebody reads it.
pub(super) struct BrokerLog {
    handle: reload::Handle<EnvFilter, Registry>,
    lines: Lines,
    wishes: Wishes,
}

impl Wishes {
    /// A client tells only what is wrong.
    pub(super) fn start_client(self) {
        let filter = filter(self.level(0));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(colors(&std::io::stderr()))
            .with_target(false)
            .init();
    }

    /// A broker tells of its clients too.
    pub(super) fn start_broker(self, settings: &LogSettings) -> Result<BrokerLog, Failure> {
        let (filter, handle) = reload::Layer::new(self.broker_filter(settings));
        let tell = |lines| warn!(lines, "lines of this log were dropped: its reader did not take them");
        let lines = Lines::start("rbmq-log", std::io::stderr(), lines::MAX_BYTES, tell)
            .map_err(|error| Failure::Failed(format!("cannot start the log: {error}")))?;
        let layer = tracing_subscriber::fmt::layer().with_writer(lines.clone());
        let registry = tracing_subscriber::registry().with(filter);
        match settings.format {
            LogFormat::Json => registry.with(layer.json().flatten_event(true)).init(),
            _ => registry.with(layer.with_ansi(colors(&std::io::stderr())).with_target(false)).init(),
        }
        Ok(BrokerLog { handle, lines, wishes: self })
    }

    /// What goes over `log.level`, if something does.
    fn decided_by(self) -> Option<&'static str> {
        let wished = if self.quiet { Some("-q") } else { (self.verbose > 0).then_some("-v") };
        variable().map(|_| VARIABLE).or(wished)
    }

    fn broker_filter(self, settings: &LogSettings) -> EnvFilter {
        if self.decided_by().is_some() {
            return filter(self.level(1));
        }
        // Its form was checked when it was read.
        EnvFilter::builder().parse_lossy(&settings.level)
    }

    fn level(self, base: u8) -> LevelFilter {
        match (self.quiet, self.verbose.saturating_add(base)) {
            (true, _) => LevelFilter::ERROR,
            (_, 0) => LevelFilter::WARN,
            (_, 1) => LevelFilter::INFO,
            (_, 2) => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }
}

/// RBMQ_LOG, where it says nothing this level.
fn filter(level: LevelFilter) -> EnvFilter {
    EnvFilter::builder().with_default_directive(level.into()).with_env_var(VARIABLE).from_env_lossy()
}

impl BrokerLog {
    /// What goes over `log.level`, if something does.
    pub(super) fn decided_by(&self) -> Option<&'static str> {
        self.wishes.decided_by()
    }

    /// Takes over another level, unless the command line or the environment decides.
    pub(super) fn apply(&self, settings: &LogSettings) {
        // Only a log that is gone cannot be changed; then there is nobody to tell.
        let _ = self.handle.reload(self.wishes.broker_filter(settings));
    }

    /// How many lines were dropped because nobody took them.
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        self.lines.dropped()
    }
}

impl Drop for BrokerLog {
    fn drop(&mut self) {
        self.lines.flush();
    }
}
