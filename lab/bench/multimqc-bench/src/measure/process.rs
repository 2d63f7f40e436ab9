//! Processes of a bench, in a namespace or not.

use std::fs::{DirEntry, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use commands::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};

/// How long a process may take to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a process may be silent before it serves: a Java program on a busy machine needs most of it.
const START: Duration = Duration::from_secs(120);

/// The command `multimqc`: the one that `MULTIMQC` names, the one beside this command, or that of the shell's search path.
pub fn multimqc() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os("MULTIMQC") {
        return Ok(named.into());
    }
    let beside = std::env::current_exe().map_err(Failure::failed)?.with_file_name("multimqc");
    Ok(if beside.is_file() { beside } else { "multimqc".into() })
}

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
        Process::start_other(enter, &program, args)
    }

    /// Starts another program in the same way.
    pub fn start_other(enter: &[String], program: &Path, args: &[String]) -> Result<Process, Failure> {
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

    /// Starts a command. The command's standard error is shown only if the command fails.
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

    /// Waits for the line that says that the process serves, and returns it.
    pub fn wait_for_line(&mut self, what: &str) -> Result<String, Failure> {
        loop {
            let line = if self.speaks(START)? { self.line()? } else { String::new() };
            if line.contains(what) {
                return Ok(line);
            }
            if line.is_empty() {
                let mut why = vec![0; 4096];
                let length = self.errors.read_at(&mut why, 0).unwrap_or(0);
                let why = String::from_utf8_lossy(&why[..length]);
                return Err(Failure::Failed(format!("a process of the bench did not say {what:?}: {why}")));
            }
        }
    }

    /// Whether there is a line to read, or the end, before this time is over.
    fn speaks(&self, time: Duration) -> Result<bool, Failure> {
        if !self.output.buffer().is_empty() {
            return Ok(true);
        }
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
        let mut output = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
        Ok(poll(&mut output, Some(&timeout)).map_err(Failure::failed)? > 0)
    }

    /// Processor time so far of all threads of the process and of those that it has started, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        cpu_of_tree(self.id())
    }

    /// Asks the process to end.
    pub fn ask_to_stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }

    /// Asks the process to end, and waits.
    pub fn stop(&mut self) {
        self.ask_to_stop();
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

/// Waits for generators to end, and returns how much they have sent together.
pub fn sent_by(generators: &mut [Process]) -> Result<u64, Failure> {
    let ended = |_| Failure::Failed("a generator ended".into());
    generators.iter_mut().map(|generator| generator.line()?.parse::<u64>().map_err(ended)).sum()
}

/// Processor time of the process and its children.
fn cpu_of_tree(process: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let of_thread = |thread: DirEntry| {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let of_children = children.split_whitespace().filter_map(|child| child.parse().ok());
        cpu_of_thread(&thread.path()) + of_children.map(cpu_of_tree).sum::<u64>()
    };
    threads.flatten().map(of_thread).sum()
}

fn cpu_of_thread(thread: &Path) -> u64 {
    let schedule = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    schedule.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

/// The kernel's threads that take packets where the interrupted process cannot, one for each CPU.
pub struct SoftIrqs(Vec<PathBuf>);

impl SoftIrqs {
    /// Finds the threads of this machine. The list is empty where `/proc` does not show them.
    pub fn find() -> SoftIrqs {
        let is_one = |process: &PathBuf| {
            std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("ksoftirqd/"))
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        SoftIrqs(processes.map(|entry| entry.path()).filter(is_one).collect())
    }

    /// Their processor time so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.0.iter().map(|thread| cpu_of_thread(thread)).sum()
    }
}
