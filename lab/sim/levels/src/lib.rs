//! The conformance suite: the duties of every level and every stack, whatever the level is made of.
//!
//! A test of a level makes a [`Lab`] and calls [`level`]; a test of a stack calls [`stack`] with a list of labs, which runs every
//! subset of them. All functions panic with the fault.
//!
//! The oracle is a [`Model`]: a plain vector of bytes, with `None` in holes. A level may have fewer bytes than the model (it forgets, or
//! it is late), but never other bytes, and it returns the reason why bytes are missing.
//!
//! [`User`] and [`Disk`] are the labs of the levels in user space. [`exchange`] has the datagrams that every stack answers alike.

#![forbid(unsafe_code)]

pub mod exchange;
mod labs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use multimqc::{
    Batch, Epoch, Found, Hole, Level, LevelError, LevelKind, MAX_OFFSET, Mover, Offset, Stack, Stop, Tail,
    TopicId, TransferConfig, Transfers,
};

pub use labs::{Disk, User};

const TOPIC: TopicId = TopicId(7);
const EPOCH: Epoch = Epoch(5);
/// The time limit of operations that normally take milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes levels of one kind, for tests.
pub trait Lab: Sync {
    /// The kind of the level.
    fn kind(&self) -> LevelKind;

    /// A new level without topics, which keeps `capacity_bytes` of each topic or a few times as much, or everything, and
    /// has batches of `batch_bytes`.
    fn level(&self, capacity_bytes: u64, batch_bytes: u64) -> Arc<dyn Level>;

    /// Whether the level may be the first of a stack.
    fn is_first(&self) -> bool {
        true
    }

    /// Whether the level accepts messages and batches from this process. All levels do, except those whose pushes arrive only on the wire.
    fn is_writable(&self) -> bool {
        true
    }

    /// Pushes a message of at most [`MAX_PUSH_BYTES`] to a level of this lab, by the way on which its pushes arrive.
    fn push(&self, level: &dyn Level, topic: TopicId, message: &[u8]) {
        level.append(topic, &mut std::iter::once(message)).expect("the level takes messages");
    }
}

/// The largest message of [`Lab::push`].
pub const MAX_PUSH_BYTES: usize = 1400;

/// The oracle of one log.
#[derive(Debug, Default)]
pub struct Model {
    bytes: Vec<Option<u8>>,
}

impl Model {
    /// The end of the log.
    pub fn head(&self) -> Offset {
        self.bytes.len() as u64
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().copied().map(Some));
    }

    /// Places a batch.
    pub fn write(&mut self, batch: Batch<'_>) {
        let placed = batch.place(self.head());
        let end = placed.hole.map_or(self.head(), |hole| hole.to);
        self.bytes.resize(end as usize, None);
        self.append(placed.bytes);
    }

    /// Checks the result of a read. `keeps` is how many of the newest bytes the level must have.
    pub fn check(&self, from: Offset, asked: usize, found: Found, bytes: &[u8], keeps: u64) {
        let end = from + found.bytes as u64;
        assert!(found.bytes <= asked && end <= self.head().max(from), "{found:?} at {from}, of {asked}");
        let expected: Vec<Option<u8>> = bytes[..found.bytes].iter().copied().map(Some).collect();
        if found.bytes > 0 {
            assert_eq!(self.bytes[from as usize..end as usize], expected, "bytes from {from} on");
        }
        match found.stop {
            Stop::Filled => assert_eq!(found.bytes, asked, "filled at {from}"),
            Stop::Head => assert!(end >= self.head(), "no head at {end}, the log ends at {}", self.head()),
            Stop::Hole(hole) => {
                assert_eq!(hole.from, end, "{found:?}");
                assert!(hole.to > end && hole.to <= self.head(), "{found:?}");
                let missing = &self.bytes[end as usize..hole.to as usize];
                assert!(missing.iter().all(Option::is_none), "{hole:?} has bytes");
            }
            Stop::Gone(first) => {
                assert!(first > end, "{found:?} at {from}");
                assert!(end + keeps < self.head(), "a byte of the newest {keeps} is gone: {found:?}");
            }
        }
    }
}

/// Bytes that show their offset: each byte is computed from its offset.
pub fn pattern(from: Offset, length: usize) -> Vec<u8> {
    (from..from + length as u64).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// Everything that a level of this kind must do.
pub fn level(lab: &dyn Lab) {
    unknown_topics(lab);
    if lab.is_writable() {
        batches_have_their_place(lab);
        holes_are_reported(lab);
        old_bytes_are_gone(lab);
        topics_do_not_mix(lab);
        far_offsets_are_refused(lab);
    }
    if lab.is_writable() && lab.is_first() {
        messages_are_appended(lab);
    }
    if lab.is_first() {
        pushes_are_found(lab);
        a_batch_wakes(lab);
        no_read_is_torn(lab);
    }
}

/// A level with an open topic.
fn open(lab: &dyn Lab) -> Arc<dyn Level> {
    let level = lab.level(1 << 20, 4096);
    let window = level.open(TOPIC, 0, EPOCH).expect("the topic is opened");
    assert_eq!((window.first, window.head, window.epoch), (0, 0, EPOCH));
    level
}

fn read(level: &dyn Level, from: Offset, length: usize) -> (Found, Vec<u8>) {
    let mut bytes = vec![0xEE; length];
    let found = level.read(TOPIC, from, &mut bytes).expect("the level works");
    (found, bytes)
}

fn unknown_topics(lab: &dyn Lab) {
    let level = open(lab);
    let other = TopicId(8);
    assert!(level.window(other).is_none());
    assert!(matches!(level.read(other, 0, &mut [0]), Err(LevelError::UnknownTopic(topic)) if topic == other));
    let batch = Batch { offset: 0, bytes: b"a" };
    assert!(matches!(level.write(other, batch), Err(LevelError::UnknownTopic(_))));
    assert_eq!(level.counters(other), Default::default());
    let window = level.open(TOPIC, 99, Epoch(6)).expect("an open topic stays as it is");
    assert_eq!((window.head, window.epoch), (0, EPOCH));
}

fn batches_have_their_place(lab: &dyn Lab) {
    let (level, mut model) = (open(lab), Model::default());
    let batches = [(0, 10), (10, 1), (11, 5000), (11, 5000), (5000, 20), (5005, 10), (0, 5020), (5021, 100)];
    for (offset, length) in batches {
        let bytes = pattern(offset, length);
        let batch = Batch { offset, bytes: &bytes };
        let placed = batch.place(model.head());
        let written = level.write(TOPIC, batch).expect("the level has room");
        assert_eq!((written.hole, written.repeated), (placed.hole, placed.repeated), "{offset} {length}");
        assert_eq!(written.bytes, placed.bytes.len() as u64);
        model.write(batch);
        assert_eq!(level.window(TOPIC).map(|window| window.head), Some(model.head()));
    }
    for (from, length) in
        [(0, 5121), (0, 0), (5121, 0), (11, 1), (5000, 121), (5000, 122), (5121, 1), (9000, 9)]
    {
        let (found, bytes) = read(&*level, from, length);
        model.check(from, length, found, &bytes, 1 << 18);
    }
    let counters = level.counters(TOPIC);
    assert_eq!((counters.batches, counters.bytes), (8, 5120));
    assert_eq!((counters.holes, counters.hole_bytes), (1, 1));
    assert_eq!((counters.hits, counters.misses), (3, 5), "{counters:?}");
}

fn holes_are_reported(lab: &dyn Lab) {
    let level = open(lab);
    let write = |offset, bytes: &[u8]| level.write(TOPIC, Batch { offset, bytes }).expect("room");
    assert_eq!(write(100, b"abc").hole, Some(Hole { from: 0, to: 100 }));
    assert_eq!(write(200, b"").hole, Some(Hole { from: 103, to: 200 }), "no bytes, but a hole");
    assert_eq!(write(200, b"defg").hole, None);
    assert_eq!(write(150, b"late").repeated, 4, "a log is never rewritten");
    assert_eq!(read(&*level, 100, 3).0, Found { bytes: 3, stop: Stop::Filled });
    let hole = Hole { from: 103, to: 200 };
    assert_eq!(read(&*level, 101, 50).0, Found { bytes: 2, stop: Stop::Hole(hole) });
    let rest = Hole { from: 150, to: 200 };
    assert_eq!(read(&*level, 150, 10).0, Found { bytes: 0, stop: Stop::Hole(rest) });
    assert_eq!(read(&*level, 202, 50).0, Found { bytes: 2, stop: Stop::Head });
    // Far more than the level keeps.
    let far = 1 << 40;
    assert_eq!(write(far, b"x").hole, Some(Hole { from: 204, to: far }));
    assert_eq!(read(&*level, far, 1).0.bytes, 1);
    let (found, _) = read(&*level, far - 1, 2);
    assert_eq!(found, Found { bytes: 0, stop: Stop::Hole(Hole { from: far - 1, to: far }) });
}

fn old_bytes_are_gone(lab: &dyn Lab) {
    let (level, mut model) = (open(lab), Model::default());
    let keeps = level.capacity_bytes().map_or(1 << 19, |capacity| capacity / 2);
    for _ in 0..700 {
        let bytes = pattern(model.head(), 10_000);
        let batch = Batch { offset: model.head(), bytes: &bytes };
        level.write(TOPIC, batch).expect("the level has room");
        model.write(batch);
        for from in [0, model.head() / 2, model.head() - 10_000] {
            let (found, bytes) = read(&*level, from, 10_000);
            model.check(from, 10_000, found, &bytes, keeps);
        }
    }
    let window = level.window(TOPIC).expect("it is open");
    assert_eq!(window.head, model.head());
    assert!(window.bytes() >= keeps, "{window:?}");
    let (found, _) = read(&*level, window.first, 1);
    assert_eq!(found, Found { bytes: 1, stop: Stop::Filled }, "the window begins with a byte");
    assert_eq!(level.counters(TOPIC).overwritten_bytes, window.first);
}

fn topics_do_not_mix(lab: &dyn Lab) {
    let level = open(lab);
    let other = TopicId(65_535);
    let window = level.open(other, 1000, EPOCH).expect("a second topic");
    assert_eq!((window.first, window.head), (1000, 1000), "a log can begin anywhere");
    level.write(TOPIC, Batch { offset: 0, bytes: b"first" }).expect("room");
    level.write(other, Batch { offset: 1000, bytes: b"second" }).expect("room");
    let mut bytes = [0; 6];
    level.read(other, 1000, &mut bytes).expect("the level works");
    assert_eq!(&bytes, b"second");
    assert_eq!(level.window(TOPIC).map(|window| window.head), Some(5));
    assert_eq!(level.counters(other).batches, 1);
    let found = level.read(other, 0, &mut bytes).expect("the level works");
    assert_eq!((found.bytes, found.stop), (0, Stop::Gone(1000)), "it never had these");
}

fn far_offsets_are_refused(lab: &dyn Lab) {
    let level = open(lab);
    for batch in [Batch { offset: u64::MAX, bytes: b"" }, Batch { offset: MAX_OFFSET, bytes: b"a" }] {
        assert!(matches!(level.write(TOPIC, batch), Err(LevelError::Offset(_))), "{batch:?}");
    }
    assert_eq!(level.window(TOPIC).map(|window| window.head), Some(0));
    for from in [MAX_OFFSET, u64::MAX] {
        assert_eq!(read(&*level, from, 10).0, Found { bytes: 0, stop: Stop::Head });
    }
}

fn messages_are_appended(lab: &dyn Lab) {
    let (level, mut model) = (open(lab), Model::default());
    for round in 1..200_usize {
        let message = pattern(model.head(), round);
        let two = [&message[..round / 2], &message[round / 2..]];
        let appended = level.append(TOPIC, &mut two.into_iter()).expect("the level takes messages");
        assert_eq!((appended.offset, appended.bytes), (model.head(), round as u64));
        assert_eq!((appended.messages, appended.oversize), (2, 0));
        model.append(&message);
    }
    let length = model.head() as usize;
    let (found, bytes) = read(&*level, 0, length);
    assert_eq!(found.stop, Stop::Filled);
    model.check(0, length, found, &bytes, model.head());
    assert_eq!(level.counters(TOPIC).messages, 398);
    let huge = vec![0; 4 << 20];
    let appended = level.append(TOPIC, &mut [&huge[..], b"small"].into_iter()).expect("the level goes on");
    assert_eq!((appended.messages, appended.oversize), (1, 1), "a message that can never fit is counted");
    assert_eq!(level.window(TOPIC).map(|window| window.head), Some(model.head() + 5));
}

fn pushes_are_found(lab: &dyn Lab) {
    let (level, mut model) = (open(lab), Model::default());
    let keeps = level.capacity_bytes().map_or(1 << 19, |capacity| capacity / 2);
    for round in 0..6000_usize {
        let message = pattern(model.head(), 1 + round * 31 % MAX_PUSH_BYTES);
        lab.push(&*level, TOPIC, &message);
        model.append(&message);
        if round % 100 > 0 {
            continue;
        }
        for (from, length) in [(0, 10), (model.head() / 2, 3000), (model.head() - 1, 1), (model.head(), 1)] {
            let (found, bytes) = read(&*level, from, length);
            model.check(from, length, found, &bytes, keeps);
        }
    }
    let window = level.window(TOPIC).expect("it is open");
    assert_eq!((window.head, window.epoch), (model.head(), EPOCH));
    assert_eq!(read(&*level, window.first, 1).0, Found { bytes: 1, stop: Stop::Filled });
    let counters = level.counters(TOPIC);
    assert_eq!((counters.messages, counters.bytes), (6000, model.head()));
    assert_eq!(counters.overwritten_bytes, window.first);
}

fn a_batch_wakes(lab: &dyn Lab) {
    let level = open(lab);
    level.wait_batch(Duration::ZERO);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let begin = Instant::now();
            while !level.wait_batch(PATIENCE) && begin.elapsed() < PATIENCE {}
            begin.elapsed() < PATIENCE
        });
        (0..10).for_each(|_| lab.push(&*level, TOPIC, &[7; 1000]));
        assert!(waiter.join().expect("the waiter ends"), "nobody was woken for a batch");
    });
}

fn no_read_is_torn(lab: &dyn Lab) {
    let level = lab.level(1 << 19, 4096);
    level.open(TOPIC, 0, EPOCH).expect("the topic is opened");
    let total = 16 << 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut head = 0;
            while head < total {
                let bytes = pattern(head, 1 + head as usize % MAX_PUSH_BYTES);
                head += bytes.len() as u64;
                lab.push(&*level, TOPIC, &bytes);
            }
        });
        let (mut at, mut read_bytes) = (0, 0);
        let mut bytes = vec![0; 8192];
        while at < total {
            let found = level.read(TOPIC, at, &mut bytes).expect("the level works");
            assert_eq!(bytes[..found.bytes], pattern(at, found.bytes), "bytes at {at}");
            (at, read_bytes) = (at + found.bytes as u64, read_bytes + found.bytes);
            match found.stop {
                Stop::Gone(first) => {
                    assert!(first > at, "{found:?} at {at}");
                    at = first;
                }
                Stop::Filled | Stop::Head => {}
                Stop::Hole(hole) => panic!("{hole:?} in a log without holes"),
            }
        }
        assert!(read_bytes > 0);
    });
}

/// Everything that a stack must do, for every subset of these labs that can be a stack. The replies are the same from each.
pub fn stack(labs: &[&dyn Lab]) {
    for chosen in 1..1_u32 << labs.len() {
        let subset: Vec<&dyn Lab> =
            (0..labs.len()).filter(|at| chosen & 1 << at != 0).map(|at| labs[at]).collect();
        let first = subset.iter().min_by_key(|lab| lab.kind()).expect("a subset has a level");
        if !first.is_first() {
            continue;
        }
        every_byte_is_read(&subset, *first);
        if first.is_writable() {
            what_no_level_has_is_reported(&subset);
        }
        a_stack_of_threads_moves_everything(&subset, *first);
    }
}

fn names(labs: &[&dyn Lab]) -> String {
    labs.iter().map(|lab| lab.kind().name()).collect::<Vec<_>>().join(",")
}

fn stack_of(labs: &[&dyn Lab], capacity_bytes: u64) -> Arc<Stack> {
    let levels = labs.iter().map(|lab| lab.level(capacity_bytes, 4096)).collect();
    let stack = Stack::new(levels).expect("levels of different kinds");
    assert_eq!(stack.open(TOPIC, EPOCH).expect("the topic is opened").head, 0);
    Arc::new(stack)
}

fn movers(stack: &Stack) -> Vec<Mover> {
    let config = TransferConfig { batch_bytes: 4096, max_age: Duration::ZERO };
    let pair =
        |pair: &[Arc<dyn Level>]| Mover::new(Arc::clone(&pair[0]), Arc::clone(&pair[1]), config.clone());
    stack.levels().windows(2).map(pair).collect()
}

/// Messages, with transfers after each: all levels together have every byte that one of them keeps.
fn every_byte_is_read(labs: &[&dyn Lab], first: &dyn Lab) {
    let (stack, mut head) = (stack_of(labs, 1 << 19), 0);
    let mut movers = movers(&stack);
    for round in 0..1500_u64 {
        let message = pattern(head, 1 + round as usize * 37 % MAX_PUSH_BYTES);
        first.push(&*stack.levels()[0], TOPIC, &message);
        head += message.len() as u64;
        for mover in &mut movers {
            while mover.step(TOPIC, Instant::now(), round % 5 == 0).expect("levels work") {}
        }
        for (from, length) in [(head - message.len() as u64, message.len()), (head / 2, 1472), (0, 32)] {
            let mut bytes = vec![0; length.min((head - from) as usize)];
            let answer = stack.read(TOPIC, from, &mut bytes).expect("the topic is open");
            assert_eq!(bytes[..answer.bytes], pattern(from, answer.bytes), "{}: at {from}", names(labs));
            match answer.tail {
                Tail::Nothing => assert_eq!(answer.bytes, bytes.len()),
                Tail::Gone(first) => {
                    let last = stack.levels().last().expect("a level").window(TOPIC).expect("open");
                    assert!(first <= last.first.max(from + 1), "{}: {answer:?}, {last:?}", names(labs));
                }
                other => panic!("{}: {other:?} at {from}", names(labs)),
            }
        }
    }
    assert!(movers.iter().all(|mover| mover.progress().report().holes == 0), "every batch came in time");
}

/// Holes, the head and unknown topics.
fn what_no_level_has_is_reported(labs: &[&dyn Lab]) {
    let stack = stack_of(labs, 1 << 19);
    let mut movers = movers(&stack);
    let mut flush = || {
        for mover in &mut movers {
            while mover.step(TOPIC, Instant::now(), true).expect("levels work") {}
        }
    };
    stack.write(TOPIC, Batch { offset: 0, bytes: b"0123456789" }).expect("room");
    flush();
    stack.write(TOPIC, Batch { offset: 50, bytes: b"abc" }).expect("room");
    flush();
    let mut bytes = [0; 100];
    let mut read = |from, length| stack.read(TOPIC, from, &mut bytes[..length]).expect("it is open");
    assert_eq!((read(0, 10).bytes, read(0, 10).tail), (10, Tail::Nothing), "{}", names(labs));
    let hole = Tail::Hole(Hole { from: 10, to: 50 });
    assert_eq!((read(5, 60).bytes, read(5, 60).tail), (5, hole), "{}", names(labs));
    assert_eq!((read(51, 60).bytes, read(51, 60).tail), (2, Tail::Later), "{}", names(labs));
    assert_eq!((read(1000, 1).bytes, read(1000, 1).tail), (0, Tail::Later), "{}", names(labs));
    assert!(stack.read(TopicId(9), 0, &mut [0]).is_none());
    for level in stack.levels() {
        assert_eq!(level.window(TOPIC).map(|window| window.head), Some(53), "{}", names(labs));
        assert_eq!(level.counters(TOPIC).hole_bytes, 40, "the hole is in each level: {}", names(labs));
    }
}

/// Threads transfer while messages arrive, and the last ones at the end.
fn a_stack_of_threads_moves_everything(labs: &[&dyn Lab], first: &dyn Lab) {
    let stack = stack_of(labs, 1 << 20);
    let config = TransferConfig { batch_bytes: 4096, max_age: Duration::from_millis(5) };
    let transfers = Transfers::start(&stack, &config).expect("threads");
    let (mut head, deadline) = (0, Instant::now() + PATIENCE);
    for _ in 0..200 {
        let message = pattern(head, 1 + head as usize % MAX_PUSH_BYTES);
        head += message.len() as u64;
        first.push(&*stack.levels()[0], TOPIC, &message);
    }
    let last = Arc::clone(stack.levels().last().expect("a level"));
    let reached = |to| last.window(TOPIC).is_some_and(|window| window.head == to);
    while !reached(head) {
        assert!(Instant::now() < deadline, "{}: {:?} of {head}", names(labs), last.window(TOPIC));
        std::thread::sleep(Duration::from_millis(1));
    }
    let end = pattern(head, 100);
    first.push(&*stack.levels()[0], TOPIC, &end);
    head += 100;
    drop(transfers);
    assert!(reached(head), "{}: the end moves everything", names(labs));
    let mut bytes = vec![0; head as usize];
    let found = last.read(TOPIC, 0, &mut bytes).expect("the level works");
    assert_eq!((found.stop, bytes), (Stop::Filled, pattern(0, head as usize)), "{}", names(labs));
}
