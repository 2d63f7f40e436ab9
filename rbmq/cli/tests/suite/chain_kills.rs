//! `kill -9` of a broker in a chain, which is started again at once. Logs from the first broker continue as soon as it is back,
//! long before their linger time is over. The last broker confirms only for its subscribers.

use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rbmq::{ConfirmLevel, Observer, Publisher, Subscriber, TopicOptions};
use testkit::{LONG, Outcome, Process, own_addr, until};

use crate::common::{BrokerProcess, client, lines, piped};

/// Far more than the rings hold, and some seconds at the rate at which it is read.
const LINES: usize = 40_000;

/// The transports of the clients and of the brokers.
const TRANSPORTS: [(&str, &str); 2] = [("tcp", "tcp"), ("auto", "auto")];

/// Transports with which the second broker maps the first broker's ring. That ring is lost with the first broker, and the log
/// continues in another ring.
const MAPPED_COPY: (&str, &str) = ("tcp", "auto");

/// A chain of two brokers, a publisher at the first and a subscriber that writes a file at the second.
struct Chain {
    transport: &'static str,
    dir: tempfile::TempDir,
    first: BrokerProcess,
    second: BrokerProcess,
    sub: Process,
    publisher: Process,
    /// Has the last line published.
    last: SyncSender<()>,
    feeder: JoinHandle<()>,
}

fn start(command: &str, addr: &str, args: &str, transport: &str) -> Process {
    let mut command = piped(client(command, addr, args));
    command.env("ROCKETBUFS_TRANSPORT", transport);
    Process::start(command)
}

/// Publishes all lines but the last, and the last line at a signal.
fn feed(publisher: &mut Process) -> (SyncSender<()>, JoinHandle<()>) {
    let (last, wait) = sync_channel(1);
    let mut stdin = publisher.stdin();
    let feeder = std::thread::spawn(move || {
        stdin.write_all(lines("line", LINES - 1).as_bytes()).expect("a pipe");
        wait.recv().expect("the test sends a signal");
        writeln!(stdin, "line {}", LINES - 1).expect("a pipe");
    });
    (last, feeder)
}

impl Chain {
    fn start(of_clients: &'static str, transport: &'static str, args: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let [out, config] = ["out", "rbmq.toml"].map(|name| dir.path().join(name));
        // The linger time is longer than the test, so no broker gives up the first one.
        let text = "[session]\nlinger_ms = 600000\n[buffers]\nsize_bytes = 65536\n";
        std::fs::write(&config, text).expect("a file");
        let variables = [("ROCKETBUFS_TRANSPORT", transport)];
        let first = BrokerProcess::start_in(&own_addr(), &[], &variables);
        let args_of_second = ["--config", config.to_str().expect("a name"), "--upstream", &first.addr];
        let second = BrokerProcess::start_in(&own_addr(), &args_of_second, &variables);
        let reads = format!("t --until-closed --rate 1MB --ring-bytes 64k --output {}", out.display());
        let sub = start("sub", &second.addr, &reads, of_clients);
        let writes = format!("t {args} --json --timeout 60 --ring-bytes 64k");
        let mut publisher = start("pub", &first.addr, &writes, of_clients);
        let (last, feeder) = feed(&mut publisher);
        until("data flows", || std::fs::metadata(&out).is_ok_and(|file| file.len() > 0));
        Self { transport, dir, first, second, sub, publisher, last, feeder }
    }

    /// Kills the first broker and starts it again; waits until the publisher is there.
    fn restart_the_first(&mut self) {
        let addr = self.first.addr.clone();
        self.first.process.signal("KILL");
        until("the broker is dead", || !self.first.process.is_running());
        self.first = BrokerProcess::start_in(&addr, &[], &[("ROCKETBUFS_TRANSPORT", self.transport)]);
        let mut observer = Observer::connect(&addr).expect("the broker runs");
        until("the publisher is back", || observer.summary().expect("the broker answers").topics > 0);
    }

    /// Publishes the last line and waits for the end. Returns the received bytes, and the outcomes of publisher and subscriber.
    fn finish(self) -> (Vec<u8>, Outcome, Outcome) {
        self.last.send(()).expect("the publisher thread waits");
        let publisher = self.publisher.finish();
        let sub = self.sub.finish();
        self.feeder.join().expect("a feeder");
        let out = std::fs::read(self.dir.path().join("out")).expect("the output");
        drop((self.first, self.second));
        (out, publisher, sub)
    }
}

#[test]
fn a_chain_whose_first_broker_is_killed_loses_nothing_with_min_subscribers() {
    for (of_clients, of_brokers) in TRANSPORTS {
        println!("clients over {of_clients}, brokers over {of_brokers}");
        let mut chain = Chain::start(of_clients, of_brokers, "--min-subscribers 1 --confirm delivered");
        chain.restart_the_first();
        chain.restart_the_first();
        let (out, publisher, sub) = chain.finish();
        let (told, said) = (publisher.good().text(), sub.good().stderr);
        let told: serde_json::Value = serde_json::from_str(&told).expect("an object");
        assert_eq!(told["confirmed"]["messages"], LINES, "{told}");
        assert_eq!(told["confirmed"]["lost"], 0, "{told}");
        assert!(!said.contains("lost"), "{said}");
        assert!(out == lines("line", LINES).as_bytes(), "{} bytes came", out.len());
    }
}

/// One of the messages, which are larger than any ring was made for, is on its way whenever the first broker is killed.
#[test]
fn a_chain_whose_first_broker_is_killed_loses_no_large_message() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("rbmq.toml");
    std::fs::write(&config, "[session]\nlinger_ms = 600000\n").expect("a file");
    let addr = own_addr();
    let mut first = BrokerProcess::start_at(&addr, &[]);
    let args_of_second = ["--config", config.to_str().expect("a name"), "--upstream", &addr];
    let second = BrokerProcess::start_at(&own_addr(), &args_of_second);
    let options = TopicOptions::default().keep_until_delivered(true).min_subscribers(1);
    let publisher = Publisher::connect(&addr).expect("a broker");
    let mut topic = publisher.topic_with("t", options).expect("a topic");
    let mut reader = Subscriber::builder().until_ended(true).connect(&second.addr).expect("a broker");
    reader.subscribe("t").expect("a topic");
    topic.wait_subscribers(1, Some(LONG)).expect("a subscriber");
    let sizes: Vec<usize> = (0..20).map(|n| if n % 2 == 0 { (n + 1) << 20 } else { n }).collect();
    let message = |number: usize, size: usize| vec![number as u8; size];
    let published = sizes.clone();
    let publishing = std::thread::spawn(move || {
        for (number, size) in published.into_iter().enumerate() {
            topic.publish_timeout(&message(number, size), Some(LONG)).expect("room");
        }
        let end = topic.position();
        let confirmed = topic.confirm(end, ConfirmLevel::Delivered, Some(LONG)).expect("delivered");
        assert_eq!((confirmed.position, confirmed.lost), (end, 0));
    });
    for (number, size) in sizes.into_iter().enumerate() {
        if number % 7 == 3 {
            first.process.signal("KILL");
            until("the broker is dead", || !first.process.is_running());
            first = BrokerProcess::start_at(&addr, &[]);
        }
        let got = reader.recv(Some(LONG)).expect("no loss").expect("a message");
        assert!(got.bytes == message(number, size), "message {number} of {size}: {} bytes", got.bytes.len());
    }
    publishing.join().expect("published");
}

#[test]
fn a_chain_continues_after_its_first_broker_was_restarted() {
    for (of_clients, of_brokers) in TRANSPORTS.into_iter().chain([MAPPED_COPY]) {
        println!("clients over {of_clients}, brokers over {of_brokers}");
        let mut chain = Chain::start(of_clients, of_brokers, "--wait-subscribers 1 --confirm accepted");
        chain.restart_the_first();
        let (out, publisher, sub) = chain.finish();
        publisher.good();
        // The restarted broker may have had no subscriber for a moment. Lines from that moment are reported as missing.
        let text = String::from_utf8(out).expect("text");
        let number = |line: &str| line.strip_prefix("line ").and_then(|n| n.parse::<usize>().ok());
        let numbers: Vec<usize> = text.lines().map(|line| number(line).expect("a whole line")).collect();
        assert_eq!(numbers.first(), Some(&0), "{}", sub.stderr);
        assert_eq!(numbers.last(), Some(&(LINES - 1)), "{}", sub.stderr);
        assert!(numbers.is_sorted_by(|a, b| a < b), "{}", sub.stderr);
        assert!(numbers.len() == LINES || sub.stderr.contains("were lost"), "{}", sub.stderr);
    }
}

/// Two brokers with a subscriber each. The second subscriber is stopped while its broker is killed and started again. Lines that
/// the restarted broker gets without a subscriber do not count as delivered to that subscriber.
fn last_killed(of_clients: &str, transport: &str) {
    let dir = tempfile::tempdir().expect("a folder");
    let [config, out_of_first, out_of_second] =
        ["rbmq.toml", "first", "second"].map(|name| dir.path().join(name));
    let variables = [("ROCKETBUFS_TRANSPORT", transport)];
    let first = BrokerProcess::start_in(&own_addr(), &[], &variables);
    // The place of the process that was killed goes while data flows.
    let text = format!("[[broker.upstream]]\naddress = \"{}\"\nhold_ms = 1000\n", first.addr);
    std::fs::write(&config, text).expect("a file");
    let args = ["--config", config.to_str().expect("a name")];
    let second = BrokerProcess::start_in(&own_addr(), &args, &variables);
    let [near, far] =
        [(&first, "near", &out_of_first), (&second, "far", &out_of_second)].map(|(broker, name, out)| {
            let args = format!("t --until-closed --name {name} --hold 60 --rate 1MB --ring-bytes 64k");
            let mut command = client("sub", &broker.addr, &args);
            command.env("ROCKETBUFS_TRANSPORT", of_clients);
            command.stdout(std::fs::File::create(out).expect("a file"));
            Process::start(command)
        });
    let writes = "t --min-subscribers 2 --confirm consumed --json --timeout 60 --ring-bytes 64k";
    let mut publisher = start("pub", &first.addr, writes, of_clients);
    let (last, feeder) = feed(&mut publisher);
    until("data flows", || std::fs::metadata(&out_of_second).is_ok_and(|file| file.len() > 0));
    far.signal("STOP");
    second.process.signal("KILL");
    second.process.finish();
    let second = BrokerProcess::start_in(&second.addr, &args, &variables);
    let mut observer = Observer::connect(&second.addr).expect("the broker runs");
    until("the topic is back", || observer.summary().expect("the broker answers").topics > 0);
    // The restarted broker may confirm lines without a subscriber.
    std::thread::sleep(Duration::from_millis(300));
    far.signal("CONT");
    last.send(()).expect("the publisher thread waits");
    let told = publisher.finish().good().text();
    let told: serde_json::Value = serde_json::from_str(&told).expect("an object");
    assert_eq!(told["confirmed"]["messages"], LINES, "{told}");
    assert_eq!(told["confirmed"]["subscribers"], 2, "{told}");
    feeder.join().expect("a feeder");
    for (sub, out) in [(near, out_of_first), (far, out_of_second)] {
        let said = sub.finish().good().stderr;
        assert!(!said.contains("lost"), "{said}");
        crate::common::assert_same(&out, lines("line", LINES).as_bytes());
    }
}

#[test]
fn a_chain_whose_last_broker_is_killed_loses_nothing_with_min_subscribers() {
    for (of_clients, of_brokers) in TRANSPORTS {
        println!("clients over {of_clients}, brokers over {of_brokers}");
        last_killed(of_clients, of_brokers);
    }
}
