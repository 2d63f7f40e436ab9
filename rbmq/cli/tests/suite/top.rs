//! `rbmq top` and `rbmq topics` as processes: against real brokers, in a pipe and on a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rbmq::{Observer, Publisher, SlowPolicy, Subscriber, TopicOptions, TopicWriter};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use testkit::{LONG, Process, awaited, until};

use crate::common::{BrokerProcess, client, rbmq};

/// A broker, a topic with a subscriber that takes nothing, and more in its ring than the history.
fn slow(topic: &str) -> (BrokerProcess, TopicWriter, Subscriber) {
    let broker = BrokerProcess::start();
    let options = TopicOptions::default().ring_bytes(64 << 10);
    let publisher = Publisher::builder().name("camera").connect(&broker.addr).unwrap();
    let mut writer = publisher.topic_with(topic, options).unwrap();
    let slow = Subscriber::builder()
        .until_ended(true)
        .name("dash")
        .ring_bytes(64 << 10)
        .slow(SlowPolicy::BlockFor { timeout: None });
    let mut slow = slow.connect(&broker.addr).unwrap();
    slow.subscribe(topic).unwrap();
    writer.wait_subscribers(1, Some(LONG)).unwrap();
    let mut observer = Observer::connect(&broker.addr).unwrap();
    // The number of bytes depends on the subscriber's last CREDIT.
    let (mut received, mut looks) = (0, 0);
    until("its ring and the broker's are full", || {
        let full = writer.publish_timeout(&[7; 1000], Some(Duration::ZERO)).is_err();
        let now = observer.topics(None).unwrap()[0].received_bytes;
        looks = if full && now == received && now > 64 << 10 { looks + 1 } else { 0 };
        received = now;
        looks == 20
    });
    (broker, writer, slow)
}

fn top(broker: &BrokerProcess, args: &str) -> testkit::Outcome {
    Process::start(client("top", &broker.addr, &format!("--interval 0.1 {args}"))).finish()
}

#[test]
fn once_as_json_and_as_text() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    // The subscriber's last CREDIT may move bytes still.
    let json = awaited(LONG, "nothing moves", || {
        let json: Value = serde_json::from_str(&top(&broker, "--once --json").good().text()).unwrap();
        (json["topics"][0]["received_per_second"] == 0.0).then_some(json)
    });
    assert_eq!(json["summary"]["publishers"], 1);
    assert!(json["seconds"].as_f64().unwrap() >= 0.1);
    let topic = &json["topics"][0];
    assert_eq!(topic["topic"], "sensors/kitchen");
    assert_eq!(topic["slowest"]["name"], "dash");
    assert_eq!(topic["slowest"]["policy"], "block");
    assert!(topic["max_lag_bytes"].as_u64().unwrap() > 0);

    let text = top(&broker, "--once sensors/#").good().text();
    assert!(text.contains("TOPIC") && text.contains("sensors/kitchen") && text.contains("dash"), "{text}");
    assert!(!text.contains('\x1b'), "no escapes in a pipe: {text:?}");
    let none = top(&broker, "--once other/#").good().text();
    assert!(none.contains("TOPIC") && !none.contains("kitchen"), "{none}");
}

#[test]
fn a_name_draws_the_ring() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    let text = top(&broker, "--once sensors/kitchen").good().text();
    for part in ["from camera at", " ring [", " dash          [", "dash blocks the publisher at", "T tail"] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
    let json: Value =
        serde_json::from_str(&top(&broker, "--once --json sensors/kitchen").good().text()).unwrap();
    let buffer = &json["buffers"][0];
    assert_eq!((&buffer["publisher"], &buffer["stage"]), (&"camera".into(), &"live".into()));
    assert_eq!(buffer["subscriptions"][0]["client"], "dash");
    assert_eq!(buffer["epoch"].as_str().unwrap().len(), 32);
    let missing = top(&broker, "--once nothing");
    assert_eq!(missing.status.code(), Some(1));
    assert!(missing.stderr.contains("no topic 'nothing'"), "{}", missing.stderr);
}

#[test]
fn lists_topics() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    let run = |args: &str| Process::start(client("topics", &broker.addr, args)).finish().good().text();
    // The subscriber's last CREDIT may move the boundary between two looks.
    until("both say the same", || {
        let text = run("");
        let rows: Vec<&str> = text.lines().collect();
        assert!(rows[0].starts_with("TOPIC") && rows[1].starts_with("sensors/kitchen "), "{text}");
        let boundary: u64 = rows[1].split_whitespace().last().unwrap().parse().unwrap();
        assert!(boundary > 0);
        let json: Value = serde_json::from_str(&run("sensors/+ --json")).unwrap();
        assert_eq!(json["topic"], "sensors/kitchen");
        json["boundary"] == boundary
    });
    assert_eq!(run("attic --json"), "");
}

#[test]
fn wrong_arguments_and_absent_brokers_are_reported() {
    let bad = Process::start(rbmq(["top", "--interval", "0"])).finish();
    assert_eq!(bad.status.code(), Some(2));
    let bad = Process::start(rbmq(["top", "a#"])).finish();
    assert!(bad.status.code() == Some(2) && bad.stderr.contains("whole level"), "{}", bad.stderr);
    let nobody = Process::start(rbmq(["top", "--once", "--broker", "127.0.0.1:1"])).finish();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(nobody.stderr.contains("rbmq serve --listen 127.0.0.1:1"), "{}", nobody.stderr);
}

#[test]
fn prints_repeatedly_in_a_pipe_until_a_signal() {
    let broker = BrokerProcess::start();
    let mut process = Process::start(client("top", &broker.addr, "--interval 0.1 --json"));
    let mut lines = BufReader::new(process.stdout()).lines();
    for _ in 0..3 {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["topics"], Value::Array(Vec::new()));
    }
    process.signal("INT");
    drop(lines);
    assert!(process.finish().status.success());
}

#[test]
fn the_broker_prints_the_same_table() {
    let mut command = rbmq(["-q", "serve", "--listen", "127.0.0.1:0", "--stats", "1"]);
    command.stderr(Stdio::inherit());
    let mut process = Process::start(command);
    let mut lines = process.stdout().lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("listening on"));
    assert!(lines.next().unwrap().starts_with("TOPIC "));
    assert_eq!(lines.next().unwrap(), "0 topics, rings of 0 B");
}

/// A terminal of 100 columns, and its text.
struct Terminal {
    keyboard: File,
    end: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn open() -> Self {
        let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&pty).expect("the terminal is ours");
        unlockpt(&pty).expect("the terminal is ours");
        let name = ptsname(&pty, Vec::new()).expect("the terminal has a name");
        let end =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).expect("its other end");
        let keyboard = File::from(pty);
        let (mut screen, seen) = (keyboard.try_clone().expect("a descriptor"), Arc::default());
        let text: Arc<Mutex<Vec<u8>>> = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails when the other end is closed.
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                text.lock().unwrap().extend_from_slice(&bytes[..n]);
            }
        });
        let terminal = Self { keyboard, end, seen };
        terminal.resize(100);
        terminal
    }

    fn resize(&self, columns: u16) {
        tcsetwinsize(&self.keyboard, Winsize { ws_row: 30, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("any size");
    }

    fn run(&self, broker: &BrokerProcess, args: &str) -> Process {
        let mut command = client("top", &broker.addr, args);
        let end = || Stdio::from(self.end.try_clone().expect("a descriptor"));
        command.stdin(end()).stdout(end()).env("TERM", "xterm");
        Process::start(command)
    }

    fn text(&self) -> String {
        self.text_from(0)
    }

    /// The text behind so many bytes.
    fn text_from(&self, bytes: usize) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()[bytes..]).into_owned()
    }

    fn shows(&self, text: &str) {
        until(text, || self.text().contains(text));
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.end).expect("a terminal").local_modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

#[test]
fn takes_a_terminal_over_and_gives_it_back() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    let terminal = Terminal::open();
    assert!(terminal.echoes());
    let process = terminal.run(&broker, "--interval 0.1");
    terminal.shows("sensors/kitchen");
    assert!(terminal.text().starts_with(ENTER) && !terminal.echoes());
    process.signal("INT");
    assert!(process.finish().status.success());
    terminal.shows(LEAVE);
    assert!(terminal.echoes());
}

#[test]
fn an_impatient_end_gives_the_terminal_back_too() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    let terminal = Terminal::open();
    let mut process = terminal.run(&broker, "--interval 0.1");
    terminal.shows("sensors/kitchen");
    // The command waits for an answer, and only the second signal ends it.
    broker.process.signal("STOP");
    until("two signals end the command", || {
        process.signal("INT");
        !process.is_running()
    });
    broker.process.signal("CONT");
    let code = process.finish().status.code();
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    terminal.shows(LEAVE);
    assert!(terminal.echoes());
}

#[test]
fn it_can_be_ended_before_the_broker_has_answered() {
    let broker = BrokerProcess::start();
    broker.process.signal("STOP");
    let terminal = Terminal::open();
    let mut process = terminal.run(&broker, "--interval 0.1");
    until("the command handles signals", || caught(process.id()) & (1 << 1) != 0);
    until("two signals end the command", || {
        process.signal("INT");
        !process.is_running()
    });
    broker.process.signal("CONT");
    assert_eq!(process.finish().status.code(), Some(130));
    assert!(terminal.echoes());
}

/// The signals that a process handles: bit 0 is the first.
fn caught(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

#[test]
fn a_terminal_that_only_shows_gets_lines() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    let terminal = Terminal::open();
    let mut command = client("top", &broker.addr, "--interval 0.1");
    let end = || Stdio::from(terminal.end.try_clone().expect("a descriptor"));
    command.stdin(end()).stdout(end()).env("TERM", "dumb");
    let process = Process::start(command);
    terminal.shows("sensors/kitchen");
    assert!(!terminal.text().contains('\x1b') && terminal.echoes());
    process.signal("INT");
    process.finish().good();
}

#[test]
fn q_ends_it_and_another_size_is_drawn() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    let mut terminal = Terminal::open();
    let process = terminal.run(&broker, "sensors/kitchen --interval 3600");
    terminal.shows(" dash          [");
    // The bar is as wide as the window says, without waiting for the next look.
    let closes_at = |text: &str| {
        let last = text.rsplit("\x1b[H").find(|frame| frame.contains(" ring ["))?;
        last.split("\r\n").find(|line| line.contains(" ring ["))?.chars().position(|c| c == ']')
    };
    until("100 columns", || closes_at(&terminal.text()) == Some(98));
    terminal.resize(60);
    process.signal("WINCH");
    until("60 columns", || closes_at(&terminal.text()) == Some(58));
    terminal.keyboard.write_all(b"xq").expect("a terminal");
    assert!(process.finish().status.success());
    terminal.shows(LEAVE);
    assert!(terminal.echoes());
}

#[test]
fn more_topics_than_lines_are_scrolled_with_keys() {
    let broker = BrokerProcess::start();
    let publisher = Publisher::connect(&broker.addr).unwrap();
    let _writers: Vec<TopicWriter> =
        (0..60).map(|n| publisher.topic(&format!("topic/{n:02}")).unwrap()).collect();
    let mut terminal = Terminal::open();
    let process = terminal.run(&broker, "--sort name --interval 3600");
    // A frame that has all of these, drawn after the key was pressed.
    let mut press = |key: &[u8], parts: &[&str]| {
        let seen = terminal.seen.lock().unwrap().len();
        terminal.keyboard.write_all(key).expect("a terminal");
        let shows = |frame: &str| parts.iter().all(|part| frame.contains(part));
        until(&format!("{key:?}"), || terminal.text_from(seen).split("\x1b[H").any(shows));
    };
    press(b"?", &["one window down, up", "POLICY        policy"]);
    press(b"x", &["topic/00", "and 35 more", "?: keys"]);
    press(b"\x1b[B", &["topic/01", "1 above, 34 below"]);
    press(b"\x1b[6~", &["topic/25", "25 above, 10 below"]);
    press(b"G", &["topic/59", "35 above, 0 below"]);
    // Scrolling stops at the last line.
    press(b"jjk", &["topic/34", "34 above, 1 below"]);
    press(b"\x1b[H", &["topic/00", "and 35 more"]);
    press(b"q", &[]);
    assert!(process.finish().status.success());
}

#[test]
fn a_ring_with_more_subscribers_than_lines_is_scrolled() {
    let (broker, _writer, _slow) = slow("sensors/kitchen");
    let mut terminal = Terminal::open();
    let _others: Vec<Subscriber> = (0..30)
        .map(|n| {
            let mut other = Subscriber::builder()
                .until_ended(true)
                .name(&format!("other{n:02}"))
                .connect(&broker.addr)
                .unwrap();
            other.subscribe("sensors/kitchen").unwrap();
            other
        })
        .collect();
    let process = terminal.run(&broker, "sensors/kitchen --interval 0.1");
    terminal.shows("dash");
    let frame = |part: &str| terminal.text().rsplit("\x1b[H").nth(1).is_some_and(|f| f.contains(part));
    until("the rest is summed", || frame("more"));
    // The legend is the last line.
    terminal.keyboard.try_clone().unwrap().write_all(b"G").unwrap();
    until("the last lines", || frame("T tail") && !frame(" dash          [") && frame("other"));
    terminal.keyboard.write_all(b"gq").expect("a terminal");
    assert!(process.finish().status.success());
}

#[test]
fn shows_the_last_reading_while_the_broker_is_away_and_continues_later() {
    let broker = BrokerProcess::start();
    let addr = broker.addr.clone();
    let publisher = Publisher::connect(&addr).unwrap();
    let _writer = publisher.topic("news").unwrap();
    let terminal = Terminal::open();
    let process = terminal.run(&broker, "--interval 0.1");
    terminal.shows("news");
    drop(broker);
    terminal.shows("as it was; trying again:");
    let _broker = BrokerProcess::start_at(&addr, &[]);
    let trying = |text: &str| text.rsplit("\x1b[H").nth(1).is_none_or(|frame| frame.contains("trying again"));
    until("the broker is back", || !trying(&terminal.text()));
    process.signal("TERM");
    assert!(process.finish().status.success());
}
