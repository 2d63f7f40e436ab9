//! The limit on open files of the process. Every connection is an open file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Raises the soft limit on open files to the hard limit, and logs the change. Systems start programs with a low soft limit
/// because of `select`, which a broker doesn't use.
pub fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let (before, most) = (show(current), show(maximum));
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => info!("raised the limit on open files from {before} to {most}"),
        Err(error) => warn!("the limit on open files stays at {before}: {error}"),
    }
}
