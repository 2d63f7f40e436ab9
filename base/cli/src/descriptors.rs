//! The limit on open files of a server.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files as far as the system allows, since the usual one is 1024, and returns it; the largest number is no
/// limit.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    // `None` is no limit.
    raised.map_or(limit.current, |()| limit.maximum).unwrap_or(u64::MAX)
}
