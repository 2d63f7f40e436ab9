//! SIGHUP: reloads the configuration, and logs which changes are in force.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use private_files::with_patience;
use rbmq_broker::http::{Endpoint, ReloadCheck};
use rbmq_broker::{Broker, BrokerConfig, Reload};
use rbmq_gateway::Gateways;
use tracing::{Level, error, info, warn};

use super::log::BrokerLog;
use super::secrets;
use super::source::{self, Source};
use super::supervisor;

/// How long the writers of pipes may take until their ends, all together: meanwhile nobody asks the broker to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The endpoints beside the broker's own connections, which have files of their own.
#[derive(Clone, Copy)]
pub(super) struct Endpoints<'a> {
    pub(super) http: Option<&'a Endpoint>,
    pub(super) gateways: &'a Gateways,
}

/// Reloads the configuration, and informs the supervisor.
pub(super) fn reload(source: &Source, broker: &mut Broker, endpoints: Endpoints<'_>, log: &BrokerLog) {
    // The log has the reason.
    let _ = reload_checked(source, broker, endpoints, log, Box::new(|_| Ok(())));
}

/// Reloads the configuration after a check of what was read. Returns what stays as it was although the configuration says otherwise.
///
/// # Errors
/// The check or the configuration, and nothing changes.
pub(super) fn reload_checked(
    source: &Source,
    broker: &mut Broker,
    endpoints: Endpoints<'_>,
    log: &BrokerLog,
    check: ReloadCheck,
) -> Result<Vec<String>, String> {
    supervisor::reloading();
    let notes = with_patience(PATIENCE, || take_over(source, broker, endpoints, log, check));
    supervisor::ready(broker);
    notes.inspect_err(|why| error!("not reloaded, nothing changes: {why}"))
}

/// Whether a file is a pipe, which cannot be read a second time, and would block for ever.
pub(super) fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.file_type().is_fifo())
}

/// The configuration as a reload would read it now.
pub(super) fn read(source: &Source) -> Result<BrokerConfig, String> {
    if let Some(path) = source.config.as_deref().filter(|path| is_pipe(path)) {
        return Err(format!("{} is a pipe", path.display()));
    }
    source.load().map_err(|why| why.to_string())
}

fn take_over(
    source: &Source,
    broker: &mut Broker,
    endpoints: Endpoints<'_>,
    log: &BrokerLog,
    check: ReloadCheck,
) -> Result<Vec<String>, String> {
    let config = read(source)?;
    check(&config)?;
    let reload = broker.reload(&config).map_err(|why| why.to_string())?;
    let mut notes = Vec::new();
    // A log level that hides these lines is applied after them, and a level that shows them is applied before them.
    let shows = tracing::enabled!(Level::INFO);
    if !shows {
        log.apply(&broker.config().log);
    }
    let applied = log_changes(&reload, log, &mut notes);
    let mut has_files = log_files(&reload, endpoints.http, &mut notes);
    has_files |= log_gateways(broker.config(), endpoints.gateways, &mut notes);
    if secrets::are_in(broker.config()) {
        secrets::protect();
    }
    source::warn_of_missing_rules(broker.config());
    let later = reload.needs_restart.len();
    match files_of(source, has_files) {
        Some(of) => info!("reloaded {of}: {applied} changes in force, {later} need a restart"),
        None => {
            let why = "nothing to reload: the broker was started without a configuration file (--config)";
            warn!("{why}");
            notes.push(why.to_owned());
        }
    }
    if shows {
        log.apply(&broker.config().log);
    }
    Ok(notes)
}

/// Says which changes are in force, and which need a restart. Returns how many are in force.
pub(super) fn log_changes(reload: &Reload, log: &BrokerLog, notes: &mut Vec<String>) -> usize {
    let mut applied = 0;
    for change in &reload.applied {
        match log.decided_by().filter(|_| change.name == "log.level") {
            Some(who) => {
                let why = format!("not in force: {change}: {who} takes precedence");
                warn!("{why}");
                notes.push(why);
            }
            None => {
                applied += 1;
                info!("in force now: {change}");
            }
        }
    }
    for change in &reload.needs_restart {
        warn!("needs a restart: {change}");
    }
    applied
}

/// The files that were read again, for people.
fn files_of(source: &Source, has_others: bool) -> Option<String> {
    match (&source.config, &source.users) {
        (Some(path), _) => Some(path.display().to_string()),
        (None, Some(_)) => Some("the users".to_owned()),
        (None, None) => has_others.then(|| "the files that variables and options name".to_owned()),
    }
}

/// Says which files were read again, and reads those of the HTTP endpoint. Returns whether there are such files.
fn log_files(reload: &Reload, http: Option<&Endpoint>, notes: &mut Vec<String>) -> bool {
    match &reload.certificates {
        None => {}
        Some(Ok(())) => info!("certificates: read again, for new connections; established ones go on"),
        Some(Err(why)) => fail(format!("certificates: not reloaded, the old ones stay: {why}"), notes),
    }
    let endpoint = http.map(Endpoint::reload);
    let has_files = reload.certificates.is_some() || endpoint.is_some();
    match endpoint {
        None => {}
        Some(Ok(())) => info!("HTTP endpoint: token and certificates read again"),
        Some(Err(why)) => {
            fail(format!("HTTP endpoint: not reloaded, the old token and certificates stay: {why}"), notes);
        }
    }
    has_files
}

/// Reads the certificates of gateways again, and says so. Returns whether there are some.
pub(super) fn log_gateways(config: &BrokerConfig, gateways: &Gateways, notes: &mut Vec<String>) -> bool {
    let mode = &config.framework.tls.mode;
    let has_files = config.gateways().iter().any(|gateway| gateway.is_encrypted(mode));
    match gateways.reload() {
        Ok(()) if has_files => info!("gateways: certificates read again, for new connections"),
        Ok(()) => {}
        Err(why) => fail(format!("gateways: certificates not reloaded, the old ones stay: {why}"), notes),
    }
    has_files
}

/// Says what was not read again.
fn fail(why: String, notes: &mut Vec<String>) {
    error!("{why}");
    notes.push(why);
}
