//! The limit on open files of a server.

use rustix::process::{Resource, Rlimit, setrlimit};
use threads::{Limit, LimitOf, limit};

/// Raises the soft limit on open files as far as the system allows, since the usual one is 1024, and returns it; the largest number is no
/// limit. A system that does not tell its limit refuses the file that exceeds it.
pub fn raise() -> u64 {
    let Ok(Limit { soft, hard }) = limit(LimitOf::OpenFiles) else { return u64::MAX };
    let raised = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    raised.map_or(soft, |()| hard).unwrap_or(u64::MAX)
}
