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
    crashes: u32,
    store: Option<Store>,
    trail: Trail,
    ends: Vec<(Position, Vec<(u32, Position)>)>,
    archived: Position,
}

fn positions(places: &[Place]) -> Vec<(u32, Position)> {
    places.iter().map(|place| (place.number, place.position)).collect()
}

fn open(disk: &SimStorage) -> (Store, Recovered) {
    Store::open_on(Arc::new(disk.clone()), Path::new("topic"), &topic(), &SMALL).unwrap()
}

impl World {
    fn new() -> Self {
        let disk = SimStorage::new(3);
        let (store, _) = open(&disk);
        let trail = store.trail(1, 0, u64::MAX).unwrap();
        Self { disk, crashes: 0, store: Some(store), trail, ends: Vec::new(), archived: 0 }
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
        let (store, recovered) = open(&self.disk);
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
    fn copy(&mut self, ends: usize, is_taken: bool) -> Option<[Vec<(u32, Position)>; 2]> {
        let archived = self.archived;
        let next: Vec<_> = self.ends.iter().filter(|(end, _)| *end > archived).take(ends).collect();
        let (end, truth) = (*next.last()?).clone();
        let store = self.store.as_mut().unwrap();
        store.log.sync().unwrap();
        let note = self.trail.note(end, 0, &mut store.reader().durable_only()).unwrap();
        // A call that failed is made again.
        if is_taken {
            self.trail.passed(end);
            self.archived = end;
        }
        Some([positions(&Note::decode(&note).unwrap().places), truth])
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
        let mut world = World::new();
        for ((number, len, lost), stop, what, ends, is_taken) in steps {
            world.write(number, len, lost);
            world.stop(stop);
            if what <= 2 && let Some([known, truth]) = world.copy(ends, is_taken) {
                prop_assert!(truth.iter().all(|own| known.contains(own)), "{:?} {:?}", known, truth);
                let others = known.iter().filter(|own| !truth.contains(own));
                prop_assert!(others.into_iter().all(|(_, own)| *own == FIRST), "{:?} {:?}", known, truth);
            }
        }
    }
}
