//! The broker over real RDMA devices (scripts/rdma-vm): publishers and subscribers over RDMA, TCP and shared memory at
//! once, and kills.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use rbmq::wire::RECORD_HEADER_BYTES;

use common::{BrokerProcess, assert_same, client, lines, piped, random};
use testkit::{Outcome, Process, until};

const TRANSPORT: &str = "ROCKETBUFS_TRANSPORT";

/// A broker for RDMA and TCP on the first device; None, with a printed line, if there is no device.
fn broker() -> Option<BrokerProcess> {
    broker_with(&[])
}

fn broker_with(args: &[&str]) -> Option<BrokerProcess> {
    let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
        println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
        return None;
    };
    let addr = format!("{}:0", addresses.split_whitespace().next().expect("an address"));
    Some(start(&addr, args))
}

/// Other machines could reach the address, and the network of the test is its own.
fn start(addr: &str, args: &[&str]) -> BrokerProcess {
    let args: Vec<&str> = ["--insecure"].into_iter().chain(args.iter().copied()).collect();
    BrokerProcess::start_in(addr, &args, &[(TRANSPORT, "rdma")])
}

fn over(transport: &str, mut command: Command) -> Process {
    command.env(TRANSPORT, transport);
    Process::start(command)
}

fn publish(broker: &BrokerProcess, transport: &str, args: &str, input: &[u8]) -> Process {
    let mut process = over(transport, piped(client("pub", &broker.addr, args)));
    process.feed(input);
    process
}

#[test]
fn publishers_and_subscribers_use_any_transports() {
    let Some(broker) = broker() else { return };
    let kinds = ["tcp", "rdma", "shm"];
    for from in kinds {
        let topic = format!("from-{from}");
        let args = format!("{topic} --until-closed");
        let subs = kinds.map(|to| over(to, client("sub", &broker.addr, &args)));
        let text = lines(&topic, 5_000);
        publish(&broker, from, &format!("{topic} --wait-subscribers 3"), text.as_bytes()).finish().good();
        for (sub, to) in subs.into_iter().zip(kinds) {
            assert!(sub.finish().good().text() == text, "{from} to {to}");
        }
    }
}

#[test]
fn merged_publishers_use_any_transports() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("rbmq.toml");
    let linger = "[broker]\nclosed_linger_ms = 5000\n";
    std::fs::write(&config, linger.to_owned() + "[[broker.topics]]\npattern = \"all\"\ningest = \"merge\"\n")
        .unwrap();
    let Some(broker) = broker_with(&["--config", config.to_str().unwrap()]) else { return };
    let sub = over("rdma", client("sub", &broker.addr, "all --until-closed"));
    let kinds = ["rdma", "tcp", "shm", "rdma"];
    let texts = [0, 1, 2, 3].map(|n| lines(&format!("publisher {n}"), 2_000));
    let args = "all --wait-subscribers 1 --confirm delivered";
    let publishers: Vec<_> =
        kinds.iter().zip(&texts).map(|(kind, text)| publish(&broker, kind, args, text.as_bytes())).collect();
    for publisher in publishers {
        publisher.finish().good();
    }
    let came = sub.finish().good().text();
    for (n, text) in texts.iter().enumerate() {
        let name = format!("publisher {n}");
        let of_this: String = came.split_inclusive('\n').filter(|line| line.contains(&name)).collect();
        assert!(of_this == *text, "{name}: {} of {} bytes", of_this.len(), text.len());
    }
}

#[test]
fn brokers_are_chained_over_rdma() {
    let Some(first) = broker() else { return };
    let Some(second) = broker_with(&["--upstream", &first.addr]) else { return };
    let subs = ["rdma", "tcp"].map(|kind| over(kind, client("sub", &second.addr, "far --until-closed")));
    let text = lines("far", 5_000);
    let args = "far --wait-subscribers 2 --confirm consumed";
    publish(&first, "rdma", args, text.as_bytes()).finish().good();
    for sub in subs {
        assert!(sub.finish().good().text() == text);
    }
}

#[test]
fn confirmed_messages_were_delivered() {
    let Some(broker) = broker() else { return };
    let sub = over("rdma", client("sub", &broker.addr, "sure --until-closed"));
    let text = lines("sure", 1_000);
    let args = "sure --wait-subscribers 1 --confirm delivered";
    publish(&broker, "rdma", args, text.as_bytes()).finish().good();
    assert!(sub.finish().good().text() == text);
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |m| m.len())
}

#[test]
fn a_killed_subscriber_continues_exactly_where_it_stopped() {
    let Some(broker) = broker() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("input"), dir.path().join("out"));
    let bytes = random(2, 3_000_000);
    std::fs::write(&input, &bytes).unwrap();
    let args = format!("file --until-closed --name attic --hold 60 --rate 2MB --output {}", out.display());
    let mut sub = over("rdma", client("sub", &broker.addr, &args));
    let file = format!("file --raw --wait-subscribers 1 --file {}", input.display());
    let publisher = publish(&broker, "rdma", &file, b"");
    for part in 1..3 {
        until("a part of the file is there", || size(&out) > part * 1_000_000);
        sub.signal("KILL");
        assert!(!sub.finish().status.success());
        sub = over("rdma", client("sub", &broker.addr, &args));
    }
    publisher.finish().good();
    sub.finish().good();
    assert_same(&out, &bytes);
}

fn kill(process: Process) -> Outcome {
    process.signal("KILL");
    let outcome = process.finish();
    assert!(!outcome.status.success());
    outcome
}

/// Publisher and subscriber connect to the next broker, and lost messages are sent again. If the publisher is back first, some
/// messages are delivered without a subscriber, and the subscriber reports them as missed. The subscriber gets all other
/// messages once.
#[test]
fn a_killed_broker_loses_no_message_unreported() {
    let Some(mut broker) = broker() else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let text = lines("a line that is confirmed", 60_000);
    let args = format!("sure --until-closed --name attic --hold 60 --rate 1MB --output {}", out.display());
    let sub = over("rdma", client("sub", &broker.addr, &args));
    let args = "-q sure --wait-subscribers 1 --confirm delivered --confirm-each --json --timeout 60 --ring-bytes 256k";
    let mut publisher = over("rdma", piped(client("pub", &broker.addr, args)));
    let mut input = publisher.stdin();
    let (parts, last) = text.as_bytes().split_at(text.len() / 3 * 2);
    for part in parts.chunks(text.len() / 3) {
        let had = size(&out);
        input.write_all(part).unwrap();
        until("a part of it is there", || size(&out) > had + 100_000);
        let BrokerProcess { process, addr } = broker;
        kill(process);
        broker = start(&addr, &[]);
        // The next lines are published only after the subscriber is back.
        until("its subscriber is back", || {
            let topics = client("topics", &broker.addr, "--json");
            Process::start(topics).finish().good().text().contains("\"subscribers\":1")
        });
    }
    input.write_all(last).unwrap();
    drop(input);
    let told = publisher.finish().good().text();
    let sub = sub.finish();
    let missed = missed(&sub.stderr);
    assert_eq!(sub.status.success(), missed.is_empty(), "{}", sub.stderr);
    assert_same(&out, without(&text, &missed).as_bytes());
    let lines_told = told.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let lines_told: Vec<_> = lines_told.filter(|line| line["messages"].is_u64()).collect();
    let messages: Vec<_> = lines_told.iter().filter_map(|line| line["messages"].as_u64()).collect();
    assert!(messages.is_sorted() && messages.last() == Some(&60_000), "{:?}", messages.last());
    let alone = lines_told.iter().any(|line| line["subscribers"] == 0);
    assert!(missed.is_empty() || alone, "missing messages were confirmed for a subscriber");
}

/// The positions of the log that a subscriber reported as missed.
fn missed(stderr: &str) -> Vec<(usize, usize)> {
    let ranges = stderr.lines().filter_map(|line| line.split_once("(positions ")?.1.strip_suffix(')'));
    let ends = ranges.filter_map(|range| range.split_once(" to "));
    ends.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap())).collect()
}

/// The lines whose records are not in these ranges of the log.
fn without(text: &str, missed: &[(usize, usize)]) -> String {
    let mut end = 0;
    let there = text.lines().filter(|line| {
        let from = end;
        end = from + RECORD_HEADER_BYTES + line.len();
        !missed.iter().any(|&(first, last)| first <= from && end <= last)
    });
    there.flat_map(|line| [line, "\n"]).collect()
}

/// The devices' resources of all processes, without the number of opens, and the broker's registered memory.
fn resources(broker: &BrokerProcess) -> (String, String) {
    let shown = Command::new("rdma")
        .args(["resource", "show"])
        .output()
        .expect("the program is in the virtual machine");
    assert!(shown.status.success(), "{shown:?}");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let objects = shown.lines().filter_map(|line| line.split(" ctx ").next()).collect::<Vec<_>>().join(", ");
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", broker.process.id())).expect("the process runs");
    let pinned = status.lines().find(|line| line.starts_with("VmPin")).expect("every process has that");
    (objects, pinned.to_owned())
}

/// The same when a first connection has come and gone: from it on its device is watched, with one id.
fn with_its_device_known(broker: &BrokerProcess) -> (String, String) {
    let ids = || {
        let (objects, _) = resources(broker);
        let words: Vec<_> = objects.split([' ', ',']).collect();
        let counts = words.windows(2).filter(|pair| pair[0] == "cm_id").map(|pair| pair[1].parse::<u64>());
        counts.map(|count| count.expect("a number")).sum::<u64>()
    };
    let begun = ids();
    over("rdma", client("topics", &broker.addr, "")).finish().good();
    until("the connection is gone", || ids() == begun + 1);
    resources(broker)
}

fn descriptors(broker: &BrokerProcess) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", broker.process.id())).expect("the process runs").count()
}

/// The subscriber of a killed publisher has whole deliveries, hears that the publisher is gone, and the broker keeps
/// nothing of it.
#[test]
fn a_publisher_that_is_killed_is_gone_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (config, input, out) =
        (dir.path().join("rbmq.toml"), dir.path().join("input"), dir.path().join("out"));
    std::fs::write(&config, "[session]\nlinger_ms = 300\n[broker]\nclosed_linger_ms = 300\n").unwrap();
    let Some(broker) = broker_with(&["--config", config.to_str().unwrap()]) else { return };
    let before = with_its_device_known(&broker);
    let text = lines("a line of the killed publisher", 100_000);
    std::fs::write(&input, &text).unwrap();
    let mut held = None;
    for n in 0..3 {
        let out = out.with_extension(n.to_string());
        let args = format!("gone --until-closed --rate 1MB --output {}", out.display());
        let sub = over("rdma", client("sub", &broker.addr, &args));
        let args = format!("gone --wait-subscribers 1 --file {}", input.display());
        let publisher = over("rdma", client("pub", &broker.addr, &args));
        until("a part of the file is there", || size(&out) > 300_000);
        assert_ne!(resources(&broker), before, "they have queue pairs, and memory of the broker's");
        kill(publisher);
        let told = sub.finish();
        assert!(!told.status.success() && told.stderr.contains("its publisher is gone"), "{}", told.stderr);
        let came = std::fs::read_to_string(&out).unwrap();
        assert!(came.len() < text.len() && text.starts_with(&came) && came.ends_with('\n'), "{}", came.len());
        until("all that belonged to them has gone", || resources(&broker) == before);
        let at_first = *held.get_or_insert_with(|| descriptors(&broker));
        until("so have descriptors", || descriptors(&broker) <= at_first);
    }
    println!("before and after three deaths: {} and {}, {held:?} descriptors", before.0, before.1);
}

#[test]
fn a_client_without_a_broker_over_rdma_gets_a_reason() {
    let Some(broker) = broker() else { return };
    let addr = format!("{}:1", broker.addr.rsplit_once(':').expect("a port").0);
    let outcome = over("rdma", client("sub", &addr, "nothing")).finish();
    assert!(!outcome.status.success());
    assert!(outcome.stderr.contains("no process listens there"), "{}", outcome.stderr);
}
