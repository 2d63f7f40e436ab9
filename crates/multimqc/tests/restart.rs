//! What a stack has after its process ended, in order or not.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::User;
use multimqc::conformance::{Lab, pattern};
use multimqc::levels::{DiskConfig, DiskLevel};
use multimqc::{Epoch, Hole, Rest, Stack, TopicId, TransferConfig, Transfers};

const TOPIC: TopicId = TopicId(3);
const GAP: u64 = 1 << 20;

fn stack(folder: &Path, epoch: u32) -> Arc<Stack> {
    let config = DiskConfig { restart_gap_bytes: GAP, ..DiskConfig::new(folder) };
    let disk = DiskLevel::new(config).expect("a folder");
    let stack = Stack::new(vec![User.level(1 << 20, 4096), Arc::new(disk)]).expect("two levels");
    stack.open(TOPIC, Epoch(epoch)).expect("the topic is opened");
    Arc::new(stack)
}

fn append(stack: &Stack, length: usize) {
    let bytes = pattern(stack.head(TOPIC).expect("open"), length);
    stack.append(TOPIC, &mut std::iter::once(&bytes[..])).expect("room");
}

fn read(stack: &Stack, from: u64, length: usize) -> (Vec<u8>, Rest) {
    let mut bytes = vec![0; length];
    let answer = stack.read(TOPIC, from, &mut bytes).expect("open");
    bytes.truncate(answer.bytes);
    (bytes, answer.rest)
}

#[test]
fn a_stack_that_ended_in_order_goes_on_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = stack(folder.path(), 5);
    let transfers = Transfers::start(&first, &TransferConfig::default()).expect("threads");
    append(&first, 10_000);
    drop((transfers, first));
    let second = stack(folder.path(), 6);
    assert_eq!(second.epoch(TOPIC), Some(Epoch(5)), "it is the same log");
    append(&second, 100);
    assert_eq!(read(&second, 0, 10_000), (pattern(0, 10_000), Rest::Nothing), "from the disk");
    assert_eq!(read(&second, 10_000, 100), (pattern(10_000, 100), Rest::Nothing), "from the ring");
}

/// Bytes that only the ring had are gone, and readers may have seen them: their offsets are a hole.
#[test]
fn offsets_of_lost_bytes_are_not_used_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = stack(folder.path(), 5);
    let config = TransferConfig { max_age: Duration::from_millis(1), ..TransferConfig::default() };
    let transfers = Transfers::start(&first, &config).expect("threads");
    append(&first, 10_000);
    drop(transfers);
    append(&first, 500);
    // As a process that was killed leaves it: a copy, while the log is open.
    let killed = tempfile::tempdir().expect("a folder");
    copy(folder.path(), killed.path());
    let second = stack(killed.path(), 6);
    assert_eq!(second.head(TOPIC), Some(10_000 + GAP));
    append(&second, 100);
    assert_eq!(read(&second, 0, 10_000), (pattern(0, 10_000), Rest::Nothing));
    let hole = Hole { from: 10_000, to: 10_000 + GAP };
    assert_eq!(read(&second, 10_000, 500), (Vec::new(), Rest::Hole(hole)));
    assert_eq!(read(&second, 10_000 + GAP, 100).1, Rest::Nothing);
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).expect("a folder");
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file");
        }
    }
}
