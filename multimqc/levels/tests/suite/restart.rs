//! The log of a stack after its process ended, in order or not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use multimqc::levels::{DiskConfig, DiskLevel};
use multimqc::{
    Epoch, Hole, Level, LevelError, LevelKind, Stack, StackError, Tail, TopicId, TransferConfig, Transfers,
};
use multimqc_conformance::{Lab, User, pattern};
use testkit::until;

use crate::device::Device;

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

fn read(stack: &Stack, from: u64, length: usize) -> (Vec<u8>, Tail) {
    let mut bytes = vec![0; length];
    let answer = stack.read(TOPIC, from, &mut bytes).expect("open");
    bytes.truncate(answer.bytes);
    (bytes, answer.tail)
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
    assert_eq!(read(&second, 0, 10_000), (pattern(0, 10_000), Tail::Nothing), "from the disk");
    assert_eq!(read(&second, 10_000, 100), (pattern(10_000, 100), Tail::Nothing), "from the ring");
}

/// More topics than threads open them, so some are opened at the same time.
#[test]
fn many_topics_are_opened_together_and_keep_their_logs() {
    let folder = tempfile::tempdir().expect("a folder");
    let topics: Vec<(TopicId, Epoch)> = (1..=100).map(|id| (TopicId(id), Epoch(u32::from(id)))).collect();
    let open = |max_topics, epochs: u32| {
        let disk = DiskLevel::new(DiskConfig { max_topics, ..DiskConfig::new(folder.path()) });
        let stack = Stack::new(vec![Arc::new(disk.expect("a folder"))]).expect("a level");
        let topics: Vec<_> = topics.iter().map(|(id, epoch)| (*id, Epoch(epoch.0 + epochs))).collect();
        stack.open_all(&topics).map(|()| stack)
    };
    let first = open(100, 0).expect("100 topics");
    for (topic, _) in &topics {
        let message = topic.0.to_le_bytes();
        first.append(*topic, &mut std::iter::once(&message[..])).expect("room");
    }
    drop(first);
    let second = open(100, 1000).expect("100 topics");
    for (topic, epoch) in &topics {
        let mut message = [0; 2];
        second.read(*topic, 0, &mut message).expect("open");
        assert_eq!((second.epoch(*topic), message), (Some(*epoch), topic.0.to_le_bytes()));
    }
    drop(second);
    let Err(StackError::Open { error, level, .. }) = open(99, 0) else {
        panic!("there is one topic too many")
    };
    assert_eq!((error.to_string(), level), (LevelError::TooManyTopics(99).to_string(), LevelKind::Disk));
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
    assert_eq!(read(&second, 0, 10_000), (pattern(0, 10_000), Tail::Nothing));
    let hole = Hole { from: 10_000, to: 10_000 + GAP };
    assert_eq!(read(&second, 10_000, 500), (Vec::new(), Tail::Hole(hole)));
    assert_eq!(read(&second, 10_000 + GAP, 100).1, Tail::Nothing);
}

/// A stack of segment files alone, each in the place of a level.
fn stack_of(levels: &[(LevelKind, &Path)], epoch: u32) -> Result<Arc<Stack>, StackError> {
    let levels = levels.iter().map(|&(kind, folder)| {
        let config = DiskConfig { restart_gap_bytes: GAP, ..DiskConfig::new(folder) };
        let level = DiskLevel::new(config).expect("a folder");
        Device::in_place_of(kind, Arc::new(level)) as Arc<dyn Level>
    });
    let stack = Stack::new(levels.collect())?;
    stack.open(TOPIC, Epoch(epoch))?;
    Ok(Arc::new(stack))
}

fn wait_for_head(stack: &Stack, level: usize, head: u64) {
    until("the level gets the bytes", || stack.levels()[level].window(TOPIC).expect("open").head >= head);
}

/// A level that is put in behind one that has a log gets all that this one has left.
#[test]
fn a_new_last_level_gets_the_log_of_the_level_before() {
    let (disk, last) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let first = stack_of(&[(LevelKind::Disk, disk.path())], 5).expect("a stack");
    append(&first, 10_000);
    drop(first);
    let both = [(LevelKind::Disk, disk.path()), (LevelKind::Kafka, last.path())];
    let second = stack_of(&both, 6).expect("a stack");
    assert_eq!(second.epoch(TOPIC), Some(Epoch(5)), "it is the same log");
    let transfers = Transfers::start(&second, &TransferConfig::default()).expect("threads");
    append(&second, 100);
    wait_for_head(&second, 1, 10_100);
    drop((transfers, second));
    let third = stack_of(&both[1..], 7).expect("a stack");
    assert_eq!(read(&third, 0, 10_100), (pattern(0, 10_100), Tail::Nothing), "without the level before");
}

/// A level that lost bytes which the next one has goes on behind a hole, and the next one answers.
#[test]
fn a_level_that_ends_before_the_next_goes_on_behind_a_hole() {
    let (disk, last) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let lost = tempfile::tempdir().expect("a folder");
    let both = [(LevelKind::Disk, disk.path()), (LevelKind::Kafka, last.path())];
    let first = stack_of(&both, 5).expect("a stack");
    let transfers = Transfers::start(&first, &TransferConfig::default()).expect("threads");
    append(&first, 4000);
    wait_for_head(&first, 1, 4000);
    copy(disk.path(), lost.path());
    append(&first, 1000);
    wait_for_head(&first, 1, 5000);
    drop((transfers, first));
    let second = stack_of(&[(LevelKind::Disk, lost.path()), both[1]], 6).expect("a stack");
    assert_eq!(second.head(TOPIC), Some(5000));
    append(&second, 100);
    assert_eq!(read(&second, 4000, 1000), (pattern(4000, 1000), Tail::Nothing), "from the last level");
    assert_eq!(read(&second, 5000, 100), (pattern(5000, 100), Tail::Nothing));
}

/// A level in the kernel that survives the process knows all that readers have seen: the next level needs no hole.
#[test]
fn a_first_level_that_was_kept_fills_up_the_next() {
    let (ring, disk) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let killed = tempfile::tempdir().expect("a folder");
    let first = stack_of(&[(LevelKind::Kernel, ring.path()), (LevelKind::Disk, disk.path())], 5);
    let first = first.expect("a stack");
    let transfers = Transfers::start(&first, &TransferConfig::default()).expect("threads");
    append(&first, 4000);
    wait_for_head(&first, 1, 4000);
    drop(transfers);
    append(&first, 1000);
    copy(disk.path(), killed.path());
    drop(first);
    let second = stack_of(&[(LevelKind::Kernel, ring.path()), (LevelKind::Disk, killed.path())], 6);
    let second = second.expect("the levels have one log");
    assert_eq!(second.head(TOPIC), Some(5000), "no offset was skipped");
    let transfers = Transfers::start(&second, &TransferConfig::default()).expect("threads");
    wait_for_head(&second, 1, 5000);
    drop((transfers, second));
    let third = stack_of(&[(LevelKind::Disk, killed.path())], 7).expect("a stack");
    assert_eq!(read(&third, 0, 5000), (pattern(0, 5000), Tail::Nothing));
}

#[test]
fn levels_with_different_logs_make_no_stack() {
    let (disk, last) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    for (folder, epoch) in [(disk.path(), 5), (last.path(), 6)] {
        append(&stack_of(&[(LevelKind::Disk, folder)], epoch).expect("a stack"), 100);
    }
    let both = stack_of(&[(LevelKind::Disk, disk.path()), (LevelKind::Kafka, last.path())], 7);
    assert!(matches!(both, Err(StackError::OtherLog { .. })));
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

/// Whatever the umask: the user of the server alone reads what others have sent.
#[test]
fn the_files_of_the_disk_are_for_their_user() {
    let outer = tempfile::tempdir().expect("a folder");
    let folder = outer.path().join("kept");
    let stack = stack(&folder, 1);
    append(&stack, 10_000);
    let files = testkit::files_for_their_user(&folder);
    assert!(files >= 3, "a segment, its lock, and the mark of the process: {files}");
}
