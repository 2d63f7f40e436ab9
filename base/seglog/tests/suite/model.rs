//! A log on a disk that fails, compared with a plain model: after every failure and every crash the log is a prefix of what was
//! appended, has everything that it said to be durable, goes on behind what it told of before, and tells every hole.

use std::sync::Arc;

use proptest::prelude::*;
use seglog::{AppendError, HoleCause, Log, Options, Read, SyncPolicy};
use seglog_sim::{Fault, SimStorage};

#[derive(Debug, Clone)]
enum Op {
    Append(u16),
    AppendAt(u8, u16),
    Many(Vec<(u8, u16)>),
    Hole(u8),
    Sync,
    Release(u8),
    Retain,
    Fail(Fault, u8, u8),
    Heal,
    /// The disk has room for this many more bytes.
    Room(u16),
    DropCaches,
    /// The power goes off after this many more operations of the disk, and the next `Crash` starts the machine again.
    PowerOff(u8),
    Crash,
    Reopen,
    Advance(u16),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Write),
        Just(Fault::Sync),
        Just(Fault::Sync),
        Just(Fault::SyncDir),
        Just(Fault::Name)
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (1..1500u16).prop_map(Op::Append),
        6 => (0..60u8, 0..900u16).prop_map(|(gap, len)| Op::AppendAt(gap, len)),
        4 => prop::collection::vec((0..9u8, 0..700u16), 1..9).prop_map(Op::Many),
        2 => any::<u8>().prop_map(Op::Hole),
        4 => Just(Op::Sync),
        2 => any::<u8>().prop_map(Op::Release),
        1 => Just(Op::Retain),
        4 => (fault(), 0..6u8, 1..4u8).prop_map(|(fault, after, times)| Op::Fail(fault, after, times)),
        3 => Just(Op::Heal),
        2 => (0..3000u16).prop_map(Op::Room),
        2 => Just(Op::DropCaches),
        2 => (0..12u8).prop_map(Op::PowerOff),
        3 => Just(Op::Crash),
        2 => Just(Op::Reopen),
        1 => (0..5000u16).prop_map(Op::Advance),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    /// A hole where there is none.
    byte: Option<u8>,
    /// A sync failed while this was not durable: it may be lost, which is told.
    doubted: bool,
}

struct World {
    disk: SimStorage,
    options: Options,
    log: Option<Log>,
    cells: Vec<Cell>,
    /// Where batches and holes end.
    ends: Vec<u64>,
    /// The highest position that the log said to be durable.
    promised: u64,
    failed_syncs: u64,
    appended: u64,
    /// Appends that failed at the present end. If the machine stops before the log cuts them, they may be there after all.
    fragments: Vec<Vec<(u64, Vec<u8>)>>,
}

impl World {
    fn new(seed: u64, sync: SyncPolicy) -> Self {
        let options = Options::default()
            .segment_bytes(4096)
            .max_batch(4096)
            .index_interval(512)
            .segment_age(Some(std::time::Duration::from_secs(3)))
            .open_segments(2)
            .sync(sync);
        let disk = SimStorage::new(seed);
        let (cells, ends) = (Vec::new(), vec![0]);
        let mut world = Self {
            disk,
            options,
            log: None,
            cells,
            ends,
            promised: 0,
            failed_syncs: 0,
            appended: 0,
            fragments: Vec::new(),
        };
        world.open(true);
        world
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("the log is open")
    }

    fn payload(&mut self, len: usize) -> Vec<u8> {
        self.appended += 1;
        let nonce = self.appended;
        (0..len as u64).map(|at| (nonce * 31 + at * 7) as u8).collect()
    }

    /// Takes over the effect of an append: the batches up to the new end.
    fn take(&mut self, batches: &[(u64, Vec<u8>)], end: u64) {
        for (position, bytes) in batches {
            let cells = self.cells.len() as u64;
            if *position > cells && *position <= end {
                self.cells.resize(*position as usize, Cell { byte: None, doubted: false });
                self.ends.push(*position);
            }
            if !bytes.is_empty() && position + bytes.len() as u64 <= end {
                self.cells.extend(bytes.iter().map(|byte| Cell { byte: Some(*byte), doubted: false }));
                self.ends.push(self.cells.len() as u64);
            }
        }
        assert_eq!(self.cells.len() as u64, end, "the log ends where its batches do");
    }

    /// Takes over the part of a failed append that a stopped machine left.
    fn take_fragment(&mut self) {
        let (from, end) = (self.cells.len() as u64, self.log().end());
        for batches in std::mem::take(&mut self.fragments) {
            let mut ends = batches.iter().flat_map(|(at, bytes)| [*at, at + bytes.len() as u64]);
            if self.cells.len() as u64 == from && from < end && ends.any(|at| at == end) {
                let before = self.ends.len();
                self.take(&batches, end);
                if !self.holds(from) {
                    self.cells.truncate(from as usize);
                    self.ends.truncate(before);
                }
            }
        }
    }

    /// Whether the log has what the model has from a position on.
    fn holds(&mut self, from: u64) -> bool {
        let mut reader = self.log().reader();
        self.cells.iter().enumerate().skip(from as usize).all(|(at, cell)| {
            match reader.read(at as u64).expect("what is there can be read") {
                Read::Batch(batch) => cell.byte == Some(batch.bytes[0]),
                _ => cell.byte.is_none(),
            }
        })
    }

    fn append(&mut self, batches: Vec<(u64, Vec<u8>)>) {
        let parts: Vec<(u64, &[u8])> = batches.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        let wanted = batches.last().map_or(0, |(at, bytes)| at + bytes.len() as u64);
        let before = self.cells.len() as u64;
        let result = self.log().append_many(&parts);
        let end = self.log().end();
        if end > before {
            self.fragments.clear();
        }
        match result {
            Ok(end) => assert_eq!(end, wanted),
            Err(AppendError::NotWritten { end: told, .. }) => {
                assert_eq!(told, end);
                let rest = batches.iter().filter(|(at, bytes)| at + bytes.len() as u64 > end);
                self.fragments.push(rest.cloned().collect());
            }
            Err(AppendError::NotDurable { end, durable, .. }) => {
                assert_eq!((end, durable), (wanted, self.log().durable()));
            }
            Err(other) => panic!("{other}"),
        }
        self.take(&batches, end);
    }

    /// Appends batches with gaps before them.
    fn append_many(&mut self, batches: &[(u8, u16)]) {
        let mut at = self.cells.len() as u64;
        let mut many = Vec::new();
        for (gap, len) in batches {
            at += u64::from(*gap);
            many.push((at, self.payload((*len).into())));
            at += u64::from(*len);
        }
        self.append(many);
    }

    /// Notes the log's promises, and the batches in doubt.
    fn observe(&mut self) {
        let log = self.log.as_ref().expect("the log is open");
        let (durable, failed, end) = (log.durable(), log.stats().failed_syncs, log.end());
        assert!(durable >= self.promised, "what is durable stays durable");
        if failed > self.failed_syncs {
            self.cells[self.promised as usize..].iter_mut().for_each(|cell| cell.doubted = true);
        }
        assert!(durable <= end);
        (self.promised, self.failed_syncs) = (durable, failed);
    }

    fn open(&mut self, must: bool) {
        let log = Log::open_on(Arc::new(self.disk.clone()), "log", self.options.clone());
        let log = match log {
            Ok(log) => log,
            Err(_) if !must => {
                // A disk that fails is no reason to lose anything: without the fault, it opens.
                if self.disk.power_left().is_some() {
                    self.disk.crash();
                }
                self.disk.heal();
                self.disk.set_capacity(u64::MAX);
                // The power may still go off.
                return self.open(false);
            }
            Err(error) => panic!("{error}"),
        };
        let (end, unsynced) = (log.end(), log.recovery().unsynced.clone());
        assert!(end >= self.promised, "the log ends at {end} and promised {}", self.promised);
        if !unsynced.is_empty() {
            assert!(unsynced.start >= self.promised, "{unsynced:?} of what was promised");
            let cells = &mut self.cells[unsynced.start as usize..unsynced.end as usize];
            cells.iter_mut().for_each(|cell| cell.byte = None);
        }
        (self.log, self.promised, self.failed_syncs) = (Some(log), end, 0);
        self.take_fragment();
        assert!(self.ends.contains(&end), "{end} is in the middle of a batch");
        self.cells.truncate(end as usize);
        self.ends.retain(|at| *at <= end);
    }

    fn check(&mut self) {
        let log = self.log.as_ref().expect("the log is open");
        let mut reader = log.reader();
        let (first, end) = (reader.first(), reader.end());
        let mut at = first;
        loop {
            match reader.read(at).expect("what is there can be read") {
                Read::Batch(batch) => {
                    for byte in &batch.bytes {
                        assert_eq!(self.cells[at as usize].byte, Some(*byte), "at {at}");
                        at += 1;
                    }
                }
                Read::Hole(hole) => {
                    assert_eq!(hole.range.start, at);
                    let cells = &self.cells[at as usize..hole.range.end as usize];
                    let lost = hole.cause == HoleCause::Damaged;
                    let as_told = |cell: &&Cell| if lost { cell.doubted } else { cell.byte.is_none() };
                    assert!(cells.iter().all(|cell| as_told(&cell)), "a hole of {:?} at {at}", hole.cause);
                    at = hole.range.end;
                }
                Read::End { end: told } => break assert_eq!((told, at), (end, end)),
                other => panic!("{other:?}"),
            }
        }
    }

    fn apply(&mut self, op: Op) {
        let end = self.cells.len() as u64;
        match op {
            Op::Append(len) => {
                let bytes = self.payload(len.into());
                self.append(vec![(end, bytes)]);
            }
            Op::AppendAt(gap, len) => {
                let bytes = self.payload(len.into());
                self.append(vec![(end + u64::from(gap), bytes)]);
            }
            Op::Many(batches) => self.append_many(&batches),
            Op::Hole(gap) => self.append(vec![(end + u64::from(gap), Vec::new())]),
            Op::Sync => {
                if let Ok(durable) = self.log().sync() {
                    assert_eq!(durable, end);
                    self.fragments.clear();
                }
            }
            Op::Release(part) => {
                let below = end * u64::from(part) / 255;
                let first = self.log().release(below).unwrap_or_default();
                assert!(first <= below.max(self.log().first()));
            }
            Op::Retain => drop(self.log().apply_retention()),
            Op::Fail(fault, after, times) => self.disk.fail(fault, after.into(), times.into()),
            Op::Heal => {
                self.disk.heal();
                self.disk.set_capacity(u64::MAX);
            }
            Op::Room(bytes) => self.disk.set_capacity(self.disk.used() + u64::from(bytes)),
            Op::DropCaches => self.disk.drop_caches(),
            Op::PowerOff(after) => self.disk.power_off_after(after.into()),
            Op::Crash => {
                self.disk.crash();
                self.log = None;
                self.disk.set_capacity(u64::MAX);
                self.open(true);
            }
            Op::Reopen => self.reopen(),
            Op::Advance(milliseconds) => self.disk.advance(milliseconds.into()),
        }
        self.observe();
    }

    /// Closes the log and opens it in the same life of the machine, or in the next one if the power is off.
    fn reopen(&mut self) {
        let end = self.cells.len() as u64;
        let closed = self.log.take().expect("the log is open").close();
        if closed.is_ok() {
            self.fragments.clear();
        }
        if self.disk.power_left().is_some() {
            self.disk.crash();
        }
        self.open(false);
        if closed.is_ok() {
            assert_eq!(self.cells.len() as u64, end, "what was closed is all there");
        }
    }
}

fn run(seed: u64, sync: SyncPolicy, ops: Vec<Op>) {
    let mut world = World::new(seed, sync);
    for op in ops {
        let reads = matches!(op, Op::Crash | Op::Reopen | Op::Sync | Op::Release(_));
        world.apply(op);
        if reads && world.disk.power_left().is_none() {
            world.check();
        }
    }
    world.apply(Op::Crash);
    // With a disk that works again everything goes on, and can be promised.
    world.apply(Op::Heal);
    world.apply(Op::Append(100));
    world.apply(Op::Sync);
    assert_eq!(world.promised, world.cells.len() as u64);
    world.check();
    world.apply(Op::Crash);
    world.check();
}

/// `SEGLOG_CASES=100000` runs more cases than the default.
fn config() -> ProptestConfig {
    let cases = std::env::var("SEGLOG_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn policy() -> impl Strategy<Value = SyncPolicy> {
    prop_oneof![Just(SyncPolicy::EachAppend), Just(SyncPolicy::Bytes(2000)), Just(SyncPolicy::Never)]
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn the_log_keeps_its_promises(seed: u64, sync in policy(), ops in prop::collection::vec(op(), 1..60)) {
        run(seed, sync, ops);
    }
}
