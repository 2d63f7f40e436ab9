//! Programs on several CPUs write at once, and readers are lapped: nothing torn is ever taken as good, and no hole is silent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use multimqc::wire::PullRequest;
use multimqc::{Epoch, Stop, TopicId};
use multimqc_kernel::{Config, Kernel, Ports, Topic};

use crate::common;
use crate::common::packet::Packet;

/// A message consists of blocks that say which message they are of, and which of its blocks.
const BLOCK: usize = 32;
const TOPIC: TopicId = TopicId(1);
const EPOCH: Epoch = Epoch(1);
/// Laps of the ring after which a reader that got little ends.
const LAPS: u64 = 100_000;

fn message(id: u64, blocks: u64) -> Vec<u8> {
    (0..blocks).flat_map(|at| [id, at, blocks, id ^ at]).flat_map(u64::to_le_bytes).collect()
}

/// The words of a block, if it is whole.
fn block(bytes: &[u8]) -> Option<[u64; 3]> {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("8 bytes"));
    let words = [word(0), word(1), word(2)];
    (word(3) == words[0] ^ words[1] && words[1] < words[2]).then_some(words)
}

/// Checks bytes that begin with a block. Each block follows the one before, or begins a message where one ended.
fn check_blocks(bytes: &[u8], before: &mut Option<[u64; 3]>, at: u64) {
    for (n, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
        let at = at + (n * BLOCK) as u64;
        let Some(words) = block(bytes) else { panic!("a torn block at {at}: {bytes:02x?}") };
        let good = match *before {
            Some([id, index, count]) if index + 1 < count => words == [id, index + 1, count],
            Some(_) => words[1] == 0,
            None => true,
        };
        assert!(good, "a torn message at {at}: {words:?} after {before:?}");
        *before = Some(words);
    }
}

/// Writes messages of these sizes, in turn, until told to stop. Returns the bytes.
fn write(kernel: &Kernel, writer: u64, blocks: &[u64], repeat: u32, stop: &AtomicBool) -> u64 {
    let mut bytes = 0;
    for (round, blocks) in (0..).zip(blocks.iter().cycle()) {
        if stop.load(Relaxed) {
            break;
        }
        let message = message(writer << 40 | round, *blocks);
        let run = kernel.run(&Packet::new(19_999, &message).frame(), repeat).expect("it runs");
        assert_eq!(run.verdict, common::DROP);
        bytes += message.len() as u64 * u64::from(repeat);
    }
    bytes
}

/// Appends messages from user space until told to stop. Returns the bytes.
fn append(topic: &Topic, stop: &AtomicBool) -> u64 {
    let most = topic.max_append_bytes() / BLOCK;
    let mut bytes = 0;
    for round in 0..u64::MAX {
        if stop.load(Relaxed) {
            break;
        }
        let message = message(9 << 40 | round, 1 + round * 7 % most as u64);
        topic.append(&message).expect("it fits");
        bytes += message.len() as u64;
        if round % 64 == 0 {
            thread::yield_now();
        }
    }
    bytes
}

/// Follows the log until `rounds` reads have returned bytes, or up to this position: where the reader rarely has a CPU together with the
/// writers, few reads return bytes. Returns read bytes, bytes in holes, and the position.
fn follow(topic: &Topic, rounds: u32, most: u64) -> (u64, u64, u64) {
    let (mut at, mut read, mut lost) = (0, 0, 0);
    let mut before = None;
    let mut out = vec![0; 64 * BLOCK];
    let mut left = rounds;
    while left > 0 && at < most {
        let found = topic.read(at, &mut out);
        let whole = found.bytes / BLOCK * BLOCK;
        check_blocks(&out[..whole], &mut before, at);
        at += whole as u64;
        read += whole as u64;
        left -= u32::from(whole > 0);
        if let Stop::Gone(first) = found.stop {
            let next = first.next_multiple_of(BLOCK as u64);
            assert!(next > at, "a hole has bytes");
            lost += next - at;
            at = next;
            before = None;
        }
    }
    (read, lost, at)
}

fn hammer(ring_bytes: u64, blocks: &'static [u64], repeat: u32, rounds: u32, user_space: bool) {
    let config = Config::default().ring_bytes(ring_bytes).batch_bytes(ring_bytes / 8);
    let Some(kernel) = common::kernel(config) else { return };
    let topic = kernel.open(TOPIC, Ports::default(), 0, EPOCH).expect("a topic");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 1..=2 {
            let (kernel, stop, written) = (&kernel, &stop, &written);
            scope.spawn(move || written.fetch_add(write(kernel, writer, blocks, repeat, stop), Relaxed));
        }
        if user_space {
            scope.spawn(|| written.fetch_add(append(&topic, &stop), Relaxed));
        }
        let reader = scope.spawn(|| follow(&topic, rounds, LAPS * ring_bytes));
        let result = reader.join();
        stop.store(true, Relaxed);
        let (read, lost, at) = result.expect("nothing is torn");
        assert_eq!(read + lost, at, "each byte was read or reported");
    });
    assert_eq!(topic.window().head, written.into_inner(), "the log has each byte that was written");
    let counters = topic.counters();
    assert_eq!(counters.stored_bytes, topic.window().head);
}

#[test]
fn two_cpus_write_and_a_reader_follows() {
    hammer(1 << 20, &[1], 64, 20_000, false);
}

#[test]
fn messages_of_all_sizes_wrap_around() {
    hammer(1 << 16, &[1, 3, 2, 63, 17, 40], 16, 20_000, false);
}

/// Writers overtake each other by a whole ring, in the middle of a copy.
#[test]
fn writers_are_lapped_in_a_tiny_ring() {
    hammer(4096, &[63, 1, 62], 16, 20_000, false);
}

#[test]
fn user_space_writes_among_the_programs() {
    hammer(1 << 16, &[1, 3, 40], 16, 20_000, true);
}

#[test]
fn user_space_is_lapped_in_a_tiny_ring() {
    hammer(4096, &[63, 1, 62], 16, 20_000, true);
}

#[test]
fn what_user_space_appends_wakes_too() {
    let Some(kernel) = common::kernel(Config::default().ring_bytes(1 << 16).batch_bytes(1 << 12)) else {
        return;
    };
    let topic = kernel.open(TOPIC, Ports::default(), 0, EPOCH).expect("a topic");
    let patience = Duration::from_secs(30);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let begin = Instant::now();
            while !kernel.wait_batch(patience).expect("it waits") {}
            begin.elapsed()
        });
        for _ in 0..5 {
            thread::yield_now();
            topic.append(&[1; 1000]).expect("it fits");
        }
        assert!(waiter.join().expect("woken") < patience, "nobody was woken");
    });
}

/// A range that begins before the end of the ring, with bytes of user space behind it: programs read those from the mirror.
#[test]
fn replies_have_what_user_space_wrote() {
    let Some(kernel) = common::kernel(Config::default().ring_bytes(1 << 16).batch_bytes(1 << 12)) else {
        return;
    };
    let topic = kernel.open(TOPIC, Ports::default(), 0, EPOCH).expect("a topic");
    let (mut log, mut payload): (Vec<u8>, _) = (Vec::new(), Vec::new());
    assert_eq!(topic.append(&[0; (1 << 13) + 1]), None, "longer than an eighth of the ring");
    for round in 0..300_usize {
        let message: Vec<u8> = (0..1 + round * 37 % 8000).map(|at| (at * 13 + round) as u8).collect();
        assert_eq!(topic.append(&message), Some(log.len() as u64));
        log.extend(message);
        let length = 1472.min(log.len());
        let start = log.len() - length;
        PullRequest { start: start as u64, length: length as u64 }.encode_padded(length, &mut payload);
        let run = kernel.run(&Packet::new(19_998, &payload).frame(), 1).expect("it runs");
        assert_eq!((run.verdict, &run.packet[42..]), (common::TX, &log[start..]), "{length} at {start}");
    }
}

#[test]
fn replies_are_never_torn() {
    let config = Config::default().ring_bytes(1 << 14).batch_bytes(1 << 12);
    let Some(kernel) = common::kernel(config) else { return };
    let topic = kernel.open(TOPIC, Ports::default(), 0, EPOCH).expect("a topic");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| write(&kernel, 1, &[1, 3, 40], 16, &stop));
        let pulls = scope.spawn(|| {
            let (mut replies, mut payload) = (0, Vec::new());
            while replies < 5_000 {
                let start = topic.window().first / 32 * 32 + 32 * 40;
                PullRequest { start, length: 1024 }.encode_padded(1024, &mut payload);
                let run = kernel.run(&Packet::new(19_998, &payload).frame(), 1).expect("it runs");
                if run.verdict == common::TX {
                    check_blocks(&run.packet[42..], &mut None, start);
                    replies += 1;
                }
            }
        });
        let result = pulls.join();
        stop.store(true, Relaxed);
        result.expect("nothing is torn");
    });
    assert!(topic.counters().hits >= 5_000);
}
