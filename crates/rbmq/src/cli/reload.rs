//! SIGHUP: the configuration is read again, and its reader told what came of it.

use std::os::unix::fs::FileTypeExt;

use rbmq::Broker;
use tracing::{error, info, warn};

use super::log::BrokerLog;
use super::source::Source;
use super::supervisor;

/// Reads the configuration again, and tells the supervisor that it does. One that is wrong changes nothing.
pub(super) fn reload(source: &Source, broker: &mut Broker, log: &BrokerLog) {
    supervisor::reloading();
    take_over(source, broker, log);
    supervisor::ready();
}

fn take_over(source: &Source, broker: &mut Broker, log: &BrokerLog) {
    let Some(path) = &source.config else {
        return warn!("nothing to reload: the broker was started without a configuration file (--config)");
    };
    // What came through a pipe cannot come again, and waiting for that would be for ever.
    if path.metadata().is_ok_and(|file| file.file_type().is_fifo()) {
        return error!("not reloaded, everything stays as it was: {} is a pipe", path.display());
    }
    let config = match source.load() {
        Ok(config) => config,
        Err(why) => return error!("not reloaded, everything stays as it was: {why}"),
    };
    let reload = broker.reload(&config);
    log.apply(&broker.config().log);
    for change in &reload.applied {
        info!("in force now: {change}");
    }
    for change in &reload.needs_restart {
        warn!("needs a restart: {change}");
    }
    let (now, later) = (reload.applied.len(), reload.needs_restart.len());
    info!("reloaded {}: {now} changes in force, {later} need a restart", path.display());
}
