//! The command as its users run it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

fn rblive() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rblive"));
    command.env_remove("RBLIVE_CONFIG").env_remove("RBLIVE_LOG");
    command
}

fn output(args: &[&str]) -> String {
    let output = rblive().args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A node that ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn pages_and_scripts_are_printed() {
    assert!(output(&["config"]).contains("[streams]"));
    assert!(output(&["completions", "bash"]).contains("rblive"));
    assert!(output(&["man"]).contains("rblive"));
    let folder = tempfile::tempdir().unwrap();
    output(&["man", folder.path().to_str().unwrap()]);
    assert!(folder.path().join("rblive-serve.1").exists());
}

#[test]
fn a_node_serves_without_a_configuration_until_a_signal() {
    let addresses = ["--control", "--listen", "--rtmp", "--http"].map(|option| [option, "127.0.0.1:0"]);
    let mut child =
        rblive().arg("serve").args(addresses.as_flattened()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut serving = Serving(child);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("encoders at rtmp://127.0.0.1:"), "{line}");
    assert!(line.contains("viewers at https://127.0.0.1:"), "{line}");
    let address = line.trim().rsplit("http://").next().unwrap().to_owned();
    assert!(get(&address, "/health").ends_with("ok\n"), "{line}");
    assert!(get(&address, "/streams").contains("\"name\":\"local\""));
    assert!(get(&address, "/metrics").contains("rblive_sent_streams 0"));
    let pid = rustix::process::Pid::from_child(&serving.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(serving.0.wait().unwrap().success());
}

#[test]
fn errors_name_the_cause() {
    let output = rblive().args(["serve", "--node", "nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no node 'nowhere'"));
}
