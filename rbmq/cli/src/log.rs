//! The log on standard error. Its level comes from, in order of precedence:
//!
//! ```text
//!   RBMQ_LOG ──▶ -v, -q ──▶ log.level of the configuration (a broker's; changes with SIGHUP) ──▶ the default
//! ```
//!
//! A broker never waits for the reader of its log ([`ServerLog`]). A client waits a moment.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use commands::Failure;
use commands::log::{LineFormat, SafeLines, ServerLog};
use rbmq_broker::BrokerConfig;
use rbmq_broker::{BrokerConfigError, LogFormat, LogSettings};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// The variable with the highest precedence.
pub(super) const VARIABLE: &str = "RBMQ_LOG";

/// The options of the command line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogOptions {
    pub(super) verbose: u8,
    pub(super) quiet: bool,
}

/// The value of the variable; none if it is empty.
pub(super) fn variable() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|value| !value.is_empty())
}

/// Refuses a value of the variable that `log.level` of a file would not accept. Such a value would turn the log off
/// silently, including warnings.
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

/// Changes the log of a running broker. Dropping it waits a short time until all lines are written.
pub(super) struct BrokerLog {
    handle: reload::Handle<EnvFilter, Registry>,
    log: ServerLog,
    options: LogOptions,
}

impl LogOptions {
    /// The log of a client: warnings by default.
    pub(super) fn start_client(self) {
        commands::log::start(VARIABLE, self.level(0));
    }

    /// The log of a broker: its clients too by default.
    pub(super) fn start_broker(self, settings: &LogSettings) -> Result<BrokerLog, Failure> {
        let (filter, handle) = reload::Layer::new(self.broker_filter(settings));
        let log = ServerLog::queue()?;
        let format = match settings.format {
            LogFormat::Json => LineFormat::Json,
            _ => LineFormat::of_stderr(),
        };
        let queue = log.lines().clone();
        let layer = tracing_subscriber::fmt::layer().with_writer(move || SafeLines(queue.clone(), format));
        let registry = tracing_subscriber::registry().with(filter);
        match format {
            LineFormat::Json => registry.with(layer.json().flatten_event(true)).init(),
            _ => registry.with(layer.with_ansi(format == LineFormat::Colored).with_target(false)).init(),
        }
        Ok(BrokerLog { handle, log, options: self })
    }

    /// The option or variable that takes precedence over `log.level`, if any.
    fn decided_by(self) -> Option<&'static str> {
        let option = if self.quiet { Some("-q") } else { (self.verbose > 0).then_some("-v") };
        variable().map(|_| VARIABLE).or(option)
    }

    fn broker_filter(self, settings: &LogSettings) -> EnvFilter {
        if self.decided_by().is_some() {
            return commands::log::filter(VARIABLE, self.level(1));
        }
        // The level was checked when the configuration was read.
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

impl BrokerLog {
    /// The option or variable that takes precedence over `log.level`, if any.
    pub(super) fn decided_by(&self) -> Option<&'static str> {
        self.options.decided_by()
    }

    /// Applies another level, unless the command line or the environment takes precedence.
    pub(super) fn apply(&self, settings: &LogSettings) {
        // The change fails only if the log is gone.
        let _ = self.handle.reload(self.options.broker_filter(settings));
    }

    /// The number of lines that were dropped because the reader is too slow.
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        self.log.lines().dropped()
    }
}
