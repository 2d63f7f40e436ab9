//! Secrets in memory stay out of core dumps.
//!
//! A core file, and a debugger of the same user, would have the passwords, tokens and keys of a process. From the moment that a
//! command has one, the kernel writes no core file of it, and other processes of its user can neither attach to it nor read its
//! memory. (The units of systemd say the same for a server.) The files of `/proc/PID` then belong to root, except to the process
//! itself.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// From here on the process has secrets. Does nothing if the environment variable of this name is 1, for those who want a core
/// dump.
///
/// # Errors
/// The system refuses: secrets may be in core dumps.
pub fn protect(variable: &str) -> io::Result<()> {
    if std::env::var_os(variable).is_some_and(|value| value == "1") {
        return Ok(());
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    // The limit alone does not hold a core dump back that goes to a program (core_pattern), and the flag alone may be reset.
    let limited = setrlimit(Resource::Core, none);
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    Ok(limited.and(hidden)?)
}
