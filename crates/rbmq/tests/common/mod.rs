//! Real processes on free ports of the loopback, bounded in time; nothing is left behind.
#![allow(dead_code, reason = "every test file uses a part of this")]

pub mod inside;
pub mod operator;
pub mod proxy;
pub mod raw;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Nothing here takes longer unless it hangs.
pub const LONG: Duration = Duration::from_secs(60);

/// A running `rbmq`; killed when dropped.
pub struct Process {
    child: Child,
    what: String,
}

/// What a process left behind.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Outcome {
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).expect("text")
    }

    /// The output of a process that ended well.
    pub fn good(self) -> Self {
        assert!(self.status.success(), "{:?}: {}", self.status, self.stderr);
        self
    }
}

pub fn rbmq<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    // Elsewhere where the tests run on another machine than they were built on (scripts/rdma-vm).
    let program = std::env::var_os("RBMQ_TEST_COMMAND").unwrap_or_else(|| env!("CARGO_BIN_EXE_rbmq").into());
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("RBMQ_BROKER").env_remove("RBMQ_CONFIG").env_remove("RBMQ_LOG");
    command
}

impl Process {
    pub fn start(mut command: Command) -> Self {
        let what = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|e| panic!("{what}: {e}"));
        Self { child, what }
    }

    /// Writes to its standard input and closes it.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut stdin = self.child.stdin.take().expect("its input is a pipe");
        stdin.write_all(bytes).unwrap_or_else(|e| panic!("{}: {e}", self.what));
    }

    pub fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.child.stdout.take().expect("its output is a pipe"))
    }

    pub fn stderr(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.child.stderr.take().expect("its errors are a pipe"))
    }

    pub fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("its input is a pipe")
    }

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

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for its end and takes what it printed.
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker process on a free port.
pub struct BrokerProcess {
    pub process: Process,
    pub addr: String,
}

impl BrokerProcess {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(args: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", args)
    }

    pub fn start_at(addr: &str, args: &[&str]) -> Self {
        Self::start_in(addr, args, &[])
    }

    /// As [`BrokerProcess::start_at`], with these variables in its environment.
    pub fn start_in(addr: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let args = ["-q", "serve", "--listen", addr].into_iter().chain(args.iter().copied());
        let mut command = rbmq(args);
        command.stderr(Stdio::inherit()).envs(variables.iter().copied());
        let mut process = Process::start(command);
        let mut line = String::new();
        process.stdout().read_line(&mut line).expect("it says where it listens");
        let addr = line.trim().strip_prefix("rbmq: listening on ").expect("it says where").to_owned();
        Self { process, addr }
    }

    pub fn sub(&self, args: &str) -> Process {
        Process::start(client("sub", &self.addr, args))
    }

    pub fn publish(&self, args: &str, input: &[u8]) -> Process {
        let mut process = Process::start(piped(client("pub", &self.addr, args)));
        process.feed(input);
        process
    }

    /// Publishes and waits for the end.
    pub fn publish_all(&self, args: &str, input: &[u8]) {
        self.publish(args, input).finish().good();
    }
}

/// `rbmq COMMAND --broker ADDR ARGS`, the arguments separated by spaces.
pub fn client(command: &str, addr: &str, args: &str) -> Command {
    rbmq([command, "--broker", addr].into_iter().chain(args.split_whitespace()))
}

pub fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::piped());
    command
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Numbered lines.
pub fn lines(name: &str, count: usize) -> String {
    let mut text = String::new();
    for n in 0..count {
        writeln!(text, "{name} {n}").expect("a string");
    }
    text
}

/// Bytes that do not repeat, the same for the same seed.
pub fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn assert_same(path: &Path, expected: &[u8]) {
    let found = std::fs::read(path).expect("an output");
    let differs = found.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        found == expected,
        "{}: {} bytes instead of {}, first difference at {differs:?}",
        path.display(),
        found.len(),
        expected.len()
    );
}
