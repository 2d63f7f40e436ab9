//! Transfers to a level that fails, and from a level that is overwritten meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use multimqc::levels::{DiskConfig, DiskLevel};
use multimqc::{Epoch, Hole, Level, LevelKind, Mover, Stack, Stop, Tail, TopicId, TransferConfig, Transfers};
use multimqc_conformance::{Disk, Lab, User, pattern};
use testkit::until;

use crate::device::Device;

const TOPIC: TopicId = TopicId(3);

/// A stack of a ring and a device, and the device.
fn stack(device: Arc<dyn Level>) -> (Arc<Stack>, Arc<Device>) {
    let device = Device::new(device);
    let stack = Stack::new(vec![User.level(1 << 19, 4096), device.clone()]).expect("two levels");
    stack.open(TOPIC, Epoch(5)).expect("the topic is opened");
    (Arc::new(stack), device)
}

fn append(stack: &Stack, length: usize) {
    let bytes = pattern(stack.head(TOPIC).expect("open"), length);
    stack.append(TOPIC, &mut std::iter::once(&bytes[..])).expect("room");
}

#[test]
fn a_device_that_was_full_for_a_while_loses_nothing() {
    let lab = Disk::default();
    let (stack, device) = stack(lab.level(1 << 20, 4096));
    let config = TransferConfig { batch_bytes: 4096, max_age: Duration::from_millis(2) };
    let transfers = Transfers::start(&stack, &config).expect("threads");
    device.set_full(true);
    append(&stack, 50_000);
    until("the failure is reported", || {
        let report = &transfers.progress()[0];
        report.failures > 0 && report.last_error.as_ref().is_some_and(|error| error.contains("no space"))
    });
    let mut bytes = vec![0; 50_000];
    let answer = stack.read(TOPIC, 0, &mut bytes).expect("open");
    assert_eq!((answer.level, answer.tail), (Some(LevelKind::User), Tail::Nothing), "readers notice nothing");
    device.set_full(false);
    until("the rest is moved", || device.window(TOPIC).is_some_and(|window| window.head == 50_000));
    until("the error is over", || transfers.progress()[0].last_error.is_none());
    assert_eq!(transfers.progress()[0].holes, 0);
    device.read(TOPIC, 0, &mut bytes).expect("the level works");
    assert_eq!(bytes, pattern(0, 50_000));
}

/// The device is full for longer than the ring lasts: the overwritten bytes are a hole of the same size, and the offsets
/// stay.
#[test]
fn what_was_overwritten_before_its_transfer_is_a_hole() {
    let lab = Disk::default();
    let (stack, device) = stack(lab.level(1 << 20, 4096));
    let levels = stack.levels();
    let config = TransferConfig { batch_bytes: 4096, max_age: Duration::ZERO };
    let mut mover = Mover::new(Arc::clone(&levels[0]), Arc::clone(&levels[1]), config);
    append(&stack, 10_000);
    while mover.step(TOPIC, Instant::now(), true).expect("levels work") {}
    device.set_full(true);
    for _ in 0..20 {
        append(&stack, 60_000);
        assert!(mover.step(TOPIC, Instant::now(), true).is_err());
    }
    device.set_full(false);
    while mover.step(TOPIC, Instant::now(), true).expect("levels work") {}
    let first = levels[0].window(TOPIC).expect("open").first;
    assert!(first > 10_000, "the ring was overwritten");
    let report = mover.progress().report();
    assert_eq!((report.holes, report.hole_bytes), (1, first - 10_000));
    let mut bytes = vec![0; 20_000];
    let answer = stack.read(TOPIC, 5000, &mut bytes).expect("open");
    assert_eq!((answer.bytes, answer.tail), (5000, Tail::Hole(Hole { from: 10_000, to: first })));
    let answer = stack.read(TOPIC, first, &mut bytes).expect("open");
    assert_eq!((answer.tail, &bytes), (Tail::Nothing, &pattern(first, 20_000)));
    device.read(TOPIC, first, &mut bytes).expect("the level works");
    assert_eq!(bytes, pattern(first, 20_000), "the offsets are those of the log");
}

/// A topic that gets no more messages loses segments that are too old, and says so.
#[test]
fn old_bytes_of_an_idle_topic_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = DiskConfig { max_age: Some(Duration::from_millis(20)), ..DiskConfig::new(folder.path()) };
    let level = DiskLevel::new(config).expect("a folder");
    level.open(TOPIC, 0, Epoch(5)).expect("a topic");
    level.append(TOPIC, &mut std::iter::once(&b"secret"[..])).expect("room");
    until("the bytes go", || level.counters(TOPIC).overwritten_bytes == 6);
    let window = level.window(TOPIC).expect("open");
    assert_eq!((window.first, window.head), (6, 6), "the log goes on where it was");
    assert_eq!(level.read(TOPIC, 0, &mut [0]).expect("it works").stop, Stop::Gone(6));
}
