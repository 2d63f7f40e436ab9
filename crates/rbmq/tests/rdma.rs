//! The broker over real RDMA devices (scripts/rdma-vm): publishers and subscribers over RDMA, TCP and shared memory at
//! once, and kills.

mod common;

use std::path::Path;
use std::process::Command;

use common::{BrokerProcess, Process, assert_same, client, lines, piped, random, until};

const TRANSPORT: &str = "ROCKETBUFS_TRANSPORT";

/// A broker that takes peers of every kind on the first device; None, told, where there is none.
fn broker() -> Option<BrokerProcess> {
    broker_with(&[])
}

fn broker_with(args: &[&str]) -> Option<BrokerProcess> {
    let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
        println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
        return None;
    };
    let addr = format!("{}:0", addresses.split_whitespace().next().expect("an address"));
    Some(BrokerProcess::start_in(&addr, args, &[(TRANSPORT, "rdma")]))
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
fn whoever_publishes_and_whoever_subscribes_over_whatever() {
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
fn what_publishers_write_over_whatever_is_merged() {
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
fn from_one_broker_to_another() {
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
fn what_was_confirmed_was_delivered() {
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
fn a_subscriber_that_is_killed_goes_on_exactly_where_it_stopped() {
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

#[test]
fn who_finds_no_broker_over_rdma_is_told_why() {
    let Some(broker) = broker() else { return };
    let addr = format!("{}:1", broker.addr.rsplit_once(':').expect("a port").0);
    let outcome = over("rdma", client("sub", &addr, "nothing")).finish();
    assert!(!outcome.status.success());
    assert!(outcome.stderr.contains("nobody listens there"), "{}", outcome.stderr);
}
