//! The merger against a plain model: publishers are lists of deliveries, the merged log is a list of runs.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use rbmq_wire::{RUN_HEADER_BYTES, Runs};
use rocketbufs::Coverage;
use rocketbufs::relay::CoveragePart;
use rocketbufs::{Config, Conn, Context, Epoch, Position, RIn, ROut};

use super::super::inbox::{self, inbox};
use super::super::kept::Place;
use super::super::session_key::SessionKey;
use super::disk::{DiskReport, DiskState};
use super::index::Arrivals;
use super::log::{Growth, PublisherRing, Source};
use super::mailbox::Event;
use super::merger::{
    AppendError, Blocked, Log, Merger, Note, Piece, Reached, Signals, SourceRing, StoppedSource, Turn,
};
use super::table::TableLoad;
use super::topic::MergedTopic;

/// A publisher's ring at the broker.
#[derive(Default)]
struct Ring {
    bytes: Vec<u8>,
    complete: usize,
    released: usize,
    /// The position of a loss. A piece doesn't reach across it.
    loss: Option<usize>,
    /// The end of a delivery at which a piece ends.
    cut: usize,
    confirmed: Reached,
    count: Coverage,
    /// What it was told about the disk.
    told: Vec<String>,
}

#[derive(Clone, Default)]
struct Publisher(Rc<RefCell<Ring>>);

struct Whole {
    ring: Publisher,
    bytes: Vec<u8>,
    end: usize,
}

impl SourceRing for Publisher {
    type Piece = Whole;

    fn complete(&self) -> Option<Whole> {
        let ring = self.0.borrow();
        let end = ring.loss.filter(|loss| *loss > ring.released).unwrap_or(ring.complete);
        let end = if ring.cut > ring.released { ring.cut } else { end };
        let bytes = ring.bytes[ring.released..end].to_vec();
        (!bytes.is_empty()).then(|| Whole { ring: self.clone(), bytes, end })
    }

    fn confirm(&self, reached: Reached, count: Coverage) {
        let mut ring = self.0.borrow_mut();
        assert!(reached.delivered >= ring.confirmed.delivered && reached.consumed >= ring.confirmed.consumed);
        ring.confirmed = reached;
        ring.count = count;
    }

    fn tell(&self, report: DiskReport<'_>) {
        self.0.borrow_mut().told.push(format!("{report:?}"));
    }

    fn origin(&self, number: u32, piece: &Whole) -> Place {
        let position = (piece.end - piece.bytes.len()) as Position;
        Place {
            number,
            key: SessionKey::BROKER,
            bid: number,
            epoch: Epoch(number.into()),
            position,
            lacks_below: 0,
        }
    }
}

impl Piece for Whole {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn end(&self) -> Position {
        self.end as Position
    }

    fn has_more(&self) -> bool {
        let ring = self.ring.0.borrow();
        ring.cut == self.end && ring.complete > self.end
    }

    fn release(self) {
        self.ring.0.borrow_mut().released = self.end;
    }
}

/// The merged log, with room for `window` bytes after the slowest subscriber.
struct Merged {
    bytes: Vec<u8>,
    window: usize,
    /// The largest delivery.
    most: usize,
    delivered: usize,
    consumed: usize,
    count: Coverage,
    ended: bool,
    asked: Cell<u32>,
    disk: Option<DiskState>,
    missing: Position,
    /// The publishers that the disk was told of, those together that it was told of at once. None: it knows all.
    begun: Option<Vec<Vec<u32>>>,
}

impl Log for Merged {
    fn append(&mut self, _place: &Place, parts: [&[u8]; 2]) -> Result<Position, AppendError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if self.ended {
            return Err(AppendError::Ended);
        }
        if len > self.most {
            return Err(AppendError::TooLarge);
        }
        if self.bytes.len() + len > self.delivered + self.window {
            return Err(AppendError::Full);
        }
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(self.bytes.len() as Position)
    }

    fn knows(&self, place: &Place) -> bool {
        let begun = self.begun.as_ref();
        begun.is_none_or(|begun| begun.iter().flatten().any(|number| *number == place.number))
    }

    fn begin(&mut self, places: &[Place]) {
        let begun = self.begun.get_or_insert_default();
        begun.push(places.iter().map(|place| place.number).collect());
    }

    fn confirmed(&self) -> (Position, Position, Coverage) {
        (self.delivered as Position, self.consumed as Position, self.count)
    }

    fn ask(&self, delivered: bool, consumed: bool) {
        assert!(delivered || consumed);
        self.asked.set(self.asked.get() + 1);
    }

    fn disk(&self) -> Option<DiskState> {
        self.disk
    }

    fn missing_in_archive(&self) -> Position {
        self.missing
    }

    fn disk_failure(&self) -> Option<&str> {
        None
    }
}

/// An event.
#[derive(Debug, Clone)]
enum Step {
    /// A whole delivery arrives.
    Deliver(u8, usize),
    /// An incomplete delivery arrives. Its rest may never arrive.
    Part(u8, usize),
    /// The slowest subscriber receives, and consumes, so many bytes.
    Receive(usize, usize),
    /// A publisher finishes, or is connected again.
    Finish(u8),
    Resume(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let publisher = 0..6_u8;
    let step = prop_oneof![
        6 => (publisher.clone(), 1..40_usize).prop_map(|(p, n)| Step::Deliver(p, n)),
        2 => (publisher.clone(), 1..40_usize).prop_map(|(p, n)| Step::Part(p, n)),
        4 => (0..120_usize, 0..120_usize).prop_map(|(a, b)| Step::Receive(a, b)),
        1 => publisher.clone().prop_map(Step::Finish),
        1 => publisher.prop_map(Step::Resume),
    ];
    proptest::collection::vec(step, 1..120)
}

struct World {
    merger: Merger<Publisher>,
    log: Merged,
    rings: HashMap<u32, Publisher>,
    signals: HashMap<u32, Arc<Signals>>,
    /// The ends of the deliveries of each publisher.
    ends: HashMap<u32, HashSet<usize>>,
    finished: HashMap<u32, Position>,
    table_limit: usize,
    blocked: Option<Blocked>,
}

impl World {
    fn new(window: usize, table_limit: usize) -> Self {
        let log = Merged {
            bytes: Vec::new(),
            window,
            most: usize::MAX,
            delivered: 0,
            consumed: 0,
            count: Coverage::ONE,
            ended: false,
            asked: Cell::new(0),
            disk: None,
            missing: 0,
            begun: None,
        };
        let mut world = Self {
            merger: Merger::new(table_limit),
            log,
            rings: HashMap::new(),
            signals: HashMap::new(),
            ends: HashMap::new(),
            finished: HashMap::new(),
            table_limit,
            blocked: None,
        };
        for number in 0..6 {
            let ring = Publisher::default();
            let signals = Arc::<Signals>::default();
            world.merger.join(number, ring.clone(), signals.clone(), 0);
            world.signals.insert(number, signals);
            world.rings.insert(number, ring);
            world.ends.insert(number, HashSet::from([0]));
        }
        world
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Deliver(number, size) | Step::Part(number, size) => {
                let number = u32::from(number);
                if self.finished.contains_key(&number) {
                    return;
                }
                let mut ring = self.rings[&number].0.borrow_mut();
                for _ in 0..size {
                    let next = (ring.bytes.len() * 7 + number as usize) as u8;
                    ring.bytes.push(next);
                }
                if let Step::Deliver(..) = step {
                    ring.complete = ring.bytes.len();
                    self.ends.get_mut(&number).unwrap().insert(ring.complete);
                    drop(ring);
                    self.merger.note(Note::Arrived(number));
                }
            }
            Step::Receive(delivered, consumed) => {
                let log = &mut self.log;
                log.delivered = (log.delivered + delivered).min(log.bytes.len());
                log.consumed = (log.consumed + consumed).min(log.delivered);
            }
            Step::Finish(number) if self.finished.contains_key(&u32::from(number)) => {}
            Step::Finish(number) => self.merger.note(Note::Finish(u32::from(number))),
            Step::Resume(number) => {
                self.finished.remove(&u32::from(number));
                self.merger.note(Note::Resume(u32::from(number)));
            }
        }
        self.advance();
    }

    fn advance(&mut self) {
        let before = self.log.bytes.len();
        let Turn { blocked, finished, too_large, ended } = self.merger.advance(&mut self.log);
        assert!(!ended && too_large.is_empty());
        self.blocked = blocked;
        for (number, position) in finished {
            assert_eq!(self.finished.insert(number, position), None, "reported twice");
            assert_eq!(position, self.rings[&number].0.borrow().complete as Position);
        }
        assert!(self.merger.in_table() <= self.table_limit);
        // No publisher has two turns before all queued publishers had one.
        let mut served = HashSet::new();
        for run in Runs::new(&self.log.bytes[before..]) {
            assert!(served.insert(run.publisher), "{} was served twice", run.publisher);
        }
        // A position that unblocks the table is still to come.
        if let Some(Blocked::ByTable(at)) = self.blocked {
            assert!(at as usize > self.log.consumed);
        }
    }

    /// The merged log has complete deliveries, those of each publisher in order and once.
    fn check(&mut self) {
        let mut found: HashMap<u32, Vec<u8>> = HashMap::new();
        let mut runs = Runs::new(&self.log.bytes);
        for run in runs.by_ref() {
            let bytes = found.entry(run.publisher).or_default();
            bytes.extend_from_slice(run.bytes);
            assert!(self.ends[&run.publisher].contains(&bytes.len()), "a delivery was split");
        }
        assert_eq!(runs.malformed(), None);
        for (number, ring) in &self.rings {
            let bytes = found.remove(number).unwrap_or_default();
            let ring = ring.0.borrow();
            assert_eq!(ring.bytes[..bytes.len()], bytes);
            assert_eq!(ring.released, bytes.len(), "exactly the merged bytes are released");
            let Some(reached) = self.merger.reached(*number, &self.log) else { continue };
            assert_eq!(reached.merged, bytes.len() as Position);
            assert!(reached.consumed <= reached.delivered && reached.delivered <= reached.merged);
        }
    }

    /// The subscribers receive everything, so all complete deliveries are merged.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            (self.log.delivered, self.log.consumed) = (self.log.bytes.len(), self.log.bytes.len());
            self.advance();
            if self.blocked.is_none() {
                break;
            }
        }
        assert_eq!(self.blocked, None);
        (self.log.delivered, self.log.consumed) = (self.log.bytes.len(), self.log.bytes.len());
        self.check();
        for (number, ring) in &self.rings {
            let complete = ring.0.borrow().complete;
            assert_eq!(ring.0.borrow().released, complete);
            if let Some(reached) = self.merger.reached(*number, &self.log) {
                assert_eq!(reached.consumed, complete as Position);
            }
        }
        assert_eq!(self.merger.in_table(), 0);
    }
}

proptest! {
    #[test]
    fn the_merged_log_is_an_interleaving_of_whole_deliveries(
        steps in steps(),
        // The largest run of a publisher must fit.
        window in 120 * 40 + RUN_HEADER_BYTES..12_000_usize,
        table_limit in 1..12_usize,
    ) {
        let mut world = World::new(window, table_limit);
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.drain();
    }

    #[test]
    fn a_small_window_stops_and_continues(steps in steps(), window in 60..400_usize) {
        let mut world = World::new(window, 1000);
        for step in &steps {
            // With a small window, a publisher writes only after its ring is empty.
            if let Step::Deliver(number, _) | Step::Part(number, _) = step {
                let ring = world.rings[&u32::from(*number)].0.borrow();
                if ring.complete > ring.released || ring.bytes.len() > ring.complete {
                    continue;
                }
            }
            if !matches!(step, Step::Part(..)) {
                world.step(step);
                world.check();
            }
        }
        world.drain();
    }
}

#[test]
fn a_publisher_without_room_stays_first_in_the_queue() {
    let mut world = World::new(100, 1000);
    world.step(&Step::Deliver(0, 80));
    world.step(&Step::Deliver(1, 50));
    world.step(&Step::Deliver(2, 1));
    assert_eq!(world.blocked, Some(Blocked::ByRing));
    assert_eq!(world.log.bytes.len(), 88);
    world.step(&Step::Receive(88, 88));
    let order: Vec<u32> = Runs::new(&world.log.bytes).map(|run| run.publisher).collect();
    assert_eq!(order, [0, 1, 2]);
    world.drain();
}

#[test]
fn the_disk_learns_of_all_publishers_that_wait_at_once() {
    let mut world = World::new(1000, 1);
    world.log.begun = Some(Vec::new());
    (0..3).for_each(|number| world.step(&Step::Deliver(number, 10)));
    world.drain();
    world.step(&Step::Deliver(1, 10));
    world.drain();
    assert_eq!(world.log.begun, Some(vec![vec![0], vec![1, 2]]));
}

#[test]
fn a_loss_of_the_disk_is_told_once_and_for_what_was_there() {
    let mut world = World::new(1000, 1000);
    let ask = |world: &mut World, position: u64, lost: u64| {
        let end = world.log.bytes.len() as Position;
        world.log.disk = Some(DiskState { end, durable: end, unsure: false, lost, archive: None });
        world.signals[&0].disk[0].store(position, Ordering::Release);
        world.merger.note(Note::AskedDisk(0));
        world.merger.settle_disk(&world.log);
        std::mem::take(&mut world.rings[&0].0.borrow_mut().told).join(" ")
    };
    world.step(&Step::Deliver(0, 10));
    assert_eq!(ask(&mut world, 10, 0), "Stored([10, 0, 0])");
    world.step(&Step::Deliver(0, 10));
    // Nobody asked when it happened. The answer for what comes later would be one for what is lost, too.
    world.step(&Step::Deliver(0, 10));
    assert_eq!(ask(&mut world, 30, 7), "Lost");
    world.step(&Step::Deliver(0, 10));
    assert_eq!(ask(&mut world, 40, 7), "Stored([40, 0, 0])");
    assert_eq!(ask(&mut world, 20, 7), "Lost");
    assert_eq!(ask(&mut world, 35, 7), "Stored([40, 0, 0])");
    assert_eq!(ask(&mut world, 40, 8), "Lost");
}

#[test]
fn the_disk_has_no_answer_for_what_is_said_to_be_at_another_broker() {
    let mut world = World::new(1000, 1000);
    let (ring, signals) = (Publisher::default(), Arc::<Signals>::default());
    ring.0.borrow_mut().bytes.resize(100, 0);
    (ring.0.borrow_mut().complete, ring.0.borrow_mut().released) = (100, 100);
    world.merger.join(0, ring.clone(), signals.clone(), 100);
    world.merger.note(Note::Lacks(0, 100));
    world.rings.insert(0, ring.clone());
    world.step(&Step::Deliver(0, 30));
    let asks = [
        ([0, 100, 0], "Lost"),
        ([0, 130, 0], "Stored([130, 130, 0])"),
        ([0, 90, 0], "Lost"),
        // What waits for the archive since before the move says nothing about the disk.
        ([0, 130, 90], "Missing Stored([130, 130, 0])"),
        ([0, 0, 130], "Stored([130, 130, 130])"),
    ];
    for (asked, told) in asks {
        let end = world.log.bytes.len() as Position;
        let archive = Some(end);
        world.log.disk = Some(DiskState { end, durable: end, unsure: false, lost: 0, archive });
        for (signal, asked) in signals.disk.iter().zip(asked) {
            signal.store(asked, Ordering::Release);
        }
        world.merger.note(Note::AskedDisk(0));
        world.merger.settle_disk(&world.log);
        assert_eq!(std::mem::take(&mut ring.0.borrow_mut().told).join(" "), told);
    }
}

/// What is missing may be of every publisher that has something here, also of one that comes back, or comes to a restarted broker.
#[test]
fn what_may_be_missing_in_the_archive_is_told_once() {
    let mut world = World::new(1000, 1000);
    let join = |world: &mut World, from: u64| {
        let (ring, signals) = (Publisher::default(), Arc::<Signals>::default());
        ring.0.borrow_mut().bytes.resize(from as usize, 0);
        (ring.0.borrow_mut().complete, ring.0.borrow_mut().released) = (from as usize, from as usize);
        world.merger.join(0, ring.clone(), signals.clone(), from);
        world.rings.insert(0, ring);
        world.signals.insert(0, signals);
    };
    let ask = |world: &mut World, position: u64| {
        let end = world.log.bytes.len() as Position;
        let (archive, lost) = (Some(end), 0);
        world.log.disk = Some(DiskState { end, durable: end, unsure: false, lost, archive });
        world.signals[&0].disk[2].store(position, Ordering::Release);
        world.merger.note(Note::AskedDisk(0));
        world.merger.settle_disk(&world.log);
        std::mem::take(&mut world.rings[&0].0.borrow_mut().told).join(" ")
    };
    world.step(&Step::Deliver(0, 10));
    assert_eq!(ask(&mut world, 10), "Stored([10, 10, 10])");
    world.log.missing = 5;
    world.merger.settle_disk(&world.log);
    world.step(&Step::Deliver(0, 10));
    // It may not have heard, if its connection ends before it asks again.
    assert_eq!(ask(&mut world, 20), "Missing");
    world.merger.note(Note::Again(0));
    assert_eq!(
        [20, 20, 10, 20].map(|at| ask(&mut world, at)).join(" "),
        format!("Missing {0} Missing {0}", "Stored([20, 20, 20])")
    );
    world.merger.note(Note::Again(0));
    assert_eq!(ask(&mut world, 20), "Stored([20, 20, 20])");
    // Nobody knows which of its bytes are missing. A new publisher has none.
    for (from, told) in [(20, "Missing"), (0, "Stored([10, 10, 10])")] {
        world.merger.note(Note::Remove(0));
        join(&mut world, from);
        world.step(&Step::Deliver(0, 10));
        assert_eq!(ask(&mut world, from + 10), told);
        assert_eq!(ask(&mut world, from + 10), format!("Stored([{0}, {0}, {0}])", from + 10));
    }
}

#[test]
fn a_publisher_that_is_stopped_twice_is_answered_twice() {
    let mut world = World::new(1000, 1000);
    world.step(&Step::Deliver(0, 10));
    (0..2).for_each(|_| world.merger.note(Note::Stop(0)));
    let stopped = [Some(10), None].map(|merged| StoppedSource { number: 0, merged, owes_loss: false });
    assert_eq!(world.merger.take_stopped(&world.log), stopped);
}

#[test]
fn a_publisher_that_is_stopped_hears_of_a_loss_of_the_disk() {
    for (before, lost) in [(true, true), (false, true), (false, false)] {
        let mut world = World::new(1000, 1000);
        let disk = DiskState { end: 10, durable: 10, unsure: false, lost: 0, archive: None };
        world.step(&Step::Deliver(0, 10));
        world.step(&Step::Deliver(1, 10));
        if before {
            // Another publisher asks, and this one never did.
            world.log.disk = Some(DiskState { lost: 7, ..disk });
            world.signals[&1].disk[0].store(10, Ordering::Release);
            world.merger.note(Note::AskedDisk(1));
            world.merger.settle_disk(&world.log);
            assert_eq!(world.rings[&1].0.borrow().told, ["Lost"]);
        }
        world.merger.note(Note::Stop(0));
        // The sync of the stop finds it.
        world.log.disk = Some(DiskState { lost: if lost { 7 } else { 0 }, ..disk });
        let stopped = StoppedSource { number: 0, merged: Some(10), owes_loss: lost };
        assert_eq!(world.merger.take_stopped(&world.log), [stopped]);
    }
}

#[test]
fn a_resumed_publisher_is_not_finished() {
    let mut world = World::new(20, 1000);
    world.step(&Step::Deliver(0, 12));
    world.step(&Step::Deliver(1, 5));
    world.step(&Step::Finish(1));
    assert!(world.finished.is_empty(), "the publisher waits for room");
    world.step(&Step::Resume(1));
    world.step(&Step::Receive(20, 20));
    assert!(world.finished.is_empty());
    world.step(&Step::Finish(1));
    assert_eq!(world.finished, HashMap::from([(1, 5)]));
    world.drain();
}

#[test]
fn a_finishing_publisher_with_a_loss_also_merges_the_data_behind_it() {
    let mut world = World::new(20, 1000);
    world.step(&Step::Deliver(0, 12));
    world.step(&Step::Deliver(1, 5));
    world.rings[&1].0.borrow_mut().loss = Some(5);
    world.step(&Step::Deliver(1, 7));
    world.step(&Step::Finish(1));
    world.step(&Step::Receive(100, 100));
    world.step(&Step::Receive(100, 100));
    assert_eq!(world.finished, HashMap::from([(1, 12)]));
    world.drain();
}

/// The publishers and lengths of the runs that a turn merges, when there is room at last.
fn runs_of_a_turn(world: &mut World) -> Vec<(u32, usize)> {
    world.log.window = 1000;
    let turn = world.merger.advance(&mut world.log);
    assert_eq!(turn.blocked, None);
    Runs::new(&world.log.bytes).map(|run| (run.publisher, run.bytes.len())).collect()
}

#[test]
fn a_large_ring_is_merged_in_turns_with_others() {
    let mut world = World::new(0, 1000);
    for (number, size) in [(0, 12), (0, 5), (1, 4)] {
        world.step(&Step::Deliver(number, size));
    }
    world.rings[&0].0.borrow_mut().cut = 12;
    assert_eq!(runs_of_a_turn(&mut world), [(0, 12), (1, 4), (0, 5)]);
    world.check();
}

#[test]
fn a_publisher_whose_run_is_too_large_is_removed_alone() {
    let mut world = World::new(0, 1000);
    for (number, size) in [(1, 3), (0, 12), (2, 4)] {
        world.step(&Step::Deliver(number, size));
    }
    (world.log.most, world.log.window) = (RUN_HEADER_BYTES + 11, 1000);
    let turn = world.merger.advance(&mut world.log);
    assert_eq!((turn.too_large, turn.blocked, turn.ended), (vec![0], None, false));
    assert_eq!(world.merger.reached(0, &world.log), None);
    world.step(&Step::Deliver(2, 4));
    let runs: Vec<_> = Runs::new(&world.log.bytes).map(|run| (run.publisher, run.bytes.len())).collect();
    assert_eq!(runs, [(1, 3), (2, 4), (2, 4)]);
}

#[test]
fn nothing_is_merged_after_the_end() {
    let mut world = World::new(100, 10);
    world.log.ended = true;
    world.rings[&0].0.borrow_mut().bytes.push(1);
    world.rings[&0].0.borrow_mut().complete = 1;
    world.merger.note(Note::Arrived(0));
    assert!(world.merger.advance(&mut world.log).ended);
    world.merger.clear();
    assert_eq!(world.merger.advance(&mut world.log), Turn::default());
}

#[test]
fn a_waiting_publisher_gets_reports_until_everything_is_confirmed() {
    let mut world = World::new(1000, 1000);
    world.step(&Step::Deliver(0, 30));
    world.step(&Step::Deliver(1, 30));
    let signals = world.signals[&1].clone();
    signals.delivered.store(30, Ordering::Release);
    signals.consumed.store(20, Ordering::Release);
    world.merger.note(Note::Asked(1));
    let confirmed = |world: &mut World| {
        world.merger.confirm(&world.log);
        let confirmed = world.rings[&1].0.borrow().confirmed;
        (confirmed.delivered, confirmed.consumed, world.merger.is_asked())
    };
    assert_eq!(confirmed(&mut world), (0, 0, true));
    assert_eq!(world.log.asked.get(), 1);
    world.step(&Step::Receive(76, 0));
    assert_eq!(confirmed(&mut world), (30, 0, true));
    world.step(&Step::Receive(0, 40));
    assert_eq!(confirmed(&mut world), (30, 0, true));
    world.step(&Step::Receive(0, 36));
    assert_eq!(confirmed(&mut world), (30, 30, false));
    assert_eq!(world.log.asked.get(), 3);
    assert_eq!(world.rings[&0].0.borrow().confirmed, Reached::default(), "this publisher did not ask");
}

#[test]
fn a_later_receiver_counts_for_later_data() {
    let mut world = World::new(1000, 1000);
    for number in [0, 1, 0] {
        world.step(&Step::Deliver(number, 30));
    }
    let run = 30 + RUN_HEADER_BYTES;
    world.step(&Step::Receive(run, run));
    world.merger.confirm(&world.log);
    // A receiver came at the end of the second of three runs.
    world.log.count = Coverage { receivers: 2, covered_from: 2 * run as Position, ..Coverage::ONE };
    for number in [0, 1, 2] {
        let signals = world.signals[&number].clone();
        signals.delivered.store(60, Ordering::Release);
        world.merger.note(Note::Asked(number));
    }
    world.step(&Step::Receive(2 * run, 2 * run));
    world.merger.confirm(&world.log);
    let told = [0, 1, 2].map(|number| {
        let ring = world.rings[&number].0.borrow();
        (ring.confirmed.delivered, ring.count.receivers, ring.count.covered_from)
    });
    assert_eq!(told, [(60, 2, 30), (30, 2, 30), (0, 2, 0)]);
}

#[test]
fn a_loss_counts_for_the_publishers_of_the_lost_data() {
    let mut world = World::new(1000, 1000);
    world.log.count = Coverage { receivers: 2, ..Coverage::default() };
    let ask = |world: &mut World, numbers: &[u32]| {
        for number in numbers {
            world.signals[number].delivered.store(1000, Ordering::Release);
            world.merger.note(Note::Asked(*number));
        }
        world.merger.confirm(&world.log);
    };
    let told = |world: &World, number: u32| {
        let ring = world.rings[&number].0.borrow();
        (ring.confirmed.delivered, ring.count)
    };
    let run = 30 + RUN_HEADER_BYTES;
    world.step(&Step::Deliver(0, 30));
    let two = Coverage { receivers: 2, ..Coverage::default() };
    assert_eq!(told(&world, 0), (0, two), "reported before data could be lost");
    // A subscriber loses the run of the second publisher, after the first run was consumed and before the third arrives.
    world.step(&Step::Receive(run, run));
    ask(&mut world, &[0]);
    world.step(&Step::Deliver(1, 30));
    world.log.count = Coverage { lost: 1, covered_from: 2 * run as Position, ..two };
    ask(&mut world, &[0, 1]);
    world.step(&Step::Deliver(2, 30));
    ask(&mut world, &[2]);
    assert_eq!(told(&world, 0), (30, two), "its data was consumed");
    assert_eq!(told(&world, 1), (0, Coverage { lost: 1, covered_from: 30, ..two }));
    assert_eq!(told(&world, 2), (0, two));
    // A new receiver is reported before more data of a publisher is merged.
    let three = Coverage { receivers: 3, lost: 1, covered_from: 2 * run as Position, ..Coverage::default() };
    world.log.count = three;
    world.step(&Step::Deliver(1, 30));
    assert_eq!(told(&world, 1), (0, Coverage { covered_from: 30, ..three }));
}

#[test]
fn receivers_without_losses_count_whatever_others_lose() {
    let mut world = World::new(1000, 1000);
    let run = (30 + RUN_HEADER_BYTES) as Position;
    let part = |since| [CoveragePart { covered_from: since, receivers: 1 }];
    let ask = |world: &mut World| {
        for number in [0, 1] {
            world.signals[&number].delivered.store(1000, Ordering::Release);
            world.merger.note(Note::Asked(number));
        }
        world.merger.confirm(&world.log);
        [0, 1].map(|number| world.rings[&number].0.borrow().count)
    };
    world.step(&Step::Deliver(0, 30));
    assert_eq!(ask(&mut world), [Coverage::ONE; 2]);
    // A new receiver loses all data that follows.
    let mut both = Coverage { receivers: 2, covered_from: run, ..Coverage::ONE };
    for round in 1..4 {
        world.step(&Step::Deliver(0, 30));
        world.step(&Step::Deliver(1, 30));
        both = Coverage { covered_from: (2 * round + 1) * run, lost: round as u32, ..both };
        world.log.count = both.with_parts(part(0));
        let told = [30 * (round + 1), 30 * round]
            .map(|since| Coverage { covered_from: since, ..both }.with_parts(part(0)));
        assert_eq!(ask(&mut world), told);
    }
    // Another receiver came after this data, and the first one has left.
    world.step(&Step::Receive(7 * run as usize, 7 * run as usize));
    world.step(&Step::Deliver(1, 30));
    world.log.count = Coverage { covered_from: 8 * run, left: 1, ..both }.with_parts(part(7 * run));
    let since =
        ask(&mut world).map(|count| count.parts.iter().map(|part| part.covered_from).collect::<Vec<_>>());
    assert_eq!(since, [vec![], vec![90]], "all have the further data of the first publisher");
}

#[test]
fn the_thread_that_leaves_an_event_handles_it() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, (events, inbox)) = (ROut::new(&ctx), inbox());
    out.create_buffer(1, 64 << 10).unwrap();
    let merge =
        MergedTopic::new(out.buffer(1).unwrap().writer().unwrap(), Growth::default(), 10, &events, None);
    let conn = Conn::connect_start(&ctx, "127.0.0.1:1", b"").unwrap();
    let ring = || Source::Ring(PublisherRing { rin: RIn::new(&conn), bid: 1, key: SessionKey::BROKER });
    for number in 0..3 {
        drop(Arrivals::join(&merge, number, ring(), 0));
        merge.post(Event::Note(Note::Arrived(number)));
        merge.finish(number);
    }
    let finished: Vec<_> = inbox.events.try_iter().collect();
    assert!(
        finished.iter().all(|event| matches!(event, inbox::Event::Merged { out_bid: 1, position: 0, .. }))
    );
    assert_eq!(finished.len(), 3, "all was handled here, as nobody else did");
    assert_eq!(merge.table_load(), TableLoad { entries: 0, limit: 10 });
    merge.close();
    merge.finish(0);
    assert!(inbox.events.try_recv().is_err(), "after the end");
}
