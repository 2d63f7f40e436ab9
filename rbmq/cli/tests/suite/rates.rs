//! Limits on the bytes per second of users and addresses, with real processes: limited bytes take at least their time, nothing is
//! lost, and the operator sees the delayed users and addresses. (TLS: `tls.rs`. The exact times: RocketBufs'
//! `rate_limits.rs`, on a virtual clock.)

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use access::{PasswordHash, UsersFile};
use rbmq::wire::Secret;
use testkit::{LONG, Process, until};

use crate::common::operator::Operated;
use crate::common::{client, lines, piped};

/// The limit, its burst of 100 ms, and as much as a publisher may have been granted before.
const RATE: usize = 200_000;
const BURST: usize = 20_000;

/// A folder with a file of users and a configuration.
struct Setup {
    dir: tempfile::TempDir,
    transport: &'static str,
}

impl Setup {
    fn new(transport: &'static str) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), transport }
    }

    fn config(&self, text: &str) -> PathBuf {
        let path = self.dir.path().join("rbmq.toml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A broker with the user alice, who may do everything, and these limits.
    fn broker_with_user(&self, limits: &str) -> Operated {
        let users = self.dir.path().join("users.toml");
        let mut file = UsersFile::edit(&users).unwrap();
        let hash = PasswordHash::of(&Secret::from("correct horse".to_owned())).unwrap();
        file.set_password("alice", &hash).unwrap();
        file.save().unwrap();
        let config = self.config(&format!(
            "[users]\nfile = '{}'\n[http]\nlisten = '127.0.0.1:0'\n[quotas]\n{limits}\nrate_burst_ms = 100\n\
             [[access.rules]]\nusers = ['alice']\npublish = ['#']\nsubscribe = ['#']\nobserve = true\n",
            users.display()
        ));
        Operated::start_in(&config, &[("ROCKETBUFS_TRANSPORT", self.transport)])
    }

    fn command(&self, command: &str, addr: &str, args: &str) -> Command {
        let mut command = client(command, addr, args);
        command.env("ROCKETBUFS_TRANSPORT", self.transport);
        command.env("RBMQ_USER", "alice").env("RBMQ_PASSWORD", "correct horse");
        command
    }

    /// Publishes and receives these lines. Returns how long that took.
    fn run(&self, broker: &Operated, text: &str) -> Duration {
        let count = format!("t --count {}", text.lines().count());
        let subscriber = Process::start(self.command("sub", &broker.addr, &count));
        broker.wait_log("subscriber ");
        let begin = Instant::now();
        let args = "t --wait-subscribers 1 --ring-bytes 64K";
        let mut publisher = Process::start(piped(self.command("pub", &broker.addr, args)));
        // The subscriber's output is read meanwhile. Otherwise it would be too slow.
        let received = std::thread::scope(|scope| {
            let received = scope.spawn(|| subscriber.finish().good().text());
            publisher.feed(text.as_bytes());
            publisher.finish().good();
            received.join().unwrap()
        });
        assert!(received == text, "{} bytes instead of {}", received.len(), text.len());
        begin.elapsed()
    }
}

/// Nobody gets more bytes than the rate, the burst, and the bytes that were granted before.
fn assert_delayed(took: Duration, text: &str) {
    let least = (text.len() - 2 * BURST) as f64 / RATE as f64;
    assert!(took.as_secs_f64() >= least, "{took:?} instead of {least} s");
}

/// The metrics of a broker.
fn metrics(broker: &Operated) -> String {
    let http = broker.wait_said("rbmq: metrics on http://");
    let mut stream = TcpStream::connect(http.trim_end_matches("/metrics")).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn metric(text: &str, begin: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(begin));
    line.unwrap_or_else(|| panic!("{begin} is not in:\n{text}")).trim().parse().unwrap()
}

#[test]
fn a_user_is_delayed_in_both_directions_over_tcp_and_shared_memory() {
    let text = lines("a line of some length, so that there are not too many of them", 5_000);
    // Side by side, because each takes its time.
    let delayed = |transport: &'static str, direction: &str| {
        let setup = Setup::new(transport);
        let broker = setup.broker_with_user(&format!("user_{direction}_bytes_per_s = {RATE}"));
        let mut seen = String::new();
        let of = |seen: &str, name: &str| {
            metric(seen, &format!("rbmq_rate_{name}{{who=\"user 'alice'\",direction=\"{direction}\"}}"))
        };
        // A publisher that the machine delays itself is not delayed by the broker.
        until("the broker delays half a second", || {
            assert_delayed(setup.run(&broker, &text), &text);
            seen = metrics(&broker);
            of(&seen, "delayed_seconds_total") > 0.5
        });
        assert_eq!(of(&seen, "limit_bytes_per_second"), RATE as f64);
        assert!(of(&seen, "bytes_total") >= text.len() as f64, "{seen}");
        if direction == "in" {
            assert_eq!(metric(&seen, "rbmq_mapped_rings "), 0.0, "a mapped ring passes no worker");
        }
        let log = broker.end();
        assert!(!log.contains("too slow"), "{log}");
    };
    std::thread::scope(|scope| {
        for (transport, direction) in [("tcp", "in"), ("tcp", "out"), ("shm", "in"), ("shm", "out")] {
            let delayed = &delayed;
            scope.spawn(move || delayed(transport, direction));
        }
    });
}

#[test]
fn an_address_is_delayed_and_a_reload_changes_its_limit() {
    let text = lines("another line of some length, so that there are not too many of them", 4_000);
    let setup = Setup::new("tcp");
    let limits = |rate: usize| {
        format!(
            "[quotas]\naddress_in_bytes_per_s = {rate}\naddress_out_bytes_per_s = 0\nrate_burst_ms = 100\n"
        )
    };
    let broker = Operated::start(&setup.config(&limits(0)), &[]);
    setup.run_free(&broker, &text);
    setup.config(&limits(RATE));
    broker.signal("HUP");
    broker.wait_log("quotas.address_in_bytes_per_s");
    assert_delayed(setup.run_free(&broker, &text), &text);
    broker.end();
}

impl Setup {
    /// As [`Setup::run`], without a user.
    fn run_free(&self, broker: &Operated, text: &str) -> Duration {
        let begin = Instant::now();
        let mut publisher = Process::start(piped(client("pub", &broker.addr, "t --ring-bytes 64K")));
        publisher.feed(text.as_bytes());
        publisher.finish().good();
        begin.elapsed()
    }
}

#[test]
fn top_names_who_is_delayed() {
    let setup = Setup::new("tcp");
    let broker = setup.broker_with_user("user_in_bytes_per_s = 20000");
    // Endless, compared to the rate.
    let text = lines("a line of some length, so that there are not too many of them", 100_000);
    let mut publisher = Process::start(piped(setup.command("pub", &broker.addr, "t --ring-bytes 64K")));
    let mut input = publisher.stdin();
    let feeder = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
    let top = |args: &str| {
        let outcome = Process::start(setup.command("top", &broker.addr, args)).finish().good();
        outcome.text()
    };
    until("alice is delayed", || {
        let sample: serde_json::Value = serde_json::from_str(&top("--once --json --interval 1s")).unwrap();
        let limits = sample["limits"].as_array().unwrap();
        limits.iter().any(|of| {
            of["who"] == "user 'alice'"
                && of["resource"] == "in_bytes_per_s"
                && of["limit"] == 20_000
                && of["at_limit"] == true
                && of["delayed_ms"].as_u64() > Some(0)
        })
    });
    until("a line for people", || top("--once --interval 1s").contains("! user 'alice' publishes "));
    drop(publisher);
    feeder.join().unwrap();
    broker.end();
}
