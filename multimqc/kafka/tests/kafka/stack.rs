//! Stacks that end with a real Apache Kafka: every set of levels before it, and a server whose Kafka is down and comes back.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
use multimqc::{
    Counters, Fetched, Level, LevelKind, Puller, Pusher, Server, ServerConfig, Stack, TopicConfig, TopicId,
    TransferConfig,
};
use multimqc_conformance::{Disk, Lab, User, pattern};
use multimqc_kafka::{KafkaConfig, KafkaLevel};
use testkit::within;

use crate::common;
use crate::common::labs::InKernel;
use crate::kafka::{Kafka, PATIENCE};
use crate::lab::Levels;

const TOPIC: TopicId = TopicId(3);

#[test]
fn every_set_of_levels_before_kafka_conforms() {
    let Some(kafka) = Kafka::start() else { return };
    let (kernel, disk, levels) = (InKernel::default(), Disk::default(), Levels::new(&kafka));
    let mut labs: Vec<&dyn Lab> = vec![&User, &disk, &levels];
    // Says aloud where there is no level in the kernel.
    if common::kernel(multimqc_kernel::Config::default()).is_some() {
        labs.insert(0, &kernel);
    }
    multimqc_conformance::stack(&labs);
}

/// A server with the levels user, disk and kafka, of which the first two keep little.
fn serve(kafka: &Kafka, folder: &Path) -> Server {
    let user = UserConfig { capacity_bytes: 1 << 19, max_topics: 1, batch_bytes: 4096 };
    let disk = DiskConfig { segment_bytes: 64 << 10, max_bytes: Some(4 << 20), ..DiskConfig::new(folder) };
    let last = KafkaConfig {
        prefix: "server".to_owned(),
        timeout: Duration::from_secs(2),
        ..KafkaConfig::new(kafka.address())
    };
    let levels: Vec<Arc<dyn Level>> = vec![
        Arc::new(UserLevel::new(user).expect("a good configuration")),
        Arc::new(DiskLevel::new(disk).expect("a folder")),
        Arc::new(KafkaLevel::new(last).expect("a good configuration")),
    ];
    let config = ServerConfig {
        header_port: Some(0),
        topics: vec![TopicConfig { id: TOPIC, push_port: None, pull_port: None }],
        transfer: TransferConfig { batch_bytes: 32 << 10, max_age: Duration::from_millis(5) },
        ..ServerConfig::default()
    };
    let stack = Arc::new(Stack::new(levels).expect("three levels"));
    Server::start(stack, &config, Vec::new()).expect("the server starts")
}

fn address(server: &Server) -> SocketAddr {
    server.addresses().header.expect("it is configured")
}

fn counters(server: &Server, kind: LevelKind) -> Counters {
    let level = server.stack().levels().iter().find(|level| level.kind() == kind);
    level.expect("it is there").counters(TOPIC)
}

/// The end of a level's window.
fn level_head(server: &Server, level: usize) -> u64 {
    server.stack().levels()[level].window(TOPIC).expect("open").head
}

/// Pushes up to an offset, each message after the one before has arrived, and no faster than the disk.
fn push(server: &Server, to: u64) {
    let mut pusher = Pusher::connect(address(server), TOPIC).expect("a socket");
    let head = || server.stack().head(TOPIC).expect("open");
    while head() < to {
        let message = pattern(head(), 1000.min(to - head()) as usize);
        let end = head() + message.len() as u64;
        pusher.push(&message).expect("it is sent");
        within(PATIENCE, "the message arrives", || head() == end && level_head(server, 1) + 200_000 >= end);
    }
}

/// Pulls a range, and compares every byte.
fn pull(server: &Server, mut from: u64, to: u64) {
    let mut puller = Puller::connect(address(server), TOPIC).expect("a socket");
    let deadline = Instant::now() + PATIENCE;
    while from < to {
        let length = 1000.min(to - from) as usize;
        match puller.fetch(from, length, Some(PATIENCE)).expect("a socket") {
            Some(Fetched::Data(bytes)) => {
                assert_eq!(bytes, pattern(from, bytes.len()), "bytes at {from}");
                from += bytes.len() as u64;
            }
            other => assert!(Instant::now() < deadline, "{other:?} at {from}"),
        }
    }
}

/// The effect on clients of a level that is down: only bytes that no other level has are missing, and only for a while.
#[test]
fn a_server_goes_on_while_kafka_is_down_and_fills_it_up_afterwards() {
    let Some(mut kafka) = Kafka::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve(&kafka, folder.path());
    // More than the user level and the disk keep.
    push(&server, 6_000_000);
    within(PATIENCE, "Kafka gets everything", || level_head(&server, 2) == 6_000_000);
    pull(&server, 0, 20_000);
    let windows: Vec<_> = server.stack().levels().iter().map(|level| level.window(TOPIC)).collect();
    assert!(counters(&server, LevelKind::Kafka).hits > 0, "Kafka has answered: {windows:?}");

    kafka.kill();
    push(&server, 7_000_000);
    within(PATIENCE, "the failure is counted", || {
        let report = &server.transfers()[1];
        report.failures > 0 && report.last_error.is_some() && counters(&server, LevelKind::Kafka).refused > 0
    });
    pull(&server, 6_900_000, 7_000_000);
    pull(&server, 4_000_000, 4_020_000);
    let mut puller = Puller::connect(address(&server), TOPIC).expect("a socket");
    // The level still has the record that it read last, so the bytes are of another one.
    let old = puller.fetch(1_000_000, 1000, Some(PATIENCE)).expect("a socket").expect("a reply");
    assert_eq!(old, Fetched::End(7_000_000), "what only Kafka has is asked for again later");

    kafka.run();
    within(PATIENCE, "Kafka gets the rest", || level_head(&server, 2) == 7_000_000);
    within(PATIENCE, "the error is over", || server.transfers()[1].last_error.is_none());
    pull(&server, 0, 20_000);
    let (disk, last) = (counters(&server, LevelKind::Disk), counters(&server, LevelKind::Kafka));
    assert_eq!((server.transfers()[1].holes, disk.holes, last.holes), (0, 0, 0), "nothing was lost");
    drop(server);

    // The next server goes on with the log, from every level.
    let server = serve(&kafka, folder.path());
    push(&server, 7_010_000);
    pull(&server, 0, 10_000);
    pull(&server, 6_990_000, 7_010_000);
}
