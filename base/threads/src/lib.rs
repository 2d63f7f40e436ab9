//! Threads of a library, which leave the signals of the program alone.
//!
//! A signal to a process runs its handler on any thread that does not block it. A program that blocks signals in its own threads, and takes them
//! by `sigwait` or `signalfd`, would lose them to a thread of a library: the default effect of SIGTERM ends the process there. And a handler that is
//! to interrupt a call of the program would run elsewhere. So the threads of libraries block all signals but those that a thread causes
//! by itself, and SIGPROF, by which profilers sample each thread.
//!
//! [`limit`] reads the limits that the system sets to the process.

mod limits;

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

pub use limits::{Limit, LimitOf, limit};

/// Signals that a thread causes by itself, and that of profilers.
const OPEN: [libc::c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGPROF];

/// Starts a thread with a name, which blocks signals.
///
/// ```
/// let thread = threads::spawn("adder", || 1 + 1)?;
/// assert_eq!(thread.join().unwrap(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The system refuses the thread.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.into());
    without_signals(|| builder.spawn(run))
}

/// The same for a thread of a scope.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    name: impl Into<String>,
    scope: &'scope Scope<'scope, '_>,
    run: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let builder = Builder::new().name(name.into());
    without_signals(|| builder.spawn_scoped(scope, run))
}

/// Makes a call in which new threads get a mask that blocks signals. What arrives for this thread meanwhile is delivered afterwards.
pub fn without_signals<R>(call: impl FnOnce() -> R) -> R {
    let _restore = Restore(block());
    call()
}

/// Sets the mask of this thread again.
struct Restore(libc::sigset_t);

impl Drop for Restore {
    fn drop(&mut self) {
        // SAFETY: the set was filled by `pthread_sigmask`, which has no other result than an error for a wrong first argument.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Blocks signals in this thread. Returns the mask from before.
fn block() -> libc::sigset_t {
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: each set is initialised by the call that gets it first: `sigfillset` and `pthread_sigmask`, which do not fail with these
    // arguments.
    unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for signal in OPEN {
            libc::sigdelset(blocked.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that this thread blocks, as a mask.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_blocks_what_is_meant_for_the_program() {
        let before = blocked();
        let has = |mask: u64, signal: i32| mask & 1 << (signal - 1) != 0;
        let inside = spawn("inside", blocked).unwrap().join().unwrap();
        assert!(
            [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGCHLD]
                .into_iter()
                .all(|one| has(inside, one))
        );
        assert!(OPEN.into_iter().all(|one| !has(inside, one)), "{inside:x}");
        let scoped =
            std::thread::scope(|scope| spawn_scoped("scoped", scope, blocked).unwrap().join().unwrap());
        assert_eq!(scoped, inside);
        assert_eq!(blocked(), before, "the caller is as before");
    }
}
