//! SIGHUP: reloads the configuration, and logs which changes are in force.

use std::os::unix::fs::FileTypeExt;

use rbmq_broker::Broker;
use tracing::{Level, error, info, warn};

use super::log::BrokerLog;
use super::source::Source;
use super::supervisor;

/// Reloads the configuration, and informs the supervisor. An invalid configuration changes nothing.
pub(super) fn reload(source: &Source, broker: &mut Broker, log: &BrokerLog) {
    supervisor::reloading();
    take_over(source, broker, log);
    supervisor::ready();
}

fn take_over(source: &Source, broker: &mut Broker, log: &BrokerLog) {
    let Some(path) = &source.config else {
        return warn!("nothing to reload: the broker was started without a configuration file (--config)");
    };
    // A pipe cannot be read a second time, and would block for ever.
    if path.metadata().is_ok_and(|file| file.file_type().is_fifo()) {
        return error!("not reloaded, nothing changes: {} is a pipe", path.display());
    }
    let config = match source.load() {
        Ok(config) => config,
        Err(why) => return error!("not reloaded, nothing changes: {why}"),
    };
    let reload = broker.reload(&config);
    // A log level that hides these lines is applied after them, and a level that shows them is applied before them.
    let shows = tracing::enabled!(Level::INFO);
    if !shows {
        log.apply(&broker.config().log);
    }
    let mut applied = 0;
    for change in &reload.applied {
        match log.decided_by().filter(|_| change.name == "log.level") {
            Some(who) => warn!("not in force: {change}: {who} takes precedence"),
            None => {
                applied += 1;
                info!("in force now: {change}");
            }
        }
    }
    for change in &reload.needs_restart {
        warn!("needs a restart: {change}");
    }
    let later = reload.needs_restart.len();
    info!("reloaded {}: {applied} changes in force, {later} need a restart", path.display());
    if shows {
        log.apply(&broker.config().log);
    }
}
