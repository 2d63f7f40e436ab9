//! Real processes on ports of their own, bounded in time; nothing is left behind.
#![allow(dead_code, unused_imports, reason = "every test file uses a part of this")]

pub mod archived;
pub mod operator;
#[cfg(feature = "tls")]
pub mod secure;
pub mod setup;

use std::fmt::Write as _;
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{Process, own_addr};

pub fn rbmq<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    // Elsewhere where the tests run on another machine than they were built on (scripts/rdma-vm).
    let program = std::env::var_os("RBMQ_TEST_COMMAND").unwrap_or_else(|| env!("CARGO_BIN_EXE_rbmq").into());
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("RBMQ_BROKER").env_remove("RBMQ_CONFIG").env_remove("RBMQ_LOG");
    command
}

/// A broker process on a port of its own, where another one can follow it.
pub struct BrokerProcess {
    pub process: Process,
    pub addr: String,
}

impl BrokerProcess {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(args: &[&str]) -> Self {
        Self::start_at(&own_addr(), args)
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
        process.stdout().read_line(&mut line).expect("the broker prints its address");
        let addr = line
            .trim()
            .strip_prefix("rbmq: listening on ")
            .expect("the broker prints its address")
            .to_owned();
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
    if found != expected {
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!(
            "{}: {} bytes instead of {}, first difference at {differs:?}",
            path.display(),
            found.len(),
            expected.len()
        );
    }
}
