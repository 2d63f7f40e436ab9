//! How many descriptors the process may have: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

/// Raises the soft limit on descriptors to the hard one, and says so. Programs are started with a low soft limit for
/// the sake of those that use `select`; a broker does not, and its clients are not to be refused for it.
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
