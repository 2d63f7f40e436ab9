//! The harness's side of the workers: starting them, talking to them, and leaving none behind.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::Duration,
};

use super::BenchError;

/// A worker answers within this time or the point has failed.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// One started worker. Dropping it kills the process and waits for it.
pub struct Process {
    role: &'static str,
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Process {
    /// Starts this same program as `bench worker ARGS`.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(role: &'static str, args: &[String]) -> Result<Process, BenchError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "worker"]).args(args);
        Process::spawn(role, command)
    }

    /// Starts any program whose standard output is read line by line.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(role: &'static str, mut command: Command) -> Result<Process, BenchError> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().expect("stdin is a pipe");
        let output = child.stdout.take().expect("stdout is a pipe");
        let (send, lines) = sync_channel(16);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { role, child, input, lines })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends one command line.
    ///
    /// # Errors
    /// The worker is gone.
    pub fn tell(&mut self, line: &str) -> Result<(), BenchError> {
        writeln!(self.input, "{line}").map_err(|_| BenchError::WorkerGone { role: self.role })
    }

    /// The next line, whatever it says.
    ///
    /// # Errors
    /// The worker is gone, or silent for too long.
    pub fn line(&self) -> Result<String, BenchError> {
        self.lines.recv_timeout(ANSWER_WITHIN).map_err(|error| match error {
            std::sync::mpsc::RecvTimeoutError::Timeout => BenchError::WorkerSilent { role: self.role },
            std::sync::mpsc::RecvTimeoutError::Disconnected => BenchError::WorkerGone { role: self.role },
        })
    }

    /// The words that follow `keyword` in the next line, which has to begin with it.
    ///
    /// # Errors
    /// The worker is gone, silent, or says something else.
    pub fn answer(&self, keyword: &str) -> Result<Vec<String>, BenchError> {
        let line = self.line()?;
        let mut words = line.split_whitespace().map(str::to_owned);
        if words.next().as_deref() == Some(keyword) {
            Ok(words.collect())
        } else {
            Err(BenchError::WorkerSaid { role: self.role, line })
        }
    }

    /// The numbers that follow `keyword` in the next line.
    ///
    /// # Errors
    /// As `answer`, and where a word is not a number.
    pub fn numbers(&self, keyword: &str) -> Result<Vec<u64>, BenchError> {
        let words = self.answer(keyword)?;
        let numbers: Result<Vec<u64>, _> = words.iter().map(|word| word.parse()).collect();
        numbers.map_err(|_| BenchError::WorkerSaid { role: self.role, line: words.join(" ") })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if the process has ended, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
