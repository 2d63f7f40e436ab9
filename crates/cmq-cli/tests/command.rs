//! The command, as a user runs it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

fn cmq(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmq"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running receiver and its address.
fn receive(args: &[&str]) -> (Child, String) {
    let mut child = cmq(&[&["receive", "127.0.0.1:0"], args].concat()).spawn().expect("the command starts");
    let mut line = String::new();
    // Byte by byte, so that no later line is consumed.
    let mut errors = BufReader::with_capacity(1, child.stderr.take().expect("piped"));
    errors.read_line(&mut line).expect("the receiver prints its address");
    child.stderr = Some(errors.into_inner());
    let addr = line.trim().strip_prefix("cmq: receiving at ").expect("its address").to_owned();
    (child, addr)
}

fn done(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn lines_come_out_as_they_went_in() {
    let (receiver, addr) = receive(&["--closed", "--id", "7", "--strict"]);
    let mut sender =
        cmq(&["send", &addr, "--id", "7"]).stdin(Stdio::piped()).spawn().expect("the command starts");
    sender.stdin.take().expect("piped").write_all(b"one\n\nthree").expect("the sender reads its input");
    assert!(sender.wait_with_output().expect("the process ends").status.success());
    let (code, out, _) = done(&receiver.wait_with_output().expect("the process ends"));
    assert_eq!((code, out.as_str()), (Some(0), "one\n\nthree\n"));
}

#[test]
fn ten_thousand_are_counted() {
    let (receiver, addr) = receive(&["--closed", "--quiet", "--json"]);
    let sent = cmq(&["send", &addr, "--count", "10000", "--size", "4"]).output().expect("the process ends");
    assert_eq!(done(&sent), (Some(0), String::new(), String::new()));
    let (code, out, _) = done(&receiver.wait_with_output().expect("the process ends"));
    let counted: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let number = |name: &str| counted[name].as_u64().expect("a number");
    assert_eq!((code, number("received") + number("lost") + number("missed")), (Some(0), 10_000), "{out}");
    assert_eq!(number("popped"), number("received"));
}

#[test]
fn errors_say_whose_fault_it_is() {
    for (args, says) in [
        (&["send", "nowhere", "--count", "1"][..], "nowhere: invalid socket address (expected HOST:PORT)"),
        (&["send", "127.0.0.1:0", "--count", "1"], "this queue cannot send to the address"),
        (&["send", "127.0.0.1:9", "--qthresh", "0"], "qthresh is 0; it must be between 1 and 60000"),
        (&["receive", "192.0.2.1:1"], "192.0.2.1:1: cannot bind the address"),
        (
            &["receive", "127.0.0.1:0", "--join", "239.1.1.1", "--interface", "none0"],
            "interface none0: No such device",
        ),
    ] {
        let (code, out, errors) = done(&cmq(args).output().expect("the process ends"));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {errors}");
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
    assert_eq!(cmq(&["receive"]).output().expect("the process ends").status.code(), Some(2));
}
