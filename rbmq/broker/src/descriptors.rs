//! The limit on open files of the process. Every connection is an open file, and a kept topic has several.

use std::os::fd::AsRawFd;

use rustix::event::epoll;
use rustix::process::{Resource, Rlimit, setrlimit};
use threads::{Limit, LimitOf, limit};
use tracing::{info, warn};

/// The descriptors of a kept topic: a segment and a lock, of its log and of the journal of its publishers.
pub const OF_KEPT_TOPIC: u64 = 4;

/// The most descriptors that kept topics leave to clients.
pub const MOST_RESERVED: u64 = 1024;

/// No kept topic is opened any more, so that clients can connect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{used} of {limit} descriptors are in use, and kept topics and their groups leave {reserved} to clients: raise the limit (ulimit -n, or \
     LimitNOFILE of a service); a kept topic, as a group, takes {OF_KEPT_TOPIC}"
)]
pub struct TooFewDescriptors {
    used: u64,
    limit: u64,
    reserved: u64,
}

/// Raises the soft limit on open files to the hard limit, and logs the change. Systems start programs with a low soft limit
/// because of `select`, which a broker doesn't use.
pub fn raise_descriptor_limit() {
    let Limit { soft, hard } = match limit(LimitOf::OpenFiles) {
        Ok(limit) => limit,
        Err(error) => return warn!("the limit on open files is unknown, and stays: {error}"),
    };
    if soft == hard {
        return;
    }
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let (before, most) = (show(soft), show(hard));
    match setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }) {
        Ok(()) => info!("raised the limit on open files from {before} to {most}"),
        Err(error) => warn!("the limit on open files stays at {before}: {error}"),
    }
}

/// Whether a further group leaves enough descriptors to clients. It has no more than a kept topic: a segment and a lock of its journal, and
/// the file of the log that it reads.
pub(crate) fn have_room_for_group() -> Result<(), TooFewDescriptors> {
    have_room_for_kept_topic()
}

/// Whether a further kept topic leaves enough descriptors to clients.
pub(crate) fn have_room_for_kept_topic() -> Result<(), TooFewDescriptors> {
    // A system that does not tell its limit refuses the file that exceeds it.
    let Ok(Limit { soft: Some(limit), .. }) = limit(LimitOf::OpenFiles) else { return Ok(()) };
    // The system gives the lowest number that is free, so that all below are in use.
    let free = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
    room(free.map_or(limit, |free| free.as_raw_fd() as u64), limit)
}

fn room(used: u64, limit: u64) -> Result<(), TooFewDescriptors> {
    let reserved = (limit / 4).min(MOST_RESERVED);
    match used + OF_KEPT_TOPIC + reserved <= limit {
        true => Ok(()),
        false => Err(TooFewDescriptors { used, limit, reserved }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_topics_leave_descriptors_to_clients() {
        assert_eq!(room(221, 300), Ok(()));
        assert_eq!(room(222, 300), Err(TooFewDescriptors { used: 222, limit: 300, reserved: 75 }));
        assert_eq!(room(1_040_000, 1 << 20), Ok(()));
        assert!(room(1 << 20, 1 << 20).is_err());
        assert!(have_room_for_kept_topic().is_ok());
    }
}
