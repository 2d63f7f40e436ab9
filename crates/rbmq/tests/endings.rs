//! How commands end when something is in their way: an output that fails, a broker that is away, a signal in the middle.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::time::Duration;

use common::{BrokerProcess, Process, client, rbmq, until};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A broker that prints tables, which writes to `output` and is read at `reader`.
fn printing(output: OwnedFd, reader: impl Read) -> (BrokerProcess, BufReader<impl Read>) {
    let mut command = rbmq(["serve", "--listen", "127.0.0.1:0", "--stats", "1"]);
    command.stdout(Stdio::from(output));
    let (process, mut reader) = (Process::start(command), BufReader::new(reader));
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let addr = line.trim().strip_prefix("rbmq: listening on ").expect("it says where").to_owned();
    (BrokerProcess { process, addr }, reader)
}

#[test]
fn a_broker_whose_terminal_is_gone_goes_on_and_ends_in_order() {
    let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&pty).unwrap();
    unlockpt(&pty).unwrap();
    let name = ptsname(&pty, Vec::new()).unwrap();
    let end = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let (mut broker, terminal) = printing(end, File::from(pty));
    drop(terminal);
    let (mut log, mut line) = (broker.process.stderr(), String::new());
    while !line.contains("cannot write to standard output") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended, and did not say why");
    }
    broker.publish_all("news", b"one\n");
    assert_eq!(broker.sub("news --from oldest --count 1").finish().good().text(), "one\n");
    broker.process.signal("TERM");
    broker.process.finish().good();
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("standard output"), "it is told once: {rest}");
}

#[test]
fn a_broker_whose_tables_nobody_reads_ends_in_order() {
    let (reader, writer) = std::io::pipe().unwrap();
    let (broker, _reader) = printing(writer.try_clone().unwrap().into(), reader);
    // Opened anew: the broker's own descriptor must not become one that does not wait.
    let mut full = File::options();
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let full = full.write(true).custom_flags(flags).open(format!("/proc/self/fd/{}", writer.as_raw_fd()));
    let mut full = full.unwrap();
    for size in [4096, 1] {
        while full.write(&[b'x'; 4096][..size]).is_ok() {}
    }
    // Time for tables. Where it does not suffice nothing is tested, and nothing fails.
    std::thread::sleep(Duration::from_millis(1500));
    broker.publish_all("news", b"one\n");
    broker.process.signal("TERM");
    broker.process.finish().good();
}

#[test]
fn a_broker_without_room_for_a_word_of_output_serves() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let addr = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.local_addr().unwrap().to_string()
    };
    let mut command = rbmq(["serve", "--listen", &addr, "--stats", "1"]);
    command.stdout(full);
    let mut process = Process::start(command);
    until("it serves", || {
        assert!(process.is_running());
        Process::start(client("topics", &addr, "")).finish().status.success()
    });
    process.signal("TERM");
    let outcome = process.finish().good();
    assert_eq!(outcome.stderr.matches("cannot write to standard output").count(), 1, "{}", outcome.stderr);
}
