//! A kept ring and a log on disk that have gone on without each other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use multimqc::levels::{DiskConfig, DiskLevel, UserConfig, UserLevel};
use multimqc::{
    Epoch, Hole, Level, LevelKind, Repair, Stack, StackError, Stop, Tail, TopicId, TransferConfig, Transfers,
};
use multimqc_kernel::{Config, Kernel, KernelLevel, Ports, detach};

use crate::common;
use crate::common::net::in_world;
use crate::common::packet::Packet;

const TOPIC: TopicId = TopicId(7);
const KEEP: &str = "/sys/fs/bpf/multimqc-repair";
const RING: u64 = 1 << 16;
const GAP: u64 = 1 << 20;
/// A ring that is not overwritten while a test looks at it.
const LARGE: u64 = 1 << 26;
const PATIENCE: Duration = Duration::from_secs(60);

fn kernel() -> Arc<KernelLevel> {
    let config = Config::default().ring_bytes(RING).batch_bytes(4096).keep(Some(PathBuf::from(KEEP)));
    let kernel = Kernel::new(config.clone()).expect("it can be had");
    Arc::new(KernelLevel::new(kernel, [(TOPIC, Ports::default())]))
}

fn disk(folder: &Path) -> Arc<dyn Level> {
    let config = DiskConfig { restart_gap_bytes: GAP, ..DiskConfig::new(folder) };
    Arc::new(DiskLevel::new(config).expect("a folder"))
}

/// A server's levels, and their transfers.
struct Running {
    stack: Arc<Stack>,
    ring: Option<Arc<KernelLevel>>,
    _transfers: Transfers,
}

fn try_start(ring: Option<Arc<KernelLevel>>, folder: &Path) -> Result<Running, StackError> {
    let user = UserConfig { capacity_bytes: 1 << 19, max_topics: 1, batch_bytes: 4096 };
    let user: Arc<dyn Level> = Arc::new(UserLevel::new(user).expect("a good configuration"));
    let mut levels = vec![user, disk(folder)];
    levels.extend(ring.clone().map(|ring| ring as Arc<dyn Level>));
    let stack = Arc::new(Stack::new(levels)?);
    stack.open(TOPIC, Epoch(5))?;
    let config = TransferConfig { batch_bytes: 4096, max_age: Duration::from_millis(1) };
    let _transfers = Transfers::start(&stack, &config).expect("threads");
    Ok(Running { stack, ring, _transfers })
}

/// With the ring.
fn start(folder: &Path) -> Running {
    try_start(Some(kernel()), folder).expect("one log")
}

/// Without the ring.
fn start_without(folder: &Path) -> Running {
    try_start(None, folder).expect("one log")
}

/// Stores a message as a packet does.
fn push(ring: &KernelLevel, message: &[u8]) {
    let run = ring.kernel().run(&Packet::new(19_999, message).frame(), 1).expect("it runs");
    assert_eq!(run.verdict, common::DROP, "it is stored");
}

/// Stores messages while no server has the ring.
fn push_to_kept_ring(messages: &[&[u8]]) {
    let ring = kernel();
    ring.kernel().open(TOPIC, Ports::default(), 0, Epoch(1)).expect("the kept topic");
    messages.iter().for_each(|message| push(&ring, message));
}

impl Running {
    fn append(&self, message: &[u8]) {
        self.stack.append(TOPIC, &mut std::iter::once(message)).expect("room");
    }

    fn wait_for_disk(&self, head: u64) {
        let deadline = Instant::now() + PATIENCE;
        let disk = self.stack.levels().last().expect("the disk");
        while disk.window(TOPIC).expect("open").head < head {
            assert!(Instant::now() < deadline, "{:?} of {head}", disk.window(TOPIC));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read(&self, from: u64, length: usize) -> (Vec<u8>, Tail) {
        let mut bytes = vec![0; length];
        let answer = self.stack.read(TOPIC, from, &mut bytes).expect("open");
        bytes.truncate(answer.bytes);
        (bytes, answer.tail)
    }

    /// Every level that has bytes at an offset has these.
    fn check(&self, from: u64, expected: &[u8]) {
        assert_eq!(self.read(from, expected.len()), (expected.to_vec(), Tail::Nothing), "at {from}");
        for level in self.stack.levels() {
            let mut bytes = vec![0; expected.len()];
            let found = level.read(TOPIC, from, &mut bytes).expect("it works");
            let has = found.bytes;
            assert_eq!(bytes[..has], expected[..has], "{} at {from}", level.kind().name());
        }
    }
}

/// Runs a test in a world of its own, where eBPF can be used.
fn with_kept_ring(test: impl FnOnce(&Path) + Send) {
    in_world(|_| {
        if common::kernel(Config::default().ring_bytes(4096).batch_bytes(1024)).is_none() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        test(folder.path());
        assert!(detach(KEEP.as_ref()).expect("detached"), "there was a ring");
    });
}

#[test]
fn a_ring_that_was_left_out_goes_on_at_the_end_of_the_disk() {
    with_kept_ring(|folder| {
        let first = start(folder);
        push(first.ring.as_ref().expect("the ring"), b"first ");
        first.wait_for_disk(6);
        drop(first);
        let second = start_without(folder);
        second.append(b"second ");
        drop(second);
        let third = start(folder);
        assert_eq!(third.stack.repairs(), [], "nothing had to change its place");
        let ring = third.ring.clone().expect("the ring");
        push(&ring, b"third");
        third.wait_for_disk(18);
        third.check(0, b"first second third");
        let hole = Stop::Hole(Hole { from: 6, to: 13 });
        let mut bytes = [0; 18];
        let found = ring.read(TOPIC, 0, &mut bytes).expect("it works");
        assert_eq!(
            (&bytes[..found.bytes], found.stop),
            (&b"first "[..], hole),
            "the ring says what it has not"
        );
        assert_eq!(ring.counters(TOPIC).hole_bytes, 7);
    });
}

#[test]
fn bytes_of_a_ring_that_went_on_are_moved_behind_those_of_the_disk() {
    with_kept_ring(|folder| {
        let first = start(folder);
        push(first.ring.as_ref().expect("the ring"), b"both, ");
        first.wait_for_disk(6);
        drop(first);
        push_to_kept_ring(&[b"ring, ", b"ring again"]);
        let second = start_without(folder);
        second.append(b"disk");
        drop(second);
        let third = start(folder);
        let to = RING + 6;
        let repair = Repair {
            topic: TOPIC,
            lower: LevelKind::Kernel,
            upper: LevelKind::Disk,
            from: 6,
            to,
            bytes: 16,
            lost_bytes: 0,
        };
        assert_eq!(third.stack.repairs(), [repair]);
        push(third.ring.as_ref().expect("the ring"), b", and on");
        third.wait_for_disk(to + 24);
        third.check(0, b"both, disk");
        third.check(to, b"ring, ring again, and on");
        let hole = Hole { from: 10, to };
        assert_eq!(third.read(9, 100), (b"k".to_vec(), Tail::Hole(hole)));
        drop(third);
        let fourth = start(folder);
        assert_eq!(fourth.stack.repairs(), [], "it is one log now");
        assert_eq!(fourth.stack.head(TOPIC), Some(to + 24));
        fourth.check(to, b"ring, ring again, and on");
        drop(fourth);
        let fifth = start_without(folder);
        fifth.check(to, b"ring, ring again, and on");
    });
}

/// The ring is ahead of the disk, and yet the disk has bytes of its own below the ring's end.
#[test]
fn a_ring_that_is_ahead_of_another_log_is_noticed() {
    with_kept_ring(|folder| {
        drop(start(folder));
        push_to_kept_ring(&[&[b'r'; 1400], &[b's'; 1400]]);
        let second = start_without(folder);
        second.append(&[b'd'; 1000]);
        drop(second);
        let third = start(folder);
        assert_eq!((third.stack.repairs()[0].bytes, third.stack.repairs()[0].to), (2800, RING));
        third.wait_for_disk(RING + 2800);
        third.check(0, &[b'd'; 1000]);
        assert_eq!(third.read(1000, 1), (Vec::new(), Tail::Hole(Hole { from: 1000, to: RING })));
        third.check(RING, &[&[b'r'; 1400][..], &[b's'; 1400]].concat());
    });
}

/// Readers may have seen more of a killed server than is on the disk. These offsets are not used again.
#[test]
fn the_gap_of_a_killed_server_stays_beside_a_ring_that_does_not_know_its_bytes() {
    with_kept_ring(|folder| {
        drop(start(folder));
        push_to_kept_ring(&[b"ring"]);
        let second = start_without(folder);
        second.append(b"disk");
        second.wait_for_disk(4);
        let killed = tempfile::tempdir().expect("a folder");
        copy(folder, killed.path());
        drop(second);
        let third = start(killed.path());
        let to = (4 + GAP).next_multiple_of(RING);
        third.wait_for_disk(to + 4);
        third.check(0, b"disk");
        third.check(to, b"ring");
        // The ring in memory forgets a part of the hole, so it is told in pieces.
        let mut at = 4;
        while at < to {
            let (bytes, rest) = third.read(at, 1);
            let Tail::Hole(hole) = rest else { panic!("{rest:?} at {at}") };
            assert_eq!((bytes.len(), hole.from), (0, at));
            at = hole.to;
        }
        assert_eq!(at, to);
    });
}

#[test]
fn the_ring_of_another_folder_is_refused_and_stays() {
    with_kept_ring(|folder| {
        let first = start(folder);
        push(first.ring.as_ref().expect("the ring"), b"one");
        first.wait_for_disk(3);
        drop(first);
        push_to_kept_ring(&[b"two"]);
        let other = tempfile::tempdir().expect("a folder");
        let stack = Stack::new(vec![disk(other.path())]).expect("a level");
        stack.open(TOPIC, Epoch(6)).expect("another log");
        drop(stack);
        let refused = try_start(Some(kernel()), other.path()).err().expect("two logs");
        assert!(matches!(refused, StackError::OtherLog { .. }), "{refused}");
        let again = start(folder);
        again.wait_for_disk(6);
        again.check(0, b"onetwo");
    });
}

/// The folder is put back to an earlier state: the ring fills up the bytes that it still has.
#[test]
fn a_folder_from_a_backup_gets_what_the_ring_still_has() {
    with_kept_ring(|folder| {
        let backup = tempfile::tempdir().expect("a folder");
        let first = start(folder);
        push(first.ring.as_ref().expect("the ring"), b"one");
        first.wait_for_disk(3);
        drop(first);
        copy(folder, backup.path());
        let second = start(folder);
        push(second.ring.as_ref().expect("the ring"), b"two");
        second.wait_for_disk(6);
        drop(second);
        let third = start(backup.path());
        assert_eq!(third.stack.repairs(), []);
        third.wait_for_disk(6);
        third.check(0, b"onetwo");
    });
}

/// Programs write on all CPUs while the offsets change. Nothing is torn, and nothing that the ring has is lost.
#[test]
fn offsets_change_under_load() {
    let config = Config::default().ring_bytes(LARGE).batch_bytes(4096);
    let Some(kernel) = common::kernel(config) else { return };
    let level = KernelLevel::new(kernel, [(TOPIC, Ports::default())]);
    level.open(TOPIC, 0, Epoch(1)).expect("a topic");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in [1, 2] {
            let (level, stop) = (&level, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    push(level, &[writer; 64]);
                }
            });
        }
        let rounds = scope.spawn(|| (0..300).for_each(|_| change_offsets(&level)));
        let result = rounds.join();
        stop.store(true, Relaxed);
        result.expect("every round is good");
    });
}

/// Changes the offsets of the last bytes, which stay the same bytes.
fn change_offsets(level: &KernelLevel) {
    let before = level.window(TOPIC).expect("open");
    let from = before.head.saturating_sub(4096).max(before.first).next_multiple_of(64).min(before.head);
    let mut old = vec![0; (before.head - from) as usize];
    assert_eq!(level.read(TOPIC, from, &mut old).expect("it works").stop, Stop::Filled, "{before:?}");
    let after = level.rebase(TOPIC, from, before.head + 7).expect("it can");
    assert!(after.first > before.head && (after.first - from).is_multiple_of(LARGE), "{before:?} {after:?}");
    let mut new = vec![0; after.bytes() as usize];
    assert_eq!(level.read(TOPIC, after.first, &mut new).expect("it works").stop, Stop::Filled);
    assert!(new.starts_with(&old), "the bytes have moved: {before:?} {after:?}");
    for message in new.chunks(64) {
        assert!(message.iter().all(|byte| *byte == message[0]), "a torn message");
    }
    assert_eq!(level.read(TOPIC, from, &mut [0]).expect("it works").stop, Stop::Gone(after.first));
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
