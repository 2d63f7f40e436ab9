//! Processes of a bench, in a namespace or not.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use benchkit::{fleet, sys};
use commands::Failure;

/// How long a process may be silent before it serves: a Java program on a busy machine needs most of it.
const START: Duration = Duration::from_secs(120);
/// More than any measurement takes.
const END: Duration = Duration::from_secs(7200);

/// The command `multimqc`: the one that `MULTIMQC` names, the one beside this command, or that of the shell's search path.
pub fn multimqc() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os("MULTIMQC") {
        return Ok(named.into());
    }
    let beside = std::env::current_exe().map_err(Failure::failed)?.with_file_name("multimqc");
    Ok(if beside.is_file() { beside } else { "multimqc".into() })
}

/// A process that is asked to end with its handle.
pub struct Process(fleet::Process);

impl Deref for Process {
    type Target = fleet::Process;

    fn deref(&self) -> &fleet::Process {
        &self.0
    }
}

impl Process {
    /// Starts this program with other arguments, by way of a command that enters a namespace (or none), and waits for the line
    /// that says that it serves.
    pub fn start(enter: &[String], args: &[String], words: &str) -> Result<Process, Failure> {
        let program = std::env::current_exe().map_err(Failure::failed)?;
        Ok(Process::start_other(enter, &program, args, words)?.0)
    }

    /// Starts another program in the same way, and returns its line.
    pub fn start_other(
        enter: &[String],
        program: &Path,
        args: &[String],
        words: &str,
    ) -> Result<(Process, String), Failure> {
        let mut all = enter.iter().map(AsRef::as_ref).chain([program.as_os_str()]);
        let mut command = Command::new(all.next().unwrap_or_default());
        command.args(all).args(args);
        let process = Process(fleet::Process::quiet(command)?);
        let line = process.line_with(words, START)?;
        Ok((process, line))
    }

    /// The next line that the process prints.
    pub fn line(&self) -> Result<String, Failure> {
        Ok(self.line_with("", END)?)
    }

    /// Processor time so far of the process and of those that it has started, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        nanos(self.cpu_s())
    }

    /// Asks the process to end.
    pub fn ask_to_stop(&mut self) {
        self.0.ask_to_end();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Waits for generators to end, and returns how much they have sent together.
pub fn sent_by(generators: &[Process]) -> Result<u64, Failure> {
    let ended = |_| Failure::Failed("a generator ended".into());
    generators.iter().map(|generator| generator.line()?.parse::<u64>().map_err(ended)).sum()
}

/// The kernel's threads that take packets where the interrupted process cannot, one for each CPU.
pub struct SoftIrqs(Vec<u32>);

impl SoftIrqs {
    /// Finds the threads of this machine. The list is empty where `/proc` does not show them.
    pub fn find() -> SoftIrqs {
        let is_one = |id: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{id}/comm"));
            name.is_ok_and(|name| name.starts_with("ksoftirqd/"))
        };
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        SoftIrqs(
            processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect(),
        )
    }

    /// Their processor time so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        nanos(self.0.iter().copied().map(sys::process_cpu_s).sum())
    }
}
