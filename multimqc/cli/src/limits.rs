//! The needs of many topics, compared with the limits of the system before anything is opened.

use commands::Failure;
use multimqc::LevelKind;

use super::config::Config;

/// Descriptors beside those of topics: the control socket, and segments that are read.
const SPARE_DESCRIPTORS: u64 = 64;
/// Maps of memory beside those of topics: the program, its libraries and its threads.
const SPARE_MAPS: u64 = 1000;
/// Rings of the user level share a descriptor up to this size.
const SHARED_BYTES: u64 = 64 << 20;
/// A ring is mapped twice.
const MAPS_OF_RING: u64 = 2;

/// Raises the limit of descriptors as far as the system allows, since the usual limit is 1024, and refuses a configuration that needs
/// more.
///
/// # Errors
/// [`Failure::Failed`], with the need, the limit, and the way to raise it.
pub fn check(config: &Config) -> Result<(), Failure> {
    let topics = config.topics.len() as u64;
    let limit = commands::descriptors::raise();
    let needed = descriptors(config);
    if needed > limit {
        return Err(Failure::Failed(format!(
            "{topics} topics need {needed} descriptors, and the limit is {limit}: raise it (ulimit -n, or LimitNOFILE of a service), \
             or serve fewer topics"
        )));
    }
    let needed = if config.has(LevelKind::User) { MAPS_OF_RING * topics + SPARE_MAPS } else { 0 };
    let limit = max_maps();
    if needed > limit {
        return Err(Failure::Failed(format!(
            "the level user needs {needed} maps of memory for {topics} topics, and the limit is {limit}: raise it \
             (sysctl vm.max_map_count), or serve fewer topics"
        )));
    }
    Ok(())
}

/// Descriptors for the topics of a configuration.
fn descriptors(config: &Config) -> u64 {
    let topics = config.topics.len() as u64;
    let sockets = |topic: &super::config::Topic| {
        u64::from(topic.push_port.is_some()) + u64::from(topic.pull_port.is_some())
    };
    let on_disk = if config.has(LevelKind::Disk) { 2 * topics } else { 0 };
    let shared = (SHARED_BYTES / config.user.capacity_bytes.clamp(1, SHARED_BYTES)).max(1);
    let rings = if config.has(LevelKind::User) { topics.div_ceil(shared) } else { 0 };
    SPARE_DESCRIPTORS + config.topics.iter().map(sockets).sum::<u64>() + on_disk + rings
}

/// How many maps of memory a process may have.
fn max_maps() -> u64 {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    // If the system does not show the limit, it refuses the ring that exceeds it.
    limit.ok().and_then(|limit| limit.trim().parse().ok()).unwrap_or(u64::MAX)
}
