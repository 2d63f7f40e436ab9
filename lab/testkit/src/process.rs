//! Processes that tests start: bounded in time, and killed with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::LONG;

/// A running command; killed when dropped.
pub struct Process {
    child: Child,
    what: String,
}

/// The exit status and the output of a process.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to its standard output, if that was a pipe that the test did not take.
    pub stdout: Vec<u8>,
    /// The same of its standard error.
    pub stderr: String,
}

impl Outcome {
    /// Its standard output as text.
    ///
    /// # Panics
    /// It is no text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("text")
    }

    /// The output of a process that ended well.
    ///
    /// # Panics
    /// The process failed.
    pub fn good(self) -> Self {
        assert!(self.status.success(), "{:?}: {}", self.status, self.stderr);
        self
    }
}

impl Process {
    /// Starts a command.
    ///
    /// # Panics
    /// The system starts none.
    pub fn start(mut command: Command) -> Self {
        let what = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
        Self { child, what }
    }

    /// Writes to its standard input and closes it. A process that has failed reads no more: its outcome tells.
    ///
    /// # Panics
    /// Its input is no pipe, or was taken.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut stdin = self.child.stdin.take().expect("its input is a pipe");
        match stdin.write_all(bytes) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => panic!("{}: {e}", self.what),
            _ => {}
        }
    }

    /// Takes its standard output.
    ///
    /// # Panics
    /// That is no pipe, or was taken.
    pub fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child.stdout.take().expect("its output is a pipe"))
    }

    /// The first line of its standard output, of which nobody reads the rest.
    ///
    /// # Panics
    /// That is no pipe, or was taken, or is no text.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout().read_line(&mut line).expect("text");
        line
    }

    /// Takes its standard error.
    ///
    /// # Panics
    /// That is no pipe, or was taken.
    pub fn stderr(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.child.stderr.take().expect("its errors are a pipe"))
    }

    /// The next line of its standard error, which stays for what reads the rest.
    ///
    /// # Panics
    /// That is no pipe, or was taken.
    pub fn error_line(&mut self) -> String {
        let errors = self.child.stderr.as_mut().expect("its errors are a pipe");
        let mut line = String::new();
        // Byte by byte, so that no later line is consumed.
        BufReader::with_capacity(1, errors).read_line(&mut line).expect("text");
        line
    }

    /// Takes its standard input.
    ///
    /// # Panics
    /// That is no pipe, or was taken.
    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("its input is a pipe")
    }

    /// Sends a signal, by its name without SIG.
    ///
    /// # Panics
    /// No test sends such a signal, or the process was waited for.
    pub fn signal(&self, name: &str) {
        let signal = match name {
            "CONT" => Signal::CONT,
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "KILL" => Signal::KILL,
            "STOP" => Signal::STOP,
            "TERM" => Signal::TERM,
            "WINCH" => Signal::WINCH,
            other => panic!("no test sends {other}"),
        };
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.unwrap_or_else(|e| panic!("{}: {e}", self.what));
    }

    /// Its number in the system.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    ///
    /// # Panics
    /// The system does not say.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for the end of the process, and returns its output.
    ///
    /// # Panics
    /// It does not end within [`LONG`].
    pub fn finish(mut self) -> Outcome {
        let stdout = reader(self.child.stdout.take());
        let stderr = reader(self.child.stderr.take());
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            if started.elapsed() > LONG {
                self.child.kill().expect("a child");
                let stderr = stderr.join().expect("a reader");
                panic!("{} hangs; it said: {}", self.what, String::from_utf8_lossy(&stderr));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let stderr = String::from_utf8_lossy(&stderr.join().expect("a reader")).into_owned();
        Outcome { status, stdout: stdout.join().expect("a reader"), stderr }
    }
}

fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            stream.read_to_end(&mut bytes).expect("a pipe");
        }
        bytes
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
