//! The harness's end of the control channel: starts workers, talks to them, and leaves none behind.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::{Duration, Instant},
};

use crate::{Error, sys};

/// A worker that answers later has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A process that must end has this long to clean up.
const CLEAN_UP_WITHIN: Duration = Duration::from_secs(10);

/// A started worker. Dropping it ends the process and waits for it.
pub struct Process {
    role: &'static str,
    child: Child,
    /// The input, which is closed first on drop.
    input: Option<ChildStdin>,
    /// The process groups that do the work, if it is not the process itself.
    groups: Vec<u32>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this program as `worker ARGS` ([`sys::worker`]).
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(role: &'static str, args: &[String]) -> Result<Process, Error> {
        let mut command = sys::worker()?;
        command.args(args);
        Process::spawn(role, command)
    }

    /// Starts any program whose standard output is read line by line.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(role: &'static str, mut command: Command) -> Result<Process, Error> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("stdout is a pipe");
        let (send, lines) = sync_channel(16);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { role, child, input, groups: Vec::new(), lines })
    }

    /// Measures CPU time and memory of these process groups from now on. On drop the process may clean up.
    pub fn measure_groups(&mut self, groups: Vec<u32>) {
        self.groups = groups;
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Closes the input of the process, and waits until it ends.
    pub fn end(mut self) {
        self.wait_for_end();
    }

    fn wait_for_end(&mut self) {
        drop(self.input.take());
        let deadline = Instant::now() + CLEAN_UP_WITHIN;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// CPU seconds used so far.
    pub fn cpu_s(&self) -> f64 {
        match self.groups.as_slice() {
            [] => sys::process_cpu_s(self.child.id()),
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

    /// Sends one line.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn send(&mut self, line: &str) -> Result<(), Error> {
        let gone = Error::WorkerGone { role: self.role };
        let Some(input) = &mut self.input else { return Err(gone) };
        writeln!(input, "{line}").map_err(|_| gone)
    }

    /// The next line.
    fn line_within(&self, limit: Duration) -> Result<String, Error> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            std::sync::mpsc::RecvTimeoutError::Timeout => Error::WorkerSilent { role: self.role },
            std::sync::mpsc::RecvTimeoutError::Disconnected => Error::WorkerGone { role: self.role },
        })
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
            Err(Error::WorkerSaid { role: self.role, line })
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
        numbers.map_err(|_| Error::WorkerSaid { role: self.role, line: words.join(" ") })
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
