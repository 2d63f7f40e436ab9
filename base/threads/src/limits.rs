//! The limits of the process (`ulimit`).

use std::io;
use std::mem::MaybeUninit;

/// The resource that a limit is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitOf {
    /// The number of descriptors, each of an open file or socket.
    OpenFiles,
    /// The bytes of a file that the process writes.
    FileSize,
    /// The bytes of memory that the process maps.
    AddressSpace,
    /// The bytes of memory that stays in place, as RDMA needs it.
    LockedMemory,
}

/// A limit, in the unit of [`LimitOf`]. None is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The limit that is in force. The process may raise it.
    pub soft: Option<u64>,
    /// How far the process may raise it.
    pub hard: Option<u64>,
}

/// Reads a limit of the process.
///
/// # Errors
/// The system refuses the call (`prlimit64`), as the filter of a container may; `rustix` panics then.
pub fn limit(of: LimitOf) -> io::Result<Limit> {
    let resource = match of {
        LimitOf::OpenFiles => libc::RLIMIT_NOFILE,
        LimitOf::FileSize => libc::RLIMIT_FSIZE,
        LimitOf::AddressSpace => libc::RLIMIT_AS,
        LimitOf::LockedMemory => libc::RLIMIT_MEMLOCK,
    };
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the call writes the limit if it succeeds, and nothing else.
    let limit = unsafe {
        match libc::getrlimit(resource, limit.as_mut_ptr()) {
            0 => limit.assume_init(),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    let known = |limit: libc::rlim_t| (limit != libc::RLIM_INFINITY).then_some(limit);
    Ok(Limit { soft: known(limit.rlim_cur), hard: known(limit.rlim_max) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_those_that_the_kernel_shows() {
        let shown = std::fs::read_to_string("/proc/self/limits").unwrap();
        for (of, name) in [
            (LimitOf::OpenFiles, "Max open files"),
            (LimitOf::FileSize, "Max file size"),
            (LimitOf::AddressSpace, "Max address space"),
            (LimitOf::LockedMemory, "Max locked memory"),
        ] {
            let line = shown.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let mut words = line.split_whitespace().map(|word| word.parse().ok());
            let (soft, hard) = (words.next().unwrap(), words.next().unwrap());
            assert_eq!(limit(of).unwrap(), Limit { soft, hard }, "{name}");
        }
    }
}
