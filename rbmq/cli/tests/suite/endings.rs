//! How commands end when something is in their way: an output that fails, a broker that is away, a signal in the middle.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::time::Duration;

use rbmq::{ConfirmLevel, Observer, Publisher, Subscriber};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use testkit::{LONG, Process, own_addr, until};

use crate::common::{BrokerProcess, client, lines, piped, rbmq};

/// Whether everything that was written to a pipe was read.
fn is_empty(pipe: &impl AsFd) -> bool {
    rustix::io::ioctl_fionread(pipe).unwrap() == 0
}

/// A broker that prints tables, which writes to `output` and is read at `reader`.
fn printing(output: OwnedFd, reader: impl Read) -> (BrokerProcess, BufReader<impl Read>) {
    let mut command = rbmq(["serve", "--listen", "127.0.0.1:0", "--stats", "1"]);
    command.stdout(Stdio::from(output));
    let (process, mut reader) = (Process::start(command), BufReader::new(reader));
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let addr =
        line.trim().strip_prefix("rbmq: listening on ").expect("the broker prints its address").to_owned();
    (BrokerProcess { process, addr }, reader)
}

#[test]
fn a_broker_without_its_terminal_continues_and_ends_in_order() {
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
fn a_broker_with_a_blocked_output_ends_in_order() {
    let (reader, writer) = std::io::pipe().unwrap();
    let (broker, _reader) = printing(writer.try_clone().unwrap().into(), reader);
    // A new descriptor, because the broker's descriptor must stay a blocking one.
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
fn a_broker_with_a_full_output_serves() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let addr = own_addr();
    let mut command = rbmq(["serve", "--listen", &addr, "--stats", "1"]);
    command.stdout(full);
    let mut process = Process::start(command);
    until("the broker serves", || {
        assert!(process.is_running());
        Process::start(client("topics", &addr, "")).finish().status.success()
    });
    process.signal("TERM");
    let outcome = process.finish().good();
    assert_eq!(outcome.stderr.matches("cannot write to standard output").count(), 1, "{}", outcome.stderr);
}

/// A publisher of two lines that the broker has, and of one after its death.
fn left_alone(args: &str) -> (Process, std::process::ChildStdin) {
    let broker = BrokerProcess::start();
    let mut publisher = Process::start(piped(client("pub", &broker.addr, args)));
    let mut input = publisher.stdin();
    input.write_all(b"one\ntwo\n").unwrap();
    broker.sub("t --from oldest --count 2").finish().good();
    broker.process.signal("KILL");
    broker.process.finish();
    input.write_all(b"three\n").unwrap();
    (publisher, input)
}

#[test]
fn a_publisher_without_its_broker_does_not_wait_forever_at_its_end() {
    let cases = [
        ("t --timeout 3", "does not have everything of topic 't' after 3s"),
        ("t --timeout 3 --confirm accepted", "not everything is accepted"),
        ("t --timeout 3 --confirm consumed", "not everything is consumed"),
    ];
    // Side by side, because each waits for its time-out.
    let left = cases.map(|(args, what)| {
        let (publisher, input) = left_alone(args);
        drop(input);
        (args, what, publisher)
    });
    for (args, what, publisher) in left {
        let outcome = publisher.finish();
        assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(what), "{args}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("not connected"), "{args}: {}", outcome.stderr);
    }
}

#[test]
fn a_publisher_without_its_broker_reports_the_confirmed_position() {
    // Side by side, because each waits for its time-out.
    let left = ["accepted", "delivered", "consumed"].map(|level| {
        let broker = BrokerProcess::start();
        let args = format!("t --timeout 2 --json --confirm-each --confirm {level}");
        let mut publisher = Process::start(piped(client("pub", &broker.addr, &args)));
        let (mut input, mut told) = (publisher.stdin(), publisher.stdout());
        input.write_all(b"one\ntwo\n").unwrap();
        let mut last = serde_json::Value::Null;
        while last["messages"] != 2 {
            let mut line = String::new();
            assert!(told.read_line(&mut line).unwrap() > 0, "it ended after {last}");
            last = serde_json::from_str(&line).unwrap();
        }
        broker.process.signal("KILL");
        broker.process.finish();
        input.write_all(b"three\n").unwrap();
        (level, last, publisher)
    });
    for (level, last, publisher) in left {
        let said = publisher.finish().stderr;
        let reached = format!("confirmed up to position {} of ", last["position"]);
        assert!(said.contains(&reached) && said.contains("; 2 messages are"), "{level}, {reached}: {said}");
    }
}

#[test]
fn a_publisher_waits_for_slow_subscribers_at_its_end() {
    let broker = BrokerProcess::start();
    let mut slow = Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    slow.subscribe("t").unwrap();
    let mut publisher = broker.publish("t --wait-subscribers 1 --confirm consumed --timeout 2", b"one\n");
    // Longer than the time-out, which is for the broker.
    std::thread::sleep(Duration::from_millis(2200));
    assert!(publisher.is_running());
    assert_eq!(slow.recv(Some(testkit::LONG)).unwrap().unwrap().bytes, b"one");
    assert!(slow.recv(Some(Duration::from_millis(10))).unwrap().is_none());
    publisher.finish().good();
}

#[test]
fn a_file_that_was_published_in_part_is_a_failure() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    for (signal, raw) in [("TERM", ""), ("INT", "--raw")] {
        // Opened for reading and writing, so that the FIFO has no end of file.
        let mut file = File::options().read(true).write(true).open(&path).unwrap();
        let args = format!("{signal} --file {} {raw}", path.display());
        let publisher = Process::start(client("pub", &broker.addr, &args));
        file.write_all(b"one\n").unwrap();
        broker.sub(&format!("{signal} --from oldest --count 1")).finish().good();
        publisher.signal(signal);
        let outcome = publisher.finish();
        assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("was not published to its end"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("1 messages"), "{}", outcome.stderr);
    }
}

#[test]
fn no_message_for_lack_of_subscribers_is_a_failure() {
    let broker = BrokerProcess::start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    std::fs::write(&path, "one\ntwo\n").unwrap();
    let file = path.to_str().unwrap();
    for (topic, args) in [
        ("a", "--wait-subscribers 1".to_owned()),
        ("b", format!("--min-subscribers 2 --confirm consumed --json --file {file}")),
        ("c", format!("--wait-subscribers 1 --raw --file {file}")),
    ] {
        let publisher = Process::start(piped(client("pub", &broker.addr, &format!("{topic} {args}"))));
        until("the publisher waits for subscribers", || {
            Process::start(client("topics", &broker.addr, topic)).finish().good().text().contains(topic)
        });
        publisher.signal("TERM");
        let outcome = publisher.finish();
        assert_eq!(outcome.status.code(), Some(1), "{args}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("nothing was published: the topic had 0 of "),
            "{args}: {}",
            outcome.stderr
        );
    }
}

/// A publisher that loses the subscriber that it needs, is given lines, and asked to end.
fn loses_its_subscriber(broker: &BrokerProcess, topic: &str) -> testkit::Outcome {
    let sub = broker.sub(&format!("{topic} --count 1"));
    let mut publisher =
        Process::start(piped(client("pub", &broker.addr, &format!("{topic} --min-subscribers 1"))));
    let mut input = publisher.stdin();
    input.write_all(b"first\n").unwrap();
    assert_eq!(sub.finish().good().text(), "first\n");
    let mut observer = Observer::connect(&broker.addr).unwrap();
    until("its subscriber is gone", || {
        let topics = observer.topics(None).unwrap();
        topics.iter().any(|t| t.topic.as_str() == topic && t.subscribers == 0)
    });
    // Lines that the publisher reads before it notices the signal are published.
    let mut waits = 0;
    until("the publisher reads no more", || {
        input.write_all(b"a line\n").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        waits = if is_empty(&input) { 0 } else { waits + 1 };
        waits == 5
    });
    publisher.signal("TERM");
    publisher.finish()
}

#[test]
fn lines_that_were_read_and_not_published_are_reported() {
    let broker = BrokerProcess::start();
    let mut tries = 0;
    until("the signal comes while the publisher has lines", || {
        tries += 1;
        let outcome = loses_its_subscriber(&broker, &format!("t{tries}"));
        let told = outcome.stderr.contains("were read were not published (0 of 1 subscribers");
        // A machine that is very busy may not have let it read anything.
        assert!(told || outcome.status.success(), "{}", outcome.stderr);
        assert!(!told || outcome.status.code() == Some(1));
        told
    });
}

/// Whether a pipe, of which this is the reading end, has no room.
fn is_full(pipe: &impl AsRawFd) -> bool {
    let writer = File::options().write(true).open(format!("/proc/self/fd/{}", pipe.as_raw_fd())).unwrap();
    poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&Timespec::default())).unwrap() == 0
}

/// Waits until a subscriber has filled the pipe that it writes to, and asks it to end.
fn end_with_a_full_pipe(sub: &Process, output: &impl AsRawFd, signal: &str) {
    until("the pipe is full", || is_full(output));
    sub.signal(signal);
}

#[test]
fn a_subscriber_with_a_blocked_output_ends_on_a_signal() {
    let broker = BrokerProcess::start();
    broker.publish_all("t", lines("a line that makes the pipe full", 20_000).as_bytes());
    for signal in ["TERM", "INT"] {
        let mut sub = broker.sub("t --from oldest");
        let output = sub.stdout();
        end_with_a_full_pipe(&sub, output.get_ref(), signal);
        let outcome = sub.finish();
        assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("the output has no reader"), "{}", outcome.stderr);
    }
}

/// Messages that the subscriber could not write are not released, and come again to the next subscriber with its name.
#[test]
fn data_that_a_durable_subscriber_could_not_write_is_received_again() {
    let broker = BrokerProcess::start();
    let args = "t --from oldest --name n --hold 60";
    let mut sub = broker.sub(args);
    let mut output = sub.stdout();
    let publisher = Publisher::connect(&broker.addr).unwrap();
    let mut topic = publisher.topic("t").unwrap();
    topic.wait_subscribers(1, Some(LONG)).unwrap();
    // Each line is a delivery, and is written as soon as it arrives.
    let mut text = String::new();
    for n in 0..100 {
        let line = format!("{n:04000}");
        let position = topic.publish(line.as_bytes()).unwrap();
        topic.confirm(position, ConfirmLevel::Accepted, Some(LONG)).unwrap();
        text += &format!("{line}\n");
    }
    topic.close().unwrap();
    end_with_a_full_pipe(&sub, output.get_ref(), "TERM");
    assert_eq!(sub.finish().status.code(), Some(1));
    let mut first = String::new();
    output.read_to_string(&mut first).unwrap();
    let second = broker.sub(&format!("{args} --until-closed")).finish().good().text();
    assert!(text.starts_with(&first), "the written text is the beginning");
    assert!(text.ends_with(&second), "{} bytes come again: {:?}", second.len(), second.get(..80));
    assert!(first.len() + second.len() >= text.len(), "{} and {} bytes", first.len(), second.len());
}

#[test]
fn a_subscriber_writes_its_received_data_before_it_ends() {
    let broker = BrokerProcess::start();
    let text = lines("line", 20_000);
    broker.publish_all("t", text.as_bytes());
    let mut sub = broker.sub("t --from oldest");
    let mut output = sub.stdout();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    sub.signal("TERM");
    output.read_to_string(&mut line).unwrap();
    sub.finish().good();
    assert!(text.starts_with(&line) && line.ends_with('\n'), "no line is cut");
}

/// A publisher of a line that its only subscriber has and is not done with.
fn not_consumed() -> (BrokerProcess, Process, Subscriber) {
    let broker = BrokerProcess::start();
    let mut slow = Subscriber::builder().until_ended(true).connect(&broker.addr).unwrap();
    slow.subscribe("t").unwrap();
    let publisher = broker.publish("t --wait-subscribers 1 --confirm consumed --timeout 2", b"one\n");
    assert_eq!(slow.recv(Some(testkit::LONG)).unwrap().unwrap().bytes, b"one");
    (broker, publisher, slow)
}

#[test]
fn a_subscriber_that_left_differs_from_a_missing_one() {
    let (_broker, publisher, slow) = not_consumed();
    drop(slow);
    let outcome = publisher.finish().good();
    assert!(
        outcome.stderr.contains("1 subscriber left before it had consumed everything"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_publisher_that_ends_reports_its_total_waiting_time() {
    let (_broker, publisher, _slow) = not_consumed();
    publisher.signal("TERM");
    let outcome = publisher.finish();
    assert_eq!(outcome.status.code(), Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("was not consumed within 2s"), "{}", outcome.stderr);
}
