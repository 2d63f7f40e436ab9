//! The harness's end of the control channel: starts workers, talks to them, and leaves none behind.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    os::unix::fs::FileExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    time::{Duration, Instant},
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Pid, Signal, kill_process},
};

use crate::{Error, sys};

/// A worker that answers later has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A process that must end has this long to clean up.
const CLEAN_UP_WITHIN: Duration = Duration::from_secs(20);

/// Lines that are kept until somebody reads them; later ones are dropped, so that the process can go on.
const LINES: usize = 16;

/// Bytes of an error that are shown.
const SHOWN: usize = 4096;

/// Words of a command line.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A started process. Dropping it ends the process and waits for it.
pub struct Process {
    role: String,
    child: Child,
    /// The input, which is closed first on drop.
    input: Option<ChildStdin>,
    /// The process groups that do the work, if it is not the process itself.
    groups: Vec<u32>,
    lines: Receiver<String>,
    /// The standard error, if it is shown only when the process fails.
    errors: Option<File>,
}

impl Process {
    /// Starts this program as `worker ARGS` ([`sys::worker`]).
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(role: impl Into<String>, args: &[String]) -> Result<Process, Error> {
        let mut command = sys::worker()?;
        command.args(args);
        Process::spawn(role, command)
    }

    /// Starts any program whose standard output is read line by line.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(role: impl Into<String>, mut command: Command) -> Result<Process, Error> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("stdout is a pipe");
        let (send, lines) = sync_channel(LINES);
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.for_each(|line| drop(send.try_send(line)));
        });
        Ok(Process { role: role.into(), child, input, groups: Vec::new(), lines, errors: None })
    }

    /// As `spawn`, with a standard error that [`Process::line_with`] shows if the process fails.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn quiet(mut command: Command) -> Result<Process, Error> {
        let errors = File::from(memfd_create("errors", MemfdFlags::CLOEXEC).map_err(std::io::Error::from)?);
        command.stderr(errors.try_clone()?);
        let role = command.get_program().to_string_lossy().into_owned();
        let mut process = Process::spawn(role, command)?;
        process.errors = Some(errors);
        Ok(process)
    }

    /// Measures CPU time and memory of these process groups from now on. On drop the process may clean up.
    pub fn measure_groups(&mut self, groups: Vec<u32>) {
        self.groups = groups;
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Closes the input of the process, and waits until it ends.
    pub fn end(mut self) {
        self.wait_for_end();
    }

    fn wait_for_end(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + CLEAN_UP_WITHIN;
        while Instant::now() < deadline && !self.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// CPU seconds used so far, those of processes that it has started included.
    pub fn cpu_s(&self) -> f64 {
        match self.groups.as_slice() {
            [] => sys::tree_cpu_s(self.child.id()),
            groups => groups.iter().copied().map(sys::group_cpu_s).sum(),
        }
    }

    /// Resident memory in bytes.
    pub fn rss_bytes(&self) -> u64 {
        match self.groups.as_slice() {
            [] => sys::process_rss_bytes(self.child.id()),
            groups => groups.iter().copied().map(sys::group_rss_bytes).sum(),
        }
    }

    /// Kills the process without waiting for it: several processes end together, and none sees another one
    /// end.
    pub fn kill(&mut self) {
        // The kill fails only if the process has ended.
        drop(self.child.kill());
    }

    /// Kills the process and waits until it is gone.
    pub fn kill_and_wait(&mut self) {
        self.kill();
        drop(self.child.wait());
    }

    /// Asks the process to end (SIGTERM).
    pub fn ask_to_end(&mut self) {
        if !self.has_ended() {
            // The signal fails only if the process has ended since.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Asks the process to end, and waits until it has.
    pub fn stop(&mut self) {
        self.ask_to_end();
        self.wait_for_end();
    }

    /// Sends one line.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn send(&mut self, line: &str) -> Result<(), Error> {
        let written = self.input.as_mut().is_some_and(|input| writeln!(input, "{line}").is_ok());
        if written { Ok(()) } else { Err(self.gone()) }
    }

    fn gone(&self) -> Error {
        Error::WorkerGone { role: self.role.clone() }
    }

    /// The next line.
    ///
    /// # Errors
    /// The process has ended, or says nothing for so long.
    pub fn line_within(&self, limit: Duration) -> Result<String, Error> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::WorkerSilent { role: self.role.clone() },
            RecvTimeoutError::Disconnected => self.gone(),
        })
    }

    /// The next line with these words. Others before it are passed over.
    ///
    /// # Errors
    /// The process has ended, with what it wrote to its standard error, or says nothing for so long.
    pub fn line_with(&self, words: &str, limit: Duration) -> Result<String, Error> {
        loop {
            match (self.line_within(limit), &self.errors) {
                (Ok(line), _) if !line.contains(words) => {}
                (Err(_), Some(errors)) => {
                    let mut why = vec![0; SHOWN];
                    let length = errors.read_at(&mut why, 0)?;
                    let said = String::from_utf8_lossy(&why[..length]).into_owned();
                    return Err(Error::NeverSaid { role: self.role.clone(), words: words.to_owned(), said });
                }
                (line, _) => return line,
            }
        }
    }

    /// The words after `keyword` in the next line, which must begin with it.
    ///
    /// # Errors
    /// The worker has ended, does not answer, or sent another line.
    pub fn answer(&self, keyword: &str) -> Result<Vec<String>, Error> {
        self.answer_within(keyword, ANSWER_WITHIN)
    }

    /// As `answer`, with another time limit.
    ///
    /// # Errors
    /// As `answer`.
    pub fn answer_within(&self, keyword: &str, limit: Duration) -> Result<Vec<String>, Error> {
        let line = self.line_within(limit)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        if words.next().as_deref() == Some(keyword) {
            Ok(words.collect())
        } else {
            Err(Error::WorkerSaid { role: self.role.clone(), line })
        }
    }

    /// The numbers after `keyword` in the next line.
    ///
    /// # Errors
    /// As `answer`; also if a word is not a number.
    pub fn numbers(&self, keyword: &str) -> Result<Vec<u64>, Error> {
        self.numbers_within(keyword, ANSWER_WITHIN)
    }

    /// As `numbers`, with another time limit.
    ///
    /// # Errors
    /// As `numbers`.
    pub fn numbers_within(&self, keyword: &str, limit: Duration) -> Result<Vec<u64>, Error> {
        let words = self.answer_within(keyword, limit)?;
        let numbers: Result<Vec<u64>, _> = words.iter().map(|word| word.parse()).collect();
        numbers.map_err(|_| Error::WorkerSaid { role: self.role.clone(), line: words.join(" ") })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        if !self.groups.is_empty() {
            self.wait_for_end();
        }
        // Both calls fail only if the process has ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The processor time used up to a moment.
pub struct Used {
    at: Instant,
    machine_s: f64,
    own_s: f64,
    processes_s: f64,
}

impl Used {
    /// By the machine, this process, and these.
    pub fn now<'p>(processes: impl IntoIterator<Item = &'p Process>) -> Used {
        Used::beside(processes.into_iter().map(Process::cpu_s).sum())
    }

    /// By the machine, this process, and others that have used so many seconds.
    pub fn beside(processes_s: f64) -> Used {
        let (machine_s, own_s) = (sys::machine_busy_s(), sys::process_cpu_s(std::process::id()));
        Used { at: Instant::now(), machine_s, own_s, processes_s }
    }

    /// The cores that the processes kept busy since `before`.
    pub fn cores_since(&self, before: &Used) -> f64 {
        (self.processes_s - before.processes_s) / (self.at - before.at).as_secs_f64()
    }

    /// The cores that other programs kept busy since `before`.
    pub fn other_cores_since(&self, before: &Used) -> f64 {
        let others = |of: &Used| of.machine_s - of.own_s - of.processes_s;
        ((others(self) - others(before)) / (self.at - before.at).as_secs_f64()).max(0.0)
    }
}
