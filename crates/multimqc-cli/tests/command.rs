//! The command as a user runs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn multimqc(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_multimqc"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A server that is killed with the test.
struct Server {
    child: Child,
    output: BufReader<ChildStdout>,
    address: String,
    control: String,
}

impl Server {
    fn start(folder: &Path, args: &[&str]) -> Server {
        let control = folder.join("control").display().to_string();
        let directory = folder.join("disk").display().to_string();
        let mut child = multimqc(&["serve", "--port", "0", "--control", &control, "--directory", &directory])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command is built");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        if line.is_empty() {
            let mut error = String::new();
            child.stderr.take().expect("a pipe").read_to_string(&mut error).expect("text");
            panic!("the server did not start: {error}");
        }
        let address = line.split_whitespace().nth(3).expect("an address").to_owned();
        Server { child, output, address, control }
    }

    /// Ends the server as Ctrl-C does.
    fn stop(mut self, signal: rustix::process::Signal) -> ExitStatus {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
        wait(&mut self.child)
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = multimqc(args);
        command.args(["--server", &self.address]);
        command
    }

    fn stat(&self) -> serde_json::Value {
        let shown =
            output(&mut multimqc(&["stat", "--json", "--interval", "10ms", "--control", &self.control]));
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_slice(&shown.stdout).expect("JSON")
    }

    fn wait_for_pushes(&self, pushes: u64) {
        let deadline = Instant::now() + PATIENCE;
        while self.stat()["service"]["pushes"] != pushes {
            assert!(Instant::now() < deadline, "{}", self.stat());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            return status;
        }
        assert!(Instant::now() < deadline, "the command does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the command is built")
}

/// Sends a text by `push`.
fn push(server: &Server, text: &str) {
    let mut child = server.client(&["push"]).stdin(Stdio::piped()).spawn().expect("the command is built");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    assert!(wait(&mut child).success());
}

#[test]
fn what_is_pushed_is_pulled_from_every_set_of_levels() {
    for levels in ["user", "disk", "user,disk"] {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start(folder.path(), &["--levels", levels, "--topic", "0"]);
        push(&server, "one\ntwo\nthree\n");
        server.wait_for_pushes(3);
        let pulled = output(&mut server.client(&["pull"]));
        assert_eq!(
            (pulled.status.code(), &pulled.stdout[..]),
            (Some(0), &b"one\ntwo\nthree\n"[..]),
            "{levels}"
        );
        let pulled = output(&mut server.client(&["pull", "--from", "4", "--length", "3"]));
        assert_eq!(pulled.stdout, b"two");
        let report = server.stat();
        let names: Vec<&str> = report["topics"][0]["levels"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|level| level["level"].as_str().expect("a name"))
            .collect();
        assert_eq!(names.join(","), levels);
        let shown = output(&mut multimqc(&["stat", "--interval", "1ms", "--control", &server.control]));
        let shown = String::from_utf8(shown.stdout).expect("text");
        assert!(shown.contains("topic 0: ends at 14"), "{shown}");
        assert!(server.stop(rustix::process::Signal::INT).success(), "{levels}");
        assert!(!folder.path().join("control").exists(), "the control socket is removed");
    }
}

#[test]
fn a_server_that_ended_in_order_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--topic", "0"]);
    let sent = output(&mut server.client(&["push", "--count", "1000", "--size", "20", "--rate", "50000"]));
    assert!(sent.status.success(), "{sent:?}");
    server.wait_for_pushes(1000);
    assert!(server.stop(rustix::process::Signal::TERM).success());
    let server = Server::start(folder.path(), &["--topic", "0"]);
    push(&server, "after\n");
    server.wait_for_pushes(1);
    let pulled = output(&mut server.client(&["pull", "--from", "19980"]));
    assert_eq!(pulled.stdout, [&999_u64.to_le_bytes()[..], &[0; 12], b"after\n"].concat());
}

#[test]
fn a_server_that_was_killed_leaves_a_hole() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(folder.path(), &["--topic", "0"]);
    push(&server, "before\n");
    server.wait_for_pushes(1);
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ends");
    let server = Server::start(folder.path(), &["--topic", "0"]);
    push(&server, "after\n");
    server.wait_for_pushes(1);
    let pulled = output(&mut server.client(&["pull"]));
    let text = String::from_utf8(pulled.stdout).expect("text");
    assert!(text.ends_with("after\n"), "{text}");
    assert_eq!(pulled.status.code(), Some(3), "bytes are missing");
    let error = String::from_utf8(pulled.stderr).expect("text");
    assert!(error.contains("were lost (a hole)"), "{error}");
}

#[test]
fn pull_follows() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &["--levels", "user", "--topic", "0"]);
    push(&server, "old\n");
    server.wait_for_pushes(1);
    let mut follower = server
        .client(&["pull", "--follow", "--from", "newest"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command is built");
    // It has begun when it has asked twice: for the end, and for what comes after it.
    let deadline = Instant::now() + PATIENCE;
    while server.stat()["service"]["pulls"].as_u64() < Some(2) {
        assert!(Instant::now() < deadline);
    }
    push(&server, "new\n");
    let mut line = String::new();
    BufReader::new(follower.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "new\n");
    let pid = rustix::process::Pid::from_child(&follower);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(wait(&mut follower).code(), Some(0));
}

#[test]
fn the_configuration_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("multimqc.toml");
    let text = "levels = [\"user\"]\n[[topics]]\nid = 4\npush_port = 0\npull_port = 0\n\
                input = { drop_range = { at = 0, type = \"u8\", from = 97, to = 97 } }\n";
    std::fs::write(&file, text).expect("a file");
    let mut server = Server::start(folder.path(), &["--config", file.to_str().expect("text")]);
    let mut line = String::new();
    server.output.read_line(&mut line).expect("a line");
    let plain = line.trim().rsplit(' ').next().expect("an address").to_owned();
    assert!(line.starts_with("multimqc: topic 4: pushes on 127.0.0.1:"), "{line}");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for message in ["apple", "banana", "avocado", "cherry"] {
        socket.send_to(message.as_bytes(), &plain).expect("it is sent");
    }
    server.wait_for_pushes(4);
    let pulled = output(&mut server.client(&["pull", "--topic", "4"]));
    assert_eq!(pulled.stdout, b"bananacherry", "what begins with an a is dropped");
    let printed = output(&mut multimqc(&["config"]));
    assert!(String::from_utf8(printed.stdout).expect("text").contains("#: levels = [\"user\", \"disk\"]"));
}

#[test]
fn errors_name_the_cause_and_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("multimqc.toml");
    let path = file.to_str().expect("text");
    let fails = |args: &[&str], status: i32, words: &str| {
        let failed = output(&mut multimqc(args));
        let error = String::from_utf8(failed.stderr).expect("text");
        assert_eq!(failed.status.code(), Some(status), "{args:?}: {error}");
        assert!(error.contains(words), "{args:?}: {error}");
    };
    fails(&["serve", "--levels", "nic"], 1, "level \"nic\": this build has the levels user and disk");
    fails(&["serve", "--levels", "user,user"], 1, "the level user is named twice");
    std::fs::write(&file, "levels = [\"user\"]\nport = 1\n").expect("a file");
    fails(&["serve", "--config", path], 1, "unknown field `port`");
    let small = "[user]\ncapacity_bytes = 1048576\n";
    std::fs::write(&file, small).expect("a file");
    let directory = folder.path().to_str().expect("text");
    let equation = "latency < (capacity - (batch + overlap)) / rate, here 100ms < (917504 - (32768 + 1500)) B / 300000000 B/s";
    fails(&["serve", "--config", path, "--directory", directory], 1, equation);
    let control = folder.path().join("nobody").display().to_string();
    fails(&["stat", "--control", &control], 1, "is `multimqc serve` running");
    fails(&["pull", "--from", "yesterday"], 2, "use an offset, oldest or newest");
    fails(&["push", "--rate", "0"], 2, "--rate");
    let free = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("bound").to_string();
    fails(&["pull", "--server", &free], 1, "nobody listens at");
    let server = Server::start(folder.path(), &["--levels", "user", "--topic", "0"]);
    fails(
        &["serve", "--control", &server.control, "--levels", "user", "--port", "0", "--topic", "0"],
        1,
        "another server has",
    );
    fails(&["pull", "--server", &server.address, "--topic", "9"], 1, "has no topic 9");
    fails(
        &[
            "serve",
            "--control",
            &control,
            "--levels",
            "user",
            "--port",
            "0",
            "--topic",
            "0",
            "--address",
            "192.0.2.1",
        ],
        1,
        "cannot bind",
    );
}

#[test]
fn completions_and_help() {
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&mut multimqc(&["completions", shell]));
        assert!(script.status.success() && !script.stdout.is_empty());
    }
    for command in ["serve", "push", "pull", "stat"] {
        let help = output(&mut multimqc(&[command, "--help"]));
        assert!(String::from_utf8(help.stdout).expect("text").contains("Examples:"), "{command}");
    }
}
