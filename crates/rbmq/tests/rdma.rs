//! The broker over real RDMA devices (scripts/rdma-vm): publishers and subscribers over RDMA, TCP and shared memory at
//! once, and kills.

mod common;

use std::path::Path;
use std::process::Command;

use common::{BrokerProcess, Process, assert_same, client, lines, piped, random, until};

const TRANSPORT: &str = "ROCKETBUFS_TRANSPORT";

/// A broker that takes peers of every kind on the first device; None, told, where there is none.
fn broker() -> Option<BrokerProcess> {
    let Ok(addresses) = std::env::var("ROCKETBUFS_TEST_RDMA") else {
        println!("skipped: no RDMA devices to test with; scripts/rdma-vm has some");
        return None;
    };
    let addr = format!("{}:0", addresses.split_whitespace().next().expect("an address"));
    Some(BrokerProcess::start_in(&addr, &[], &[(TRANSPORT, "rdma")]))
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
