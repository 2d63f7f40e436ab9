//! Which standard streams were closed when the process was started.
//!
//! Before `main`, Rust opens /dev/null in the place of a closed stream, so that no other file gets its number. What a command prints would
//! be lost there, and it would succeed. Therefore a look comes before that.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::{stdin, stdout};

static STDIN: AtomicBool = AtomicBool::new(false);
static STDOUT: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls each function of this section once, before `main`. `look` needs nothing that Rust sets up there: it makes two
// system calls and two stores, and does not panic.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = look;

extern "C" fn look() {
    let is_closed = |fd: BorrowedFd<'_>| fcntl_getfd(fd) == Err(Errno::BADF);
    STDIN.store(is_closed(stdin()), Ordering::Relaxed);
    STDOUT.store(is_closed(stdout()), Ordering::Relaxed);
}

/// Fails if standard input was closed when the process was started.
pub(crate) fn check_stdin() -> io::Result<()> {
    check(&STDIN)
}

/// Fails if standard output was closed when the process was started.
pub(crate) fn check_stdout() -> io::Result<()> {
    check(&STDOUT)
}

fn check(closed: &AtomicBool) -> io::Result<()> {
    if closed.load(Ordering::Relaxed) { Err(io::Error::other("it is closed")) } else { Ok(()) }
}
