//! What the notes of an archive say of publishers, against what the disk knew when its log ended there.

use proptest::prelude::*;
use seglog_sim::SimStorage;

use super::super::super::trail::Note;
use super::*;

/// A snapshot each four kibibytes, also of the journal.
const SMALL: StoreOptions =
    StoreOptions { max_bytes: Some(16 << 10), sync: Duration::from_secs(3_600), is_shared: true, ..OPTIONS };

/// Where a publisher begins that is new.
const FIRST: Position = 50;

/// How far each publisher is.
type Positions = Vec<(u32, Position)>;

/// How the broker is started again, if it is.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Not,
    InOrder,
    Killed,
    Machine,
}

/// A disk, and how far each publisher was at each end of its log.
struct World {
    disk: SimStorage,
    options: StoreOptions,
    crashes: u32,
    store: Option<Store>,
    trail: Trail,
    ends: Vec<(Position, Positions)>,
    archived: Position,
}

fn positions(places: &[Place]) -> Positions {
    places.iter().map(|place| (place.number, place.position)).collect()
}

fn open(disk: &SimStorage, options: &StoreOptions) -> (Store, Recovered) {
    Store::open_on(Arc::new(disk.clone()), Path::new("topic"), &topic(), options).unwrap()
}

impl World {
    fn new(options: StoreOptions) -> Self {
        let disk = SimStorage::new(3);
        let (store, _) = open(&disk, &options);
        let trail = store.trail(1, 0, u64::MAX).unwrap();
        Self { disk, options, crashes: 0, store: Some(store), trail, ends: Vec::new(), archived: 0 }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    /// A publisher writes a run, after some bytes that it has lost.
    fn write(&mut self, number: u32, len: usize, lost: u64) {
        let store = self.store();
        let known = store.places.all().into_iter().find(|known| known.number == number);
        append(store, place(number, known.map_or(FIRST, |known| known.position + lost)), &vec![0; len]);
        let truth = (store.log.end(), positions(&store.places.all()));
        self.ends.push(truth);
    }

    fn stop(&mut self, stop: Stop) {
        match stop {
            Stop::Not => return,
            Stop::InOrder => drop(self.store.take()),
            Stop::Killed => self.kill(),
            Stop::Machine => {
                self.disk.crash();
                self.crashes += 1;
                self.store = None;
            }
        }
        let (store, recovered) = open(&self.disk, &self.options);
        let mut reader = store.reader();
        self.ends.retain(|(end, _)| matches!(reader.read(end - 1), Ok(Read::Batch(_))));
        let truth = (store.log.end(), positions(&recovered.places));
        if self.ends.last().is_none_or(|(end, _)| *end < truth.0) && truth.0 > 0 {
            self.ends.push(truth);
        }
        self.trail = store.trail(2, self.archived, u64::MAX).unwrap();
        self.store = Some(store);
    }

    /// The process ends, and the files are as they are.
    fn kill(&mut self) {
        let left = SimStorage::new(4);
        left.set_clock(self.disk.now());
        (0..self.crashes).for_each(|_| left.crash());
        for part in ["log", "publishers"] {
            for name in self.disk.list(&Path::new("topic").join(part)).unwrap() {
                let path = format!("topic/{part}/{name}");
                self.disk.contents(&path).into_iter().for_each(|bytes| left.set_contents(&path, bytes));
            }
        }
        (self.disk, self.store) = (left, None);
    }

    /// Copies up to one of the next ends. Returns what the note says, and what is true.
    fn copy(&mut self, ends: usize, is_taken: bool) -> Option<(Vec<Place>, Positions)> {
        let archived = self.archived;
        let next: Vec<_> = self.ends.iter().filter(|(end, _)| *end > archived).take(ends).collect();
        let (end, truth) = (*next.last()?).clone();
        let note = self.note(end).expect("nothing is lacking");
        // A call that failed is made again.
        if is_taken {
            self.trail.passed(end);
            self.archived = end;
        }
        Some((note, truth))
    }

    /// The publishers of the note of a batch that ends here, if they are known.
    fn note(&mut self, end: Position) -> Option<Vec<Place>> {
        let store = self.store.as_mut().unwrap();
        store.log.sync().unwrap();
        let note = self.trail.note(end, 0, &mut store.reader().durable_only()).unwrap()?;
        Some(Note::decode(&note).unwrap().places)
    }

    fn places(&mut self) -> Vec<Place> {
        self.store().places.all()
    }

    /// Changes a byte of the first run.
    fn damage(&self) {
        let name =
            self.disk.list(Path::new("topic/log")).unwrap().into_iter().find(|name| name.ends_with(".seg"));
        let path = format!("topic/log/{}", name.unwrap());
        let mut bytes = self.disk.contents(&path).unwrap();
        let at = bytes.windows(100).position(|some| some == [0; 100]).unwrap();
        bytes[at + 50] ^= 1;
        self.disk.set_contents(&path, bytes);
    }

    fn journal_bytes(&self) -> usize {
        let folder = Path::new("topic/publishers");
        let names = self.disk.list(folder).unwrap();
        names.iter().filter_map(|name| self.disk.contents(folder.join(name))).map(|bytes| bytes.len()).sum()
    }
}

fn stops() -> impl Strategy<Value = Stop> {
    prop_oneof![12 => Just(Stop::Not), 1 => Just(Stop::InOrder), 1 => Just(Stop::Killed), 1 => Just(Stop::Machine)]
}

proptest! {
    /// Whatever was copied when, however often the broker or its machine was started again, and whatever publishers have lost: a note says where
    /// each publisher is that the archive has bytes of. One without bytes there may be known or not, and is where it has begun.
    #[test]
    fn a_note_says_where_the_publishers_are(
        steps in proptest::collection::vec(
            ((0u32..4, 1usize..900, 0u64..3), stops(), 0u8..6, 1usize..5, any::<bool>()),
            1..60,
        ),
    ) {
        let mut world = World::new(SMALL);
        for ((number, len, lost), stop, what, ends, is_taken) in steps {
            world.write(number, len, lost);
            world.stop(stop);
            if what <= 2 && let Some((known, truth)) = world.copy(ends, is_taken) {
                let known = positions(&known);
                prop_assert!(truth.iter().all(|own| known.contains(own)), "{:?} {:?}", known, truth);
                let others = known.iter().filter(|own| !truth.contains(own));
                prop_assert!(others.into_iter().all(|(_, own)| *own == FIRST), "{:?} {:?}", known, truth);
            }
        }
    }

    /// The same, where runs become too old at any time, archived or not: a publisher is nowhere before its place, and lacks what is between.
    #[test]
    fn no_publisher_is_asked_twice_for_runs_that_are_too_old(
        steps in proptest::collection::vec(
            ((0u32..4, 1usize..900, 0u64..3), stops(), 0u8..6, 1usize..5, proptest::bool::weighted(0.1)),
            1..60,
        ),
    ) {
        let mut world = World::new(StoreOptions { max_age: Some(AGE), ..SMALL });
        for ((number, len, lost), stop, what, ends, is_old) in steps {
            world.write(number, len, lost);
            if is_old {
                world.disk.advance(3 * AGE.as_millis() as u64);
                world.store().apply_retention().unwrap();
            }
            let before = positions(&world.places());
            world.stop(stop);
            let after = positions(&world.places());
            prop_assert!(matches!(stop, Stop::Machine) || before == after, "{:?} {:?}", before, after);
            if what <= 2 && let Some((known, truth)) = world.copy(ends, true) {
                for (number, own) in &truth {
                    let place = known.iter().find(|place| place.number == *number);
                    let is_right = |place: &Place| {
                        place.position == *own || place.position > *own && place.lacks_below == place.position
                    };
                    prop_assert!(place.is_some_and(is_right), "{:?} {:?}", known, truth);
                }
            }
        }
    }
}

const AGE: Duration = Duration::from_secs(60);

/// Runs that nobody has archived yet are too old, and no snapshot is behind them. Neither a broker that is started again nor a note has a
/// publisher before where it is: it would send what is in its ring once more.
#[test]
fn runs_that_are_too_old_go_when_the_journal_says_where_publishers_are() {
    for stop in [Stop::Not, Stop::InOrder, Stop::Killed, Stop::Machine] {
        let mut world = World::new(StoreOptions { max_bytes: None, max_age: Some(AGE), ..SMALL });
        (0..5).for_each(|_| world.write(0, 300, 0));
        let known = world.places();
        world.disk.advance(3 * AGE.as_millis() as u64);
        world.store().apply_retention().unwrap();
        let first = world.store().log.first();
        assert_eq!(first, 5 * 308, "all is too old");
        world.stop(stop);
        assert_eq!(positions(&world.places()), positions(&known), "{stop:?}");
        world.write(0, 300, 0);
        let end = world.store().log.end();
        assert_eq!(positions(&world.note(end).unwrap()), [(0, FIRST + 1_800)], "{stop:?}");
    }
}

/// The disk has lost a run that the archive does not have yet.
#[test]
fn a_note_waits_for_a_snapshot_where_runs_are_damaged() {
    let mut world = World::new(SMALL);
    (0..3).for_each(|_| world.write(0, 300, 0));
    world.damage();
    world.store().log.sync().unwrap();
    assert_eq!(world.note(616), None, "nobody knows here whose they were");
    world.store().apply_retention().unwrap();
    // The broker knows how far the publisher was in the end. What the archive lacks then is asked for by nobody.
    let end = FIRST + 900;
    assert_eq!(world.note(616).unwrap(), [Place { lacks_below: end, ..place(0, end) }]);
    world.trail.passed(616);
    assert_eq!(positions(&world.note(924).unwrap()), [(0, end)]);
    world.stop(Stop::Killed);
    assert_eq!(positions(&world.places()), [(0, end)]);
}

#[test]
fn publishers_lack_what_was_damaged_before_the_broker_was_started() {
    let mut world = World::new(SMALL);
    (0..3).for_each(|_| world.write(0, 300, 0));
    world.damage();
    world.stop(Stop::Killed);
    let known = world.places();
    assert!(known[0].position < FIRST + 900 && known[0].lacks_below == known[0].position, "{known:?}");
}

/// The store was away, its journal filled the disk, and then the archive has got all.
#[test]
fn a_full_disk_gets_the_room_of_a_journal_that_the_archive_has_passed() {
    let mut world = World::new(SMALL);
    (0..400).for_each(|_| world.write(0, 900, 0));
    let end = world.store().log.end();
    world.note(end).unwrap();
    world.trail.passed(end);
    world.disk.set_capacity(world.disk.used());
    let next = place(0, world.places()[0].position);
    let run = [&run_header(0, 100).unwrap()[..], &[0; 100]].concat();
    assert!(world.store().append(next, 100, &run).is_err(), "the disk is full");
    world.store().apply_retention().unwrap();
    world.store().append(next, 100, &run).unwrap();
}

#[test]
fn a_topic_without_messages_is_opened_and_closed_without_growing() {
    let mut world = World::new(SMALL);
    world.write(0, 300, 0);
    world.stop(Stop::InOrder);
    let bytes = world.journal_bytes();
    (0..100).for_each(|_| world.stop(Stop::InOrder));
    assert_eq!(world.journal_bytes(), bytes);
    world.write(0, 300, 0);
    world.stop(Stop::InOrder);
    assert_eq!(positions(&world.places()), [(0, FIRST + 600)]);
}

#[test]
fn the_journal_of_a_topic_that_nobody_shares_has_no_smaller_segments() {
    let (mut store, _) = open(&SimStorage::new(3), &StoreOptions { is_shared: false, ..SMALL });
    for round in 0..400 {
        append(&mut store, place(0, round * 900), &[0; 900]);
    }
    assert_eq!((store.journal.first(), store.journal.stats().segments), (0, 1));
}
