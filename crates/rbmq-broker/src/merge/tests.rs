//! The moving engine against a plain model: publishers are lists of deliveries, the merged log is a list of runs.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use rbmq_wire::{RUN_HEADER_BYTES, Runs};
use rocketbufs::{Config, Conn, Context, Coverage, CoveragePart, Position, RIn, ROut};

use super::super::inbox::inbox;
use super::mover::{Log, Mover, Note, Piece, Reached, Refusal, Signals, Source, Turn, Waits};
use super::{RingOf, TopicMerge, lock};

/// A publisher's ring at the broker: what is complete, and from where on it was not given back.
#[derive(Default)]
struct Ring {
    bytes: Vec<u8>,
    complete: usize,
    given_back: usize,
    /// Something is missing here: nothing is handed out across it.
    loss: Option<usize>,
    confirmed: Reached,
    count: Coverage,
}

#[derive(Clone, Default)]
struct Publisher(Rc<RefCell<Ring>>);

struct Whole {
    ring: Publisher,
    bytes: Vec<u8>,
    end: usize,
}

impl Source for Publisher {
    type Piece = Whole;

    fn complete(&self) -> Option<Whole> {
        let ring = self.0.borrow();
        let end = ring.loss.filter(|loss| *loss > ring.given_back).unwrap_or(ring.complete);
        let bytes = ring.bytes[ring.given_back..end].to_vec();
        (!bytes.is_empty()).then(|| Whole { ring: self.clone(), bytes, end })
    }

    fn confirm(&self, reached: Reached, count: Coverage) {
        let mut ring = self.0.borrow_mut();
        assert!(reached.delivered >= ring.confirmed.delivered && reached.consumed >= ring.confirmed.consumed);
        ring.confirmed = reached;
        ring.count = count;
    }
}

impl Piece for Whole {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn end(&self) -> Position {
        self.end as Position
    }

    fn give_back(self) {
        self.ring.0.borrow_mut().given_back = self.end;
    }
}

/// The merged log, of which so many bytes fit in front of the slowest subscriber.
struct Merged {
    bytes: Vec<u8>,
    window: usize,
    delivered: usize,
    consumed: usize,
    count: Coverage,
    over: bool,
    asked: Cell<u32>,
}

impl Log for Merged {
    fn append(&mut self, parts: &[&[u8]]) -> Result<Position, Refusal> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if self.over {
            return Err(Refusal::Over);
        }
        if self.bytes.len() + len > self.delivered + self.window {
            return Err(Refusal::Full);
        }
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(self.bytes.len() as Position)
    }

    fn confirmed(&self) -> (Position, Position, Coverage) {
        (self.delivered as Position, self.consumed as Position, self.count)
    }

    fn ask(&self, delivered: bool, consumed: bool) {
        assert!(delivered || consumed);
        self.asked.set(self.asked.get() + 1);
    }
}

/// What happens.
#[derive(Debug, Clone)]
enum Step {
    /// A whole delivery arrives.
    Deliver(u8, usize),
    /// A part of one arrives, of which the rest may never come.
    Part(u8, usize),
    /// The slowest subscriber receives so many bytes, and gives so many back.
    Receive(usize, usize),
    /// Nothing more comes of a publisher, or it is back.
    Last(u8),
    Stays(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let publisher = 0..6_u8;
    let step = prop_oneof![
        6 => (publisher.clone(), 1..40_usize).prop_map(|(p, n)| Step::Deliver(p, n)),
        2 => (publisher.clone(), 1..40_usize).prop_map(|(p, n)| Step::Part(p, n)),
        4 => (0..120_usize, 0..120_usize).prop_map(|(a, b)| Step::Receive(a, b)),
        1 => publisher.clone().prop_map(Step::Last),
        1 => publisher.prop_map(Step::Stays),
    ];
    proptest::collection::vec(step, 1..120)
}

struct World {
    mover: Mover<Publisher>,
    log: Merged,
    rings: HashMap<u32, Publisher>,
    signals: HashMap<u32, Arc<Signals>>,
    /// Ends of deliveries of each.
    ends: HashMap<u32, HashSet<usize>>,
    done: HashMap<u32, Position>,
    table_limit: usize,
    waits: Option<Waits>,
}

impl World {
    fn new(window: usize, table_limit: usize) -> Self {
        let log = Merged {
            bytes: Vec::new(),
            window,
            delivered: 0,
            consumed: 0,
            count: Coverage::ONE,
            over: false,
            asked: Cell::new(0),
        };
        let mut world = Self {
            mover: Mover::new(table_limit),
            log,
            rings: HashMap::new(),
            signals: HashMap::new(),
            ends: HashMap::new(),
            done: HashMap::new(),
            table_limit,
            waits: None,
        };
        for number in 0..6 {
            let ring = Publisher::default();
            let signals = Arc::<Signals>::default();
            world.mover.join(number, ring.clone(), signals.clone(), 0);
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
                if self.done.contains_key(&number) {
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
                    self.mover.note(Note::Arrived(number));
                }
            }
            Step::Receive(delivered, consumed) => {
                let log = &mut self.log;
                log.delivered = (log.delivered + delivered).min(log.bytes.len());
                log.consumed = (log.consumed + consumed).min(log.delivered);
            }
            Step::Last(number) if self.done.contains_key(&u32::from(number)) => {}
            Step::Last(number) => self.mover.note(Note::Last(u32::from(number))),
            Step::Stays(number) => {
                self.done.remove(&u32::from(number));
                self.mover.note(Note::Stays(u32::from(number)));
            }
        }
        self.advance();
    }

    fn advance(&mut self) {
        let before = self.log.bytes.len();
        let Turn { waits, done, over } = self.mover.advance(&mut self.log);
        assert!(!over);
        self.waits = waits;
        for (number, position) in done {
            assert_eq!(self.done.insert(number, position), None, "told twice");
            assert_eq!(position, self.rings[&number].0.borrow().complete as Position);
        }
        assert!(self.mover.in_table() <= self.table_limit);
        // Nobody has two turns before everybody else in line has had one.
        let mut served = HashSet::new();
        for run in Runs::new(&self.log.bytes[before..]) {
            assert!(served.insert(run.publisher), "{} was served twice", run.publisher);
        }
        // What waits for the table is told a position that can still come.
        if let Some(Waits::Consumed(at)) = self.waits {
            assert!(at as usize > self.log.consumed);
        }
    }

    /// The merged log is an interleaving of whole deliveries, each publisher's in order and once.
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
            assert_eq!(ring.given_back, bytes.len(), "given back is what was moved");
            let Some(reached) = self.mover.reached(*number, &self.log) else { continue };
            assert_eq!(reached.moved, bytes.len() as Position);
            assert!(reached.consumed <= reached.delivered && reached.delivered <= reached.moved);
        }
    }

    /// The subscribers receive everything: so everything complete comes out.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            (self.log.delivered, self.log.consumed) = (self.log.bytes.len(), self.log.bytes.len());
            self.advance();
            if self.waits.is_none() {
                break;
            }
        }
        assert_eq!(self.waits, None);
        (self.log.delivered, self.log.consumed) = (self.log.bytes.len(), self.log.bytes.len());
        self.check();
        for (number, ring) in &self.rings {
            let complete = ring.0.borrow().complete;
            assert_eq!(ring.0.borrow().given_back, complete);
            if let Some(reached) = self.mover.reached(*number, &self.log) {
                assert_eq!(reached.consumed, complete as Position);
            }
        }
        assert_eq!(self.mover.in_table(), 0);
    }
}

proptest! {
    #[test]
    fn the_merged_log_is_an_interleaving_of_whole_deliveries(
        steps in steps(),
        // A run of all that one publisher can have must fit.
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
    fn a_small_window_stops_and_goes_on(steps in steps(), window in 60..400_usize) {
        let mut world = World::new(window, 1000);
        for step in &steps {
            // In so small a window a publisher gives back what it has before it writes more.
            if let Step::Deliver(number, _) | Step::Part(number, _) = step {
                let ring = world.rings[&u32::from(*number)].0.borrow();
                if ring.complete > ring.given_back || ring.bytes.len() > ring.complete {
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
fn what_does_not_fit_stays_first_in_line() {
    let mut world = World::new(100, 1000);
    world.step(&Step::Deliver(0, 80));
    world.step(&Step::Deliver(1, 50));
    world.step(&Step::Deliver(2, 1));
    assert_eq!(world.waits, Some(Waits::Room));
    assert_eq!(world.log.bytes.len(), 88);
    world.step(&Step::Receive(88, 88));
    let order: Vec<u32> = Runs::new(&world.log.bytes).map(|run| run.publisher).collect();
    assert_eq!(order, [0, 1, 2]);
    world.drain();
}

#[test]
fn a_publisher_that_stays_is_not_done() {
    let mut world = World::new(20, 1000);
    world.step(&Step::Deliver(0, 12));
    world.step(&Step::Deliver(1, 5));
    world.step(&Step::Last(1));
    assert!(world.done.is_empty(), "it waits for room");
    world.step(&Step::Stays(1));
    world.step(&Step::Receive(20, 20));
    assert!(world.done.is_empty());
    world.step(&Step::Last(1));
    assert_eq!(world.done, HashMap::from([(1, 5)]));
    world.drain();
}

#[test]
fn one_that_has_a_loss_in_its_ring_is_done_when_what_is_behind_it_was_moved_too() {
    let mut world = World::new(20, 1000);
    world.step(&Step::Deliver(0, 12));
    world.step(&Step::Deliver(1, 5));
    world.rings[&1].0.borrow_mut().loss = Some(5);
    world.step(&Step::Deliver(1, 7));
    world.step(&Step::Last(1));
    world.step(&Step::Receive(100, 100));
    world.step(&Step::Receive(100, 100));
    assert_eq!(world.done, HashMap::from([(1, 12)]));
    world.drain();
}

#[test]
fn nothing_moves_after_the_end() {
    let mut world = World::new(100, 10);
    world.log.over = true;
    world.rings[&0].0.borrow_mut().bytes.push(1);
    world.rings[&0].0.borrow_mut().complete = 1;
    world.mover.note(Note::Arrived(0));
    assert!(world.mover.advance(&mut world.log).over);
    world.mover.clear();
    assert_eq!(world.mover.advance(&mut world.log), Turn::default());
}

#[test]
fn who_waits_for_confirmation_is_told_until_it_has_it() {
    let mut world = World::new(1000, 1000);
    world.step(&Step::Deliver(0, 30));
    world.step(&Step::Deliver(1, 30));
    let signals = world.signals[&1].clone();
    signals.delivered.store(30, Ordering::SeqCst);
    signals.consumed.store(20, Ordering::SeqCst);
    world.mover.note(Note::Asked(1));
    let confirmed = |world: &mut World| {
        world.mover.confirm(&world.log);
        let confirmed = world.rings[&1].0.borrow().confirmed;
        (confirmed.delivered, confirmed.consumed, world.mover.is_asked())
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
    assert_eq!(world.rings[&0].0.borrow().confirmed, Reached::default(), "it did not ask");
}

#[test]
fn who_came_later_is_said_to_have_what_came_after() {
    let mut world = World::new(1000, 1000);
    for number in [0, 1, 0] {
        world.step(&Step::Deliver(number, 30));
    }
    let run = 30 + RUN_HEADER_BYTES;
    world.step(&Step::Receive(run, run));
    world.mover.confirm(&world.log);
    // Of three runs the second ends where somebody came.
    world.log.count = Coverage { receivers: 2, covered_from: 2 * run as Position, ..Coverage::ONE };
    for number in [0, 1, 2] {
        let signals = world.signals[&number].clone();
        signals.delivered.store(60, Ordering::SeqCst);
        world.mover.note(Note::Asked(number));
    }
    world.step(&Step::Receive(2 * run, 2 * run));
    world.mover.confirm(&world.log);
    let told = [0, 1, 2].map(|number| {
        let ring = world.rings[&number].0.borrow();
        (ring.confirmed.delivered, ring.count.receivers, ring.count.covered_from)
    });
    assert_eq!(told, [(60, 2, 30), (30, 2, 30), (0, 2, 0)]);
}

#[test]
fn a_loss_counts_for_those_who_lost_something_and_for_no_more_subscribers() {
    let mut world = World::new(1000, 1000);
    world.log.count = Coverage { receivers: 2, ..Coverage::default() };
    let ask = |world: &mut World, numbers: &[u32]| {
        for number in numbers {
            world.signals[number].delivered.store(1000, Ordering::SeqCst);
            world.mover.note(Note::Asked(*number));
        }
        world.mover.confirm(&world.log);
    };
    let told = |world: &World, number: u32| {
        let ring = world.rings[&number].0.borrow();
        (ring.confirmed.delivered, ring.count)
    };
    let run = 30 + RUN_HEADER_BYTES;
    world.step(&Step::Deliver(0, 30));
    let two = Coverage { receivers: 2, ..Coverage::default() };
    assert_eq!(told(&world, 0), (0, two), "told before any of it could be lost");
    // One subscriber loses what the second has, when the first's is consumed and before the third comes.
    world.step(&Step::Receive(run, run));
    ask(&mut world, &[0]);
    world.step(&Step::Deliver(1, 30));
    world.log.count = Coverage { lost: 1, covered_from: 2 * run as Position, ..two };
    ask(&mut world, &[0, 1]);
    world.step(&Step::Deliver(2, 30));
    ask(&mut world, &[2]);
    assert_eq!(told(&world, 0), (30, two), "it had been consumed");
    assert_eq!(told(&world, 1), (0, Coverage { lost: 1, covered_from: 30, ..two }));
    assert_eq!(told(&world, 2), (0, two));
    // Who came meanwhile is told of before more of a publisher is moved.
    let three = Coverage { receivers: 3, lost: 1, covered_from: 2 * run as Position, ..Coverage::default() };
    world.log.count = three;
    world.step(&Step::Deliver(1, 30));
    assert_eq!(told(&world, 1), (0, Coverage { covered_from: 30, ..three }));
}

#[test]
fn those_who_lose_nothing_count_for_each_publisher_whatever_others_lose() {
    let mut world = World::new(1000, 1000);
    let run = (30 + RUN_HEADER_BYTES) as Position;
    let part = |since| [CoveragePart { covered_from: since, receivers: 1 }];
    let ask = |world: &mut World| {
        for number in [0, 1] {
            world.signals[&number].delivered.store(1000, Ordering::SeqCst);
            world.mover.note(Note::Asked(number));
        }
        world.mover.confirm(&world.log);
        [0, 1].map(|number| world.rings[&number].0.borrow().count)
    };
    world.step(&Step::Deliver(0, 30));
    assert_eq!(ask(&mut world), [Coverage::ONE; 2]);
    // Somebody comes who loses what follows, again and again.
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
    // Of another who came behind all of that, and the first has gone.
    world.step(&Step::Receive(7 * run as usize, 7 * run as usize));
    world.step(&Step::Deliver(1, 30));
    world.log.count = Coverage { covered_from: 8 * run, left: 1, ..both }.with_parts(part(7 * run));
    let since =
        ask(&mut world).map(|count| count.parts.iter().map(|part| part.covered_from).collect::<Vec<_>>());
    assert_eq!(since, [vec![], vec![90]], "all have what is to come of the first");
}

#[test]
fn what_was_left_for_whoever_took_a_publisher_up_is_looked_at() {
    let ctx = Context::new(Config::default()).unwrap();
    let (out, (events, _inbox)) = (ROut::new(&ctx), inbox());
    out.create_buffer(1, 64 << 10).unwrap();
    let merge = TopicMerge::new(&out, out.writer(1).unwrap(), 1, 10, &events);
    // Somebody found the state taken.
    lock(&merge.notes).push(Note::Arrived(0));
    let conn = Conn::connect_start(&ctx, "127.0.0.1:1", b"").unwrap();
    merge.join(1, RingOf { rin: RIn::new(&conn), bid: 1 }, 0);
    assert!(lock(&merge.notes).is_empty());
}
