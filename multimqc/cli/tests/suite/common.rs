//! The command as a user runs it, and a world of its own for what needs network interfaces and mounts.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStdout, Command, Output, Stdio};

use testkit::{Process, skip, until};

pub fn multimqc(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_multimqc"));
    command.args(args).stdin(Stdio::null());
    command
}

/// The command in a process that may have so many open files at first.
pub fn multimqc_with_open_files(limit: u32) -> Command {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!("ulimit -S -n {limit} && exec \"$0\" \"$@\""),
        env!("CARGO_BIN_EXE_multimqc"),
    ]);
    command.stdin(Stdio::null());
    command
}

/// A server that is killed with the test.
pub struct Server {
    pub process: Process,
    /// None: the reader of the output has gone.
    pub output: Option<BufReader<ChildStdout>>,
    pub address: String,
    pub control: String,
}

impl Server {
    pub fn start(folder: &Path, args: &[&str]) -> Server {
        Server::start_as(multimqc(&[]), folder, args)
    }

    /// The same with a command that has no arguments yet.
    pub fn start_as(mut command: Command, folder: &Path, args: &[&str]) -> Server {
        let control = folder.join("control").display().to_string();
        let directory = folder.join("disk").display().to_string();
        let port: &[&str] = if args.contains(&"--port") { &[] } else { &["--port", "0"] };
        command.args(["serve", "--control", &control, "--directory", &directory]).args(port).args(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(command);
        let mut output = process.stdout();
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        if line.is_empty() {
            let mut error = String::new();
            process.stderr().read_to_string(&mut error).expect("text");
            panic!("the server did not start: {error}");
        }
        let address = line.split_whitespace().nth(3).expect("an address").to_owned();
        Server { process, output: Some(output), address, control }
    }

    /// Ends the server by a signal, as Ctrl-C or its manager does. Returns its log.
    pub fn end(self, signal: &str) -> String {
        let Server { process, output, .. } = self;
        process.signal(signal);
        let log = process.finish().good().stderr;
        // It has a reader to the end.
        drop(output);
        log
    }

    pub fn client(&self, args: &[&str]) -> Command {
        let mut command = multimqc(args);
        command.args(["--server", &self.address]);
        command
    }

    pub fn stat(&self) -> serde_json::Value {
        let shown =
            output(&mut multimqc(&["stat", "--json", "--interval", "10ms", "--control", &self.control]));
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_slice(&shown.stdout).expect("JSON")
    }

    pub fn wait_for_pushes(&self, pushes: u64) {
        until(&format!("{pushes} pushes"), || self.stat()["service"]["pushes"] == pushes);
    }
}

pub fn output(command: &mut Command) -> Output {
    command.output().expect("the command is built")
}

/// Runs a command that reads this text.
pub fn feed(mut command: Command, text: &str) {
    command.stdin(Stdio::piped());
    let mut process = Process::start(command);
    process.feed(text.as_bytes());
    process.finish().good();
}

/// Sends a text by `push`.
pub fn push(server: &Server, text: &str) {
    feed(server.client(&["push"]), text);
}

/// Set inside of a world: the test with its module.
const INSIDE: &str = "MULTIMQC_TEST_WORLD";

/// Runs a test, named with its module, in a process with a network and mounts of its own, where `lo` is up and a bpf file system mounted.
pub fn in_world(test: &str, run: impl FnOnce()) {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        must("ip link set lo up");
        must("mount -t bpf bpf /sys/fs/bpf");
        return run();
    }
    if !rustix::process::geteuid().is_root() {
        return skip(&format!("{test} needs root"));
    }
    let exe = std::env::current_exe().expect("this program");
    let inside = Command::new("unshare")
        .args(["-n", "-m", "--propagation", "private"])
        .arg(exe)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, test)
        .output()
        .expect("util-linux is installed");
    let error = String::from_utf8_lossy(&inside.stderr);
    if error.contains("unshare:") || error.contains("run as root") {
        return skip(&format!("{test} ({})", error.trim()));
    }
    let output = String::from_utf8_lossy(&inside.stdout);
    assert!(inside.status.success() && output.contains("1 passed"), "{output}\n{error}");
}

/// Runs a command of a few words, which succeeds.
pub fn must(command: &str) {
    let mut words = command.split(' ');
    let run = output(Command::new(words.next().expect("a command")).args(words));
    assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
}

/// The bytes that `push --count --size` sends.
pub fn numbered(count: u64, size: usize) -> Vec<u8> {
    let message = |number: u64| [&number.to_le_bytes()[..], &vec![0; size - 8]].concat();
    (0..count).flat_map(message).collect()
}
