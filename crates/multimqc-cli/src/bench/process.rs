//! Processes of a bench, in a namespace or not.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::failure::Failure;

/// How long a process may take to start or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A child that ends with its handle.
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
    errors: File,
}

impl Process {
    /// Starts this program with other arguments, by way of a command that enters a namespace (or none).
    pub fn start(enter: &[String], args: &[String]) -> Result<Process, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let mut command = match enter.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        Process::spawn(command.args(args))
    }

    /// Starts a command. What it writes to standard error is shown only if it fails.
    pub fn spawn(command: &mut Command) -> Result<Process, Failure> {
        let errors = memfd_create("errors", MemfdFlags::CLOEXEC).map(File::from).map_err(Failure::failed)?;
        let errors_of_child = errors.try_clone().map_err(Failure::failed)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors_of_child).spawn();
        let mut child = child.map_err(|error| Failure::Failed(format!("{command:?}: {error}")))?;
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Ok(Process { child, output, errors })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the process prints. Empty once it has ended.
    pub fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Failure::failed)?;
        Ok(line.trim_end().to_owned())
    }

    /// Waits for the line that says that the process serves.
    pub fn wait_for_line(&mut self, what: &str) -> Result<(), Failure> {
        loop {
            let line = self.line()?;
            if line.contains(what) {
                return Ok(());
            }
            if line.is_empty() {
                let mut why = vec![0; 4096];
                let length = self.errors.read_at(&mut why, 0).unwrap_or(0);
                let why = String::from_utf8_lossy(&why[..length]);
                return Err(Failure::Failed(format!("a process of the bench did not say {what:?}: {why}")));
            }
        }
    }

    /// Processor time of all threads so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.id())) else { return 0 };
        let of_thread = |thread: std::fs::DirEntry| {
            let schedule = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            schedule.split_whitespace().next()?.parse::<u64>().ok()
        };
        threads.flatten().filter_map(of_thread).sum()
    }

    /// Asks the process to end, and waits.
    pub fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
