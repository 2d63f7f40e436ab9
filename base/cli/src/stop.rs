//! Signals. SIGINT and SIGTERM ask the command to end in order, and a second SIGINT ends it at once. SIGHUP asks a server to
//! reload its configuration, unless the signal means that the server's terminal was closed.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::Failure;

/// The exit status after a second SIGINT, 130.
pub const IMPATIENT: i32 = 128 + SIGINT;

/// Whether the command was asked to end or to reload. A process has one of these; it is shared by reference.
#[derive(Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Readable after a signal.
    wake: UnixStream,
    /// The other end of the pair, for further signals.
    sender: UnixStream,
    /// The handler that ends the process on a second SIGINT.
    second: SigId,
    reload: Option<Arc<AtomicBool>>,
    /// Whether the process has a terminal. Then SIGHUP may mean that the terminal was closed.
    terminal: bool,
}

/// Ends a wait for a request early, from another thread.
#[derive(Debug)]
pub struct Waker(UnixStream);

impl Waker {
    /// Ends the present call of [`Stop::wait_asked`], or the next one.
    pub fn wake(&self) {
        // A pair that has no room ends the wait in any case.
        let _ = (&self.0).write(&[0]);
    }
}

/// A request by a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// To end.
    End,
    /// To read its configuration again.
    Reload,
}

/// The flag of the handlers that were installed first, which all others set too.
static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Whether a signal ends the process at once, by [`end_as_first_process`].
static AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// The system ignores signals of the first process in a container that have no handler. Until a [`Stop`] has its own, SIGINT and SIGTERM end
/// this process as they end others.
pub(crate) fn end_as_first_process() {
    if getpid() == Pid::INIT {
        for signal in [SIGINT, SIGTERM] {
            // Where the system refuses the handler, it is as it was.
            let _ = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, AT_ONCE.clone());
        }
    }
}

/// How long a wait for an output is that looks for a request to end.
const STEP: Duration = Duration::from_millis(50);

/// Waits until `output` is writable; after a request to end, at most `grace`. False if it is not writable then.
pub(crate) fn wait_output(output: BorrowedFd<'_>, grace: Duration) -> io::Result<bool> {
    while !ASKED.get().is_some_and(|asked| asked.load(Ordering::Acquire)) {
        if wait_for(&[(output, PollFlags::OUT)], Some(STEP))?[0] {
            return Ok(true);
        }
    }
    writable_within(output, grace)
}

/// Whether `output` is writable within `patience`, whatever signals come meanwhile.
fn writable_within(output: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if wait_for(&[(output, PollFlags::OUT)], Some(left))?[0] {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
    }
}

/// Whether `output` is writable within `patience`. One that cannot be waited for is.
pub(crate) fn is_writable(output: BorrowedFd<'_>, patience: Duration) -> bool {
    writable_within(output, patience).unwrap_or(true)
}

impl Stop {
    /// Installs the handlers. SIGHUP keeps its effect.
    ///
    /// # Errors
    /// If the system refuses: `Failed`.
    pub fn install() -> Result<Self, Failure> {
        Self::register().map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")))
    }

    fn register() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        // A handler must not block.
        sender.set_nonblocking(true)?;
        // Registered before the handler that sets the flag, so that only a second signal finds it set. SIGTERM is different:
        // supervisors may send it both to a process and to its group.
        let second = signal_hook::flag::register_conditional_shutdown(SIGINT, IMPATIENT, asked.clone())?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, asked.clone())?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        let _ = ASKED.set(asked.clone());
        AT_ONCE.store(false, Ordering::Release);
        Ok(Self { asked, wake, sender, second, reload: None, terminal: false })
    }

    /// Removes the handler of the second SIGINT. A full-screen command handles it itself, to restore the terminal.
    pub fn remove_second(&self) {
        signal_hook::low_level::unregister(self.second);
    }

    /// Handles SIGHUP too; [`Stop::wait_asked`] reports it.
    ///
    /// # Errors
    /// As [`Stop::install`].
    pub fn with_reload(mut self) -> Result<Self, Failure> {
        self.register_reload().map_err(|error| Failure::Failed(format!("cannot handle signals: {error}")))?;
        Ok(self)
    }

    fn register_reload(&mut self) -> io::Result<()> {
        let flag = Arc::new(AtomicBool::new(false));
        // A process that was started with nohup outlives its terminal.
        self.terminal = has_terminal() && !ignores_hangup();
        signal_hook::flag::register(SIGHUP, flag.clone())?;
        signal_hook::low_level::pipe::register(SIGHUP, self.sender.try_clone()?)?;
        self.reload = Some(flag);
        Ok(())
    }

    /// Ends waits of [`Stop::wait_asked`] for other threads.
    ///
    /// # Errors
    /// As [`Stop::install`].
    pub fn waker(&self) -> Result<Waker, Failure> {
        let sender = self.sender.try_clone();
        sender.map(Waker).map_err(|error| Failure::Failed(format!("cannot wake this thread: {error}")))
    }

    /// Waits for a request, at most `timeout` (none: no limit). None if there was none, which may be known earlier. For one thread
    /// only: another one that waits meanwhile may miss the request.
    pub fn wait_asked(&self, timeout: Option<Duration>) -> Option<Asked> {
        let _ = wait_readable(&[self.wake.as_fd()], timeout);
        if self.asked() {
            return Some(Asked::End);
        }
        // Bytes of an earlier reload would end every wait. The flags have the requests.
        let _ = (&self.wake).read(&mut [0; 64]);
        let reload = self.reload.as_ref().is_some_and(|flag| flag.swap(false, Ordering::AcqRel));
        if reload && self.terminal && !has_terminal() {
            return Some(Asked::End);
        }
        // A request to end may have come between the two checks.
        if self.asked() { Some(Asked::End) } else { reload.then_some(Asked::Reload) }
    }

    /// Whether the command was asked to end.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Waits until the command is asked to end, at most `timeout` (none: no limit). True if it was asked.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        // The poll may end early. The flag has the request.
        let _ = wait_readable(&[self.wake.as_fd()], timeout);
        self.asked()
    }

    /// Waits until an input is readable or the command is asked to end, at most `timeout` (none: no limit). Returns which inputs are
    /// readable, in their order.
    ///
    /// # Errors
    /// If the system cannot wait for one of the inputs.
    pub fn wait_any(&self, inputs: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
        let fds: Vec<BorrowedFd<'_>> = inputs.iter().copied().chain([self.wake.as_fd()]).collect();
        let mut readable = wait_readable(&fds, timeout)?;
        readable.pop();
        Ok(readable)
    }

    /// Waits until an input is readable, an output is writable or the command is asked to end, at most `timeout` (none: no limit).
    ///
    /// # Errors
    /// If the system cannot wait for one of them.
    pub fn wait_either(
        &self,
        inputs: &[BorrowedFd<'_>],
        outputs: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let inputs = inputs.iter().map(|fd| (*fd, PollFlags::IN));
        let outputs = outputs.iter().map(|fd| (*fd, PollFlags::OUT));
        let all: Vec<_> = inputs.chain(outputs).chain([(self.wake.as_fd(), PollFlags::IN)]).collect();
        wait_for(&all, timeout).map(drop)
    }

    /// Waits until `output` is writable; after a request to end, at most `grace`. False if it is not writable then.
    ///
    /// # Errors
    /// If the system cannot wait for the output.
    pub fn wait_output(&self, output: BorrowedFd<'_>, grace: Duration) -> io::Result<bool> {
        let (taking, ending) = (PollFlags::OUT, PollFlags::IN);
        while !self.asked() {
            if wait_for(&[(output, taking), (self.wake.as_fd(), ending)], None)?[0] {
                return Ok(true);
            }
        }
        writable_within(output, grace)
    }

    /// Waits until `input` is readable or at its end. False if the command was asked to end first.
    ///
    /// # Errors
    /// If the system cannot wait for the input.
    pub fn wait_input(&self, input: BorrowedFd<'_>) -> io::Result<bool> {
        while !self.asked() {
            if wait_readable(&[input, self.wake.as_fd()], None)?[0] {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        // Discards the rest of the pair.
        let _ = self.wake.read(&mut [0; 16]);
    }
}

/// Whether the process has a terminal that is open.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Whether SIGHUP was ignored when the process was started.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

/// Which of the descriptors are readable, waiting at most `timeout`.
fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let fds: Vec<_> = fds.iter().map(|fd| (*fd, PollFlags::IN)).collect();
    wait_for(&fds, timeout)
}

/// Which of the descriptors are ready, waiting at most `timeout`.
fn wait_for(fds: &[(BorrowedFd<'_>, PollFlags)], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|(fd, what)| PollFd::from_borrowed_fd(*fd, *what)).collect();
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// The checks are in one test, since signals are for the whole process.
    #[test]
    fn signals_are_requests() {
        let (plain, stop) = (Stop::install().unwrap(), Stop::install().unwrap().with_reload().unwrap());
        assert_eq!(stop.wait_asked(Some(Duration::ZERO)), None);
        raise(SIGHUP).unwrap();
        assert_eq!(stop.wait_asked(Some(LONG)), Some(Asked::Reload));
        assert_eq!(stop.wait_asked(Some(Duration::ZERO)), None);
        stop.waker().unwrap().wake();
        assert_eq!(stop.wait_asked(None), None, "another thread ends the wait");
        let (mut input, output) = UnixStream::pair().unwrap();
        assert_eq!(plain.wait_any(&[output.as_fd()], Some(Duration::ZERO)).unwrap(), [false]);
        io::Write::write_all(&mut input, b"x").unwrap();
        assert_eq!(plain.wait_any(&[output.as_fd()], None).unwrap(), [true]);
        assert!(
            plain.wait_input(output.as_fd()).unwrap() && plain.wait_output(output.as_fd(), LONG).unwrap()
        );
        (&output).read_exact(&mut [0]).unwrap();
        plain.wait_either(&[output.as_fd()], &[output.as_fd()], None).unwrap();
        assert!(!plain.asked() && !stop.asked());
        raise(SIGTERM).unwrap();
        assert!(plain.wait(None) && stop.wait(None));
        assert_eq!(stop.wait_asked(None), Some(Asked::End));
        assert!(!plain.wait_input(output.as_fd()).unwrap());
        raise(SIGTERM).unwrap();
        assert!(plain.asked(), "SIGTERM may come twice");
    }
}
