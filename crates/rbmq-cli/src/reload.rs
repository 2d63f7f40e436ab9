//! SIGHUP: the configuration is read again, and its reader told what came of it.

use std::os::unix::fs::FileTypeExt;

use rbmq_broker::Broker;
use tracing::{Level, error, info, warn};

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
    // Who asks for fewer lines is told so in one of the last of the old ones, who asks for more in the new ones.
    let tells = tracing::enabled!(Level::INFO);
    if !tells {
        log.apply(&broker.config().log);
    }
    let mut applied = 0;
    for change in &reload.applied {
        match log.decided_by().filter(|_| change.name == "log.level") {
            Some(who) => warn!("not in force: {change}: {who} goes over it"),
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
    if tells {
        log.apply(&broker.config().log);
    }
}
