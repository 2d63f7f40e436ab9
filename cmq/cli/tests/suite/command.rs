//! The command, as a user runs it.

use std::io::{BufRead, Write};
use std::process::{Command, Stdio};

use testkit::Process;

fn cmq(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cmq"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running receiver and its address.
pub fn receive(args: &[&str]) -> (Process, String) {
    let mut process = Process::start(cmq(&[&["receive", "127.0.0.1:0"], args].concat()));
    let line = process.error_line();
    let addr = line.trim().strip_prefix("cmq: receiving at ").expect("its address").to_owned();
    (process, addr)
}

/// A running sender to which lines are written.
fn send(args: &[&str]) -> Process {
    let mut command = cmq(&[&["send"], args].concat());
    command.stdin(Stdio::piped());
    Process::start(command)
}

/// A sender of a text, to its end.
fn send_text(args: &[&str], text: &str) -> (Option<i32>, String, String) {
    let mut sender = send(args);
    sender.feed(text.as_bytes());
    done(sender)
}

/// The end of a process: its status, its output and its errors.
fn done(process: Process) -> (Option<i32>, String, String) {
    let outcome = process.finish();
    (outcome.status.code(), outcome.text(), outcome.stderr)
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    done(Process::start(cmq(args)))
}

/// The end of a command without output.
fn silent() -> (Option<i32>, String, String) {
    (Some(0), String::new(), String::new())
}

#[test]
fn lines_come_out_as_they_went_in() {
    let (receiver, addr) = receive(&["--closed", "--id", "7", "--strict"]);
    assert_eq!(send_text(&[&addr, "--id", "7"], "one\n\nthree"), silent());
    let (code, out, _) = done(receiver);
    assert_eq!((code, out.as_str()), (Some(0), "one\n\nthree\n"));
}

#[test]
fn ten_thousand_are_counted() {
    let (receiver, addr) = receive(&["--closed", "--quiet", "--json"]);
    assert_eq!(run(&["send", &addr, "--count", "10000", "--size", "4"]), silent());
    let (code, out, _) = done(receiver);
    let counted: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let number = |name: &str| counted[name].as_u64().expect("a number");
    assert_eq!((code, number("received") + number("lost") + number("missed")), (Some(0), 10_000), "{out}");
    assert_eq!(number("popped"), number("received"));
}

#[test]
fn a_signal_ends_a_receiver_in_order() {
    let (mut receiver, addr) = receive(&["--json"]);
    assert_eq!(run(&["send", &addr, "--count", "1", "--size", "8"]), silent());
    let mut out = receiver.stdout();
    let mut line = Vec::new();
    out.read_until(b'\n', &mut line).expect("the message");
    assert_eq!(line, b"\0\0\0\0\0\0\0\0\n");
    receiver.signal("INT");
    let mut json = String::new();
    out.read_line(&mut json).expect("the counters");
    let counted: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((counted["popped"].as_u64(), done(receiver).0), (Some(1), Some(0)));
}

#[test]
fn an_output_without_a_reader_is_no_failure() {
    let (mut receiver, addr) = receive(&[]);
    drop(receiver.stdout());
    assert_eq!(run(&["send", &addr, "--count", "1"]).0, Some(0));
    assert_eq!(done(receiver).0, Some(0));
}

#[test]
fn pages_and_scripts_are_printed() {
    let printed = |args: &[&str]| {
        let (code, out, errors) = run(args);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{args:?}");
        out
    };
    assert!(printed(&["completions", "bash"]).contains("receive"));
    let page = printed(&["man"]);
    assert!(page.contains(".TH cmq 1") && page.contains("EXIT STATUS"), "{page}");
}

#[test]
fn errors_say_whose_fault_it_is() {
    for (args, says) in [
        (
            &["send", "nowhere", "--count", "1"][..],
            "nowhere: invalid socket address; it is written host:port",
        ),
        (&["send", "udp://127.0.0.1:9", "--count", "1"], "'udp://' does not belong to it"),
        (&["send", "127.0.0.1:9\n", "--count", "1"], "there are blanks in \"127.0.0.1:9\\n\""),
        (&["send", "127.0.0.1:0", "--count", "1"], "this queue cannot send to the address"),
        (&["send", "255.255.255.255:9", "--count", "1"], "1 messages to 255.255.255.255:9 were not sent: "),
        (&["send", "127.0.0.1:9", "--qthresh", "0"], "qthresh is 0; it must be between 1 and 60000"),
        (&["receive", "192.0.2.1:1"], "192.0.2.1:1: cannot bind the address"),
        (
            &["receive", "127.0.0.1:0", "--join", "239.1.1.1", "--interface", "none0"],
            "interface none0: No such device",
        ),
    ] {
        let (code, out, errors) = run(args);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {errors}");
        assert!(errors.contains(says), "{args:?}: {errors}");
    }
    assert_eq!(run(&["receive"]).0, Some(2));
}

#[test]
fn a_name_may_have_addresses_of_both_versions() {
    let (receiver, addr) = receive(&["--count", "1"]);
    let (_, port) = addr.rsplit_once(':').expect("a port");
    assert_eq!(send_text(&[&format!("localhost:{port}"), "-4"], "one\n"), silent());
    let (code, out, _) = done(receiver);
    assert_eq!((code, out.as_str()), (Some(0), "one\n"));
    let (code, _, errors) = run(&["send", "127.0.0.1:9", "-6"]);
    assert!(code == Some(1) && errors.contains("no address of IPv6"), "{errors}");
}

#[test]
fn times_are_written_as_in_all_commands() {
    for wrong in ["nan", "-1", "1 week"] {
        let (code, _, errors) = run(&["receive", "127.0.0.1:0", "--idle", wrong]);
        assert!(code == Some(2) && errors.contains("write seconds alone, or with a unit"), "{errors}");
    }
    let (code, _, errors) = run(&["receive", "127.0.0.1:0", "--idle", "50ms", "--timeout", "1s"]);
    assert_eq!(code, Some(0), "{errors}");
}

/// The soft limit on the size of a process's core files.
fn core_limit(process: &Process) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.id())).expect("a process");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).expect("a limit");
    line.split_whitespace().next().expect("a soft limit").to_owned()
}

#[test]
fn a_process_with_a_secret_key_leaves_no_core_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key").into_os_string().into_string().expect("text");
    assert_eq!(run(&["keygen", &key]).0, Some(0));
    let limit = |args: &[&str], variable: &str| {
        // The shell gives the process the largest limit that it may.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -S -c $(ulimit -H -c); exec \"$0\" receive 127.0.0.1:0 \"$@\""]);
        command.arg(env!("CARGO_BIN_EXE_cmq")).args(args).env("CMQ_CORE_DUMPS", variable);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut receiver = Process::start(command);
        receiver.error_line();
        core_limit(&receiver)
    };
    let most = limit(&[], "");
    assert_eq!(limit(&["--key", &key], ""), "0");
    assert_eq!(limit(&["--key", &key], "1"), most);
}

#[test]
fn keys_encrypt_and_refuse() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).into_os_string().into_string().expect("text");
    for name in ["server", "client", "stranger"] {
        let made = run(&["keygen", &path(name)]);
        let public = std::fs::read_to_string(path(&format!("{name}.pub"))).expect("the public key");
        assert_eq!(made, (Some(0), public, String::new()));
    }
    let (code, _, errors) = run(&["keygen", &path("server")]);
    assert!(code == Some(1) && errors.contains("exists"), "{errors}");
    let (receiver, addr) =
        receive(&["--closed", "--json", "--key", &path("server"), "--allow", &path("client.pub")]);
    let send = |more: &[&str]| run(&[&["send", &addr, "--count", "3", "--size", "8"], more].concat());
    let server = path("server.pub");
    let (code, _, errors) = send(&["--peer-key", &server, "--key", &path("stranger")]);
    assert!(code == Some(1) && errors.contains("does not allow this queue"), "{errors}");
    assert_eq!(send(&[]).0, Some(0), "a plain sender does not wait for an answer");
    let (code, _, errors) = send(&["--key", &path("client.pub"), "--peer-key", &server]);
    assert!(code == Some(1) && errors.contains("chmod 600"), "{errors}");
    assert_eq!(send(&["--key", &path("client"), "--peer-key", &server]), silent());
    let (code, out, errors) = done(receiver);
    let counted: serde_json::Value = serde_json::from_str(out.lines().last().expect("a line")).expect("JSON");
    let counts =
        ["popped", "handshakes", "refused_plain", "refused_strangers"].map(|name| counted[name].as_u64());
    assert!(code == Some(0) && counts[..2] == [Some(3), Some(1)], "{out}");
    assert!(counts[2..].iter().all(|count| *count > Some(0)), "{out}");
    assert!(errors.contains("the sender does not encrypt") && errors.contains("is not allowed"), "{errors}");
}

#[test]
fn reliable_messages_are_confirmed_or_reported() {
    let (receiver, addr) = receive(&["--reliable", "--count", "20000", "--quiet", "--json"]);
    assert_eq!(run(&["send", &addr, "--reliable", "--count", "20000", "--size", "100"]), silent());
    let (code, out, _) = done(receiver);
    let counted: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, counted["reliable"].as_u64()), (Some(0), Some(20_000)), "{out}");
}

/// A receiver ends when the last of its senders has: those of the reliable mode, and those that are not.
#[test]
fn reliable_senders_close_too() {
    let (receiver, addr) = receive(&["--reliable", "--closed"]);
    let mut first = send(&[&addr, "--reliable"]);
    let mut input = first.stdin();
    input.write_all(b"one\n").expect("the sender reads its input");
    assert_eq!(send_text(&[&addr, "--reliable", "--id", "3"], "two"), silent());
    assert_eq!(send_text(&[&addr], "three"), silent());
    input.write_all(b"four").expect("the sender reads its input");
    drop(input);
    assert_eq!(done(first).0, Some(0));
    let (code, out, _) = done(receiver);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines), (Some(0), vec!["four", "one", "three", "two"]));
}

#[test]
fn one_signal_ends_a_sender_whose_input_is_idle() {
    let (mut receiver, addr) = receive(&[]);
    let mut sender = send(&[&addr]);
    let mut input = sender.stdin();
    let mut line = String::new();
    let mut out = receiver.stdout();
    // The sender reads its input once a line has arrived.
    input.write_all(b"one\n").expect("the sender reads");
    out.read_line(&mut line).expect("the message");
    assert_eq!(line, "one\n");
    sender.signal("TERM");
    assert_eq!(done(sender).0, Some(0));
    // Nothing more comes, and the receiver ends with its reader.
    drop((out, input));
    assert_eq!(done(receiver).0, Some(0));
}

#[test]
fn one_signal_ends_a_receiver_whose_output_nobody_reads() {
    let (mut receiver, addr) = receive(&[]);
    let _unread = receiver.stdout();
    let lines = format!("{}\n", "x".repeat(1000)).repeat(500);
    let mut sender = send(&[&addr, "--reliable"]);
    sender.feed(lines.as_bytes());
    receiver.signal("TERM");
    // Whether the output was full already is up to the machine; the command ends.
    assert!(done(receiver).0.is_some());
}

#[test]
fn a_line_without_end_is_refused() {
    let zeros = std::fs::File::open("/dev/zero").expect("a device");
    let mut sender = cmq(&["send", "127.0.0.1:9"]);
    sender.stdin(zeros);
    let (code, _, error) = done(Process::start(sender));
    assert_eq!((code, error.as_str()), (Some(1), "cmq: line 1 has more than 1048576 bytes\n"));
}

/// A limit on the size of files is an error of the write, and not the death of the command.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "ulimit -f 1; exec {} completions bash >{}/script",
        env!("CARGO_BIN_EXE_cmq"),
        folder.path().display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &text]).stderr(Stdio::piped());
    let (code, _, error) = done(Process::start(shell));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("cannot write to standard output: File too large"), "{error}");
}
