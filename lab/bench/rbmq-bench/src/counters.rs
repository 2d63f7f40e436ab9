//! Instructions and system calls of a process.
//!
//! `perf` counts both without slowing the process down, if the kernel allows it and the virtual machine passes the
//! processor's counters on. Without counters, `valgrind` runs the process and counts the instructions of user space exactly, at
//! a small fraction of the speed.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, mknodat},
    process::{Pid, Signal, kill_process},
};

use crate::error::BenchError;

/// Instructions of user space, and every entry into the kernel by a system call.
const EVENTS: &str = "instructions:u,raw_syscalls:sys_enter";

/// Perf is ready within this time, or does not work here.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The counts of a process; None where a count is not available.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Instructions of user space.
    pub instructions: Option<f64>,
    /// System calls.
    pub system_calls: Option<f64>,
}

/// A `perf stat` that counts one process.
pub struct Perf {
    child: Child,
    counts: PathBuf,
}

impl Perf {
    /// Counts the process `pid` from now on; `folder` gets files whose names begin with `name`. None if `perf` is not
    /// installed or may not count.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn start(pid: u32, folder: &Path, name: &str) -> Result<Option<Perf>, BenchError> {
        let path = |what: &str| folder.join(format!("{name}-{what}"));
        let [mut control, mut answers] = [fifo(&path("control"))?, fifo(&path("answers"))?];
        let counts = path("counts");
        let spawned = Command::new("perf")
            .args(["stat", "-x", ",", "-e", EVENTS, "--delay", "-1", "-p", &pid.to_string(), "--control"])
            .arg(format!("fifo:{},{}", path("control").display(), path("answers").display()))
            .arg("-o")
            .arg(&counts)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = spawned else { return Ok(None) };
        let mut perf = Perf { child, counts };
        control.write_all(b"enable\n")?;
        Ok(if perf.is_ready(&mut answers) { Some(perf) } else { None })
    }

    /// Waits for `ack`.
    fn is_ready(&mut self, answers: &mut File) -> bool {
        let deadline = Instant::now() + READY_WITHIN;
        let mut answer = [0; 64];
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            if answers.read(&mut answer).is_ok_and(|len| len > 0) {
                return true;
            }
            thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Ends counting and returns the counts.
    pub fn stop(mut self) -> Counts {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        // Fails only if `perf` has ended, and then it has written nothing.
        let _ = pid.map(|pid| kill_process(pid, Signal::INT));
        let _ = self.child.wait();
        parse(&std::fs::read_to_string(&self.counts).unwrap_or_default())
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        // Both calls fail only if `perf` has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opened for both directions it neither waits for the other end nor sees it go.
fn fifo(path: &Path) -> std::io::Result<File> {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(path)
}

/// Lines `VALUE,UNIT,EVENT,…`, where VALUE may say that the event is not supported.
fn parse(text: &str) -> Counts {
    let of = |event: &str| {
        let line = text.lines().find(|line| line.split(',').nth(2) == Some(event))?;
        line.split(',').next()?.parse().ok()
    };
    Counts { instructions: of("instructions:u"), system_calls: of("raw_syscalls:sys_enter") }
}

/// The command that runs a program under `valgrind`, which writes its counts to `file` when the program ends.
pub fn valgrind(program: &Path, file: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--log-file=/dev/null"]);
    command.arg(format!("--cachegrind-out-file={}", file.display())).arg(program);
    command
}

/// Whether there is a valgrind.
pub fn has_valgrind() -> bool {
    let version =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// The instructions that valgrind wrote to this file.
pub fn instructions_in(file: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("summary:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_are_not_supported_are_none() {
        let text = "# started on …\n\n<not supported>,,instructions:u,0,100.00,,\n\
                    144,,raw_syscalls:sys_enter,976151,100.00,,\n";
        assert_eq!(parse(text), Counts { instructions: None, system_calls: Some(144.0) });
        let text = "5000,,instructions:u,1,100.00,,\n<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n";
        assert_eq!(parse(text), Counts { instructions: Some(5000.0), system_calls: None });
        assert_eq!(parse(""), Counts::default());
    }

    #[test]
    fn valgrinds_summary_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "events: Ir\nfl=a\n1 2\nsummary: 123456\n").unwrap();
        assert_eq!(instructions_in(file.path()), Some(123_456.0));
        assert_eq!(instructions_in(Path::new("/none/such")), None);
    }
}
