//! How far the publishers of a topic are in its archive: what the broker needs that goes on there.
//!
//! ```text
//!   disk     ──────────────┤A├─┤B├──┤A├──▶     the runs say who wrote how much, and the entries who began where
//!   archive  ─────────┤ batch ├▶               each batch has a note: A is at 1135 and B at 72 where the batch ends
//! ```
//!
//! The copying end is behind the disk. It begins with what the disk has of each publisher, and takes away the runs that the archive does not
//! have yet; then it adds the runs of each batch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use locks::Mutex;
use rbmq_wire::Runs;
use rocketbufs::Position;
use rocketbufs::fields::{FieldError, Reader as FieldReader};
use seglog::{Read, ReadError, Reader};

use super::places::{Entry, Journaled, Place};

/// The most publishers that may begin before their bytes are in the archive.
const MAX_BEGUN: usize = 10_000;

/// The most publishers of a note, of which a quarter more may stay: each object has them, of 72 bytes each.
const MAX_NOTED: usize = 2_900;

/// The longest note that this broker writes.
const MAX_NOTE_BYTES: usize = 256 << 10;

const _: () = assert!((MAX_NOTED + MAX_NOTED / 4) * 72 + 100 <= MAX_NOTE_BYTES);

/// What is kept with a batch of the archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// The term of the broker that has written it.
    pub(crate) term: u64,
    /// What is below may be missing in the archive.
    pub(crate) missing_below: Position,
    /// A number that no publisher has had.
    pub(crate) next_number: u32,
    /// The publishers.
    pub(crate) places: Vec<Place>,
}

impl Note {
    pub(crate) fn encode(self, at: Position) -> Vec<u8> {
        let Self { term, missing_below, next_number, places } = self;
        let snapshot = Entry::Snapshot { at, next_number, boot: 0, clean: true, places };
        [&term.to_le_bytes()[..], &missing_below.to_le_bytes(), &snapshot.encode()].concat()
    }

    /// Reads a note. One that is empty says nothing.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, FieldError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = FieldReader::new(bytes);
        let (term, missing_below) = (r.u64()?, r.u64()?);
        match Entry::decode(&bytes[16..])? {
            Entry::Snapshot { next_number, places, .. } => {
                Ok(Self { term, missing_below, next_number, places })
            }
            _ => Err(FieldError::value("type of entry", 0u8)),
        }
    }
}

/// The publishers that have begun on the disk, and whose bytes the archive does not have yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun {
    entries: Arc<Mutex<VecDeque<Entry>>>,
    /// Those that the copying end has taken, and that begin behind the archive.
    taken: Arc<AtomicUsize>,
    /// Where the archive ended when the log was opened.
    archived: Position,
    /// What this broker may write is below.
    limit: Position,
}

impl Begun {
    /// None has begun behind the end of an archive.
    pub(crate) fn of(archived: Position, limit: Position) -> Self {
        Self { archived, limit, ..Self::default() }
    }

    /// What this broker may write is below.
    pub(crate) fn limit(&self) -> Position {
        self.limit
    }

    /// Where the archive ended when the log was opened.
    pub(crate) fn archived(&self) -> Position {
        self.archived
    }

    pub(crate) fn add(&self, entry: Entry) {
        self.entries.lock().push_back(entry);
    }

    /// Whether no more may begin before the archive has more.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.lock().len() + self.taken.load(Ordering::Relaxed) >= MAX_BEGUN
    }
}

/// The publishers at the end of the archive.
#[derive(Debug)]
pub(crate) struct Trail {
    term: u64,
    begun: Begun,
    /// The most publishers of a note: those that wrote last. Others are taken for new ones by the broker that goes on, as by one that is started again.
    most: usize,
    known: Known,
    /// Those behind the batch that is on its way.
    next: Option<Known>,
}

#[derive(Debug, Clone)]
struct Known {
    at: Position,
    journaled: Journaled,
}

impl Trail {
    /// The disk has these publishers at a position, at most so many. What begins from now on is in `begun`.
    pub(crate) fn new(term: u64, begun: Begun, at: Position, note: Note, most: usize) -> Self {
        let mut journaled = Journaled::default();
        let Note { next_number, places, .. } = note;
        journaled.add(Entry::Snapshot { at, next_number, boot: 0, clean: true, places });
        let most = most.min(MAX_NOTED);
        Self { term, begun, most, known: Known { at, journaled }, next: None }
    }

    /// Those that may begin.
    pub(crate) fn begun(&self) -> &Begun {
        &self.begun
    }

    /// The note of a batch that ends here, where the archive has ended at `from`.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(crate) fn note(
        &mut self,
        from: Position,
        end: Position,
        missing_below: Position,
        disk: &mut Reader,
    ) -> Result<Vec<u8>, ReadError> {
        self.take_begun();
        self.rewind(from, disk)?;
        let mut next = self.known.clone();
        next.advance(end, disk)?;
        let (next_number, places) = next.journaled.noted(self.most);
        self.next = Some(next);
        Ok(Note { term: self.term, missing_below, next_number, places }.encode(end))
    }

    /// The archive ends here.
    pub(crate) fn passed(&mut self, end: Position) {
        if let Some(next) = self.next.take_if(|next| next.at == end) {
            // What has begun meanwhile is in the queue still.
            self.known = next;
            self.begun.taken.store(self.known.journaled.waiting(), Ordering::Relaxed);
        }
    }

    /// Takes those that have begun. Their number counts until the archive has passed them.
    fn take_begun(&mut self) {
        let mut entries = self.begun.entries.lock();
        entries.drain(..).for_each(|entry| self.known.journaled.add(entry));
        self.begun.taken.store(self.known.journaled.waiting(), Ordering::Relaxed);
    }

    /// The archive ends before: takes the runs away that it does not have.
    fn rewind(&mut self, end: Position, disk: &mut Reader) -> Result<(), ReadError> {
        let to = self.known.at;
        if end >= to {
            return Ok(());
        }
        let mut written = HashMap::<u32, u64>::new();
        each_batch(end, to, disk, |_, bytes| {
            for run in Runs::new(bytes) {
                *written.entry(run.publisher).or_default() += run.bytes.len() as u64;
            }
        })?;
        self.known.journaled.take_away(&written);
        self.known.at = end;
        Ok(())
    }
}

impl Known {
    fn advance(&mut self, end: Position, disk: &mut Reader) -> Result<(), ReadError> {
        each_batch(self.at, end, disk, |at, bytes| self.journaled.batch(at, bytes))?;
        self.at = self.at.max(end);
        Ok(())
    }
}

/// Walks the whole batches of a range.
fn each_batch(
    from: Position,
    to: Position,
    disk: &mut Reader,
    mut each: impl FnMut(Position, &[u8]),
) -> Result<(), ReadError> {
    let mut at = from;
    while at < to {
        at = match disk.read(at)? {
            Read::Batch(batch) => {
                each(batch.position, &batch.bytes);
                batch.end()
            }
            Read::Hole(hole) => hole.range.end,
            Read::Removed { first } => first,
            _ => return Ok(()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rbmq_wire::run_header;
    use rocketbufs::Epoch;
    use seglog::{Log, Options, SyncPolicy};

    use super::super::super::session_key::SessionKey;
    use super::super::places::Places;
    use super::*;

    fn place(number: u32, position: Position) -> Place {
        let key = SessionKey { instance: 7, client: number.into() };
        Place { number, key, bid: 1, epoch: Epoch(9), position, lacks_below: 0 }
    }

    #[test]
    fn a_note_comes_back_and_others_are_refused() {
        let places = vec![place(1, 5), Place { lacks_below: 4, ..place(3, 9) }];
        let note = Note { term: 3, missing_below: 8, next_number: 4, places };
        let bytes = note.clone().encode(100);
        assert_eq!(Note::decode(&bytes), Ok(note));
        assert_eq!(Note::decode(&[]), Ok(Note::default()));
        for cut in 1..bytes.len() {
            assert!(Note::decode(&bytes[..cut]).is_err());
        }
        let other = Entry::Begins { at: 1, place: place(1, 1) }.encode();
        assert!(Note::decode(&[&[0; 16][..], &other].concat()).is_err());
    }

    /// Each object has a note, also one of a few bytes.
    #[test]
    fn a_note_of_very_many_publishers_has_those_that_wrote_last() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(dir.path(), Options::default().sync(SyncPolicy::Never)).unwrap();
        log.append(&[&run_header(9, 1).unwrap()[..], &[0]].concat()).unwrap();
        let many = 200_000;
        let places = (0..many).map(|number| place(number, 5)).collect();
        let note = Note { next_number: many, places, ..Note::default() };
        let mut trail = Trail::new(1, Begun::default(), 0, note, many as usize);
        let note = trail.note(0, log.end(), 0, &mut log.reader()).unwrap();
        assert!(note.len() <= MAX_NOTE_BYTES, "{}", note.len());
        let note = Note::decode(&note).unwrap();
        assert!(note.next_number == many && note.places.contains(&place(9, 6)));
    }

    /// A disk, and how far each publisher was at each end of it.
    struct World {
        log: Log,
        places: Places,
        ends: Vec<(Position, Vec<(u32, Position)>)>,
        trail: Trail,
    }

    fn positions(places: Vec<Place>) -> Vec<(u32, Position)> {
        places.into_iter().map(|place| (place.number, place.position)).collect()
    }

    impl World {
        /// A publisher writes a run.
        fn write(&mut self, number: u32, len: usize) {
            let at = self.log.end();
            let before = positions(self.places.all()).into_iter().find(|(of, _)| *of == number);
            if let Some(entry) = self.places.begins(at, place(number, before.map_or(50, |(_, own)| own))) {
                self.trail.begun().add(entry);
            }
            self.log.append(&[&run_header(number, len).unwrap()[..], &vec![0; len]].concat()).unwrap();
            self.places.stored(number, len as u64, self.log.end());
            self.ends.push((self.log.end(), positions(self.places.all())));
        }

        /// The broker is started again.
        fn restart(&mut self) {
            let note =
                Note { next_number: self.places.next_number(), places: self.places.all(), ..Note::default() };
            self.trail = Trail::new(2, Begun::default(), self.log.end(), note, 100);
        }
    }

    proptest! {
        /// Whatever was copied when, and however often the broker was started again: a note says where each publisher is that the archive has
        /// bytes of. One without bytes there may be known or not, and is where it has begun.
        #[test]
        fn a_note_says_where_the_publishers_are(
            steps in proptest::collection::vec((0u32..4, 1usize..30, 0u8..6, 1usize..5, any::<bool>()), 1..40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let log = Log::open(dir.path(), Options::default().sync(SyncPolicy::Never)).unwrap();
            let trail = Trail::new(1, Begun::default(), 0, Note::default(), 100);
            let mut world = World { log, places: Places::default(), ends: Vec::new(), trail };
            let (mut archived, mut copied) = (0, 0);
            for (number, len, what, batches, is_taken) in steps {
                world.write(number, len);
                if what == 0 {
                    world.restart();
                }
                if what > 2 {
                    continue;
                }
                let last = (copied + batches).min(world.ends.len()) - 1;
                let (end, expected) = world.ends[last].clone();
                let mut disk = world.log.reader();
                let note = world.trail.note(archived, end, 0, &mut disk).unwrap();
                let known = positions(Note::decode(&note).unwrap().places);
                prop_assert!(expected.iter().all(|own| known.contains(own)), "{:?} {:?}", known, expected);
                let others = known.iter().filter(|own| !expected.contains(own));
                prop_assert!(others.into_iter().all(|(_, own)| *own == 50), "{:?} {:?}", known, expected);
                // A call that failed is made again.
                if is_taken {
                    world.trail.passed(end);
                    (archived, copied) = (end, last + 1);
                }
            }
        }
    }
}
