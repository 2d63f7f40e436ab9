//! How far the publishers of a topic are in its archive: what the broker needs that goes on there.
//!
//! ```text
//!   journal  S──────────B────────────S────▶    snapshots, and who begins where
//!   disk     ──────────────┤A├─┤B├──┤A├──▶     the runs say who wrote how much
//!   archive  ─────────┤ batch ├▶               each batch has a note: A is at 1135 and B at 72 where the batch ends
//! ```
//!
//! The copying end is behind the disk. It begins with the last snapshot that the archive has passed, and adds what the journal and the runs say up to the
//! end of each batch. So it counts forward only, from what was true, and a publisher's place is right whatever gaps its log has. The journal therefore
//! keeps that snapshot and all that follows ([`Begun`]), also for a broker that is started again.
//!
//! The opposite, to take the runs behind the archive away from what the disk has, needs for each gap what was before it. The note of the
//! archive's last batch would do too; but it names few publishers, and no gap behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rocketbufs::Position;
use rocketbufs::fields::{FieldError, Reader as FieldReader};
use seglog::{HoleCause, Read, ReadError, Reader};

use super::places::{Entry, Journaled, Place};

/// The most bytes of the journal that the archive has not passed: publishers wait then. A snapshot has 72 bytes of each publisher, in each 16 MiB
/// of the log.
const MAX_UNPASSED: u64 = 256 << 20;

/// The most publishers of a note: each object has them, of 72 bytes each.
const MAX_NOTED: usize = 2_900;

/// The longest note that this broker writes.
const MAX_NOTE_BYTES: usize = 256 << 10;

const _: () = assert!(MAX_NOTED * 72 + 100 <= MAX_NOTE_BYTES);

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

/// The part of the journal that the copying end needs still, and what this broker may write. Clones share the part.
#[derive(Debug, Clone, Default)]
pub(crate) struct Begun {
    journal: Arc<Part>,
    /// Where the archive ended when the log was opened.
    archived: Position,
    /// What this broker may write is below.
    limit: Position,
}

#[derive(Debug, Default)]
struct Part {
    /// The last snapshot that the archive has passed.
    from: AtomicU64,
    end: AtomicU64,
    /// Nobody knows where the publishers are before there is another snapshot.
    lacks: AtomicBool,
}

impl Begun {
    /// The journal has this range, and the archive has passed nothing of it yet, as far as anybody knows.
    pub(crate) fn of(journal: std::ops::Range<u64>) -> Self {
        let journal = Part { from: journal.start.into(), end: journal.end.into(), lacks: false.into() };
        Self { journal: Arc::new(journal), ..Self::default() }
    }

    /// The archive ended here when the log was opened, and what this broker may write is below the limit.
    pub(crate) fn within(&self, archived: Position, limit: Position) -> Self {
        Self { archived, limit, ..self.clone() }
    }

    /// What this broker may write is below.
    pub(crate) fn limit(&self) -> Position {
        self.limit
    }

    /// Where the archive ended when the log was opened.
    pub(crate) fn archived(&self) -> Position {
        self.archived
    }

    /// The journal ends here.
    pub(crate) fn grows_to(&self, end: u64) {
        self.journal.end.store(end, Ordering::Relaxed);
    }

    /// The journal has another snapshot, and ends here.
    pub(crate) fn has_snapshot(&self, end: u64) {
        self.grows_to(end);
        self.journal.lacks.store(false, Ordering::Relaxed);
    }

    /// Whether the archive waits for another snapshot.
    pub(crate) fn lacks(&self) -> bool {
        self.journal.lacks.load(Ordering::Relaxed)
    }

    /// The journal stays from here on.
    pub(crate) fn needs_from(&self) -> u64 {
        self.journal.from.load(Ordering::Relaxed)
    }

    /// Whether the journal has as much as it may before the archive has passed more.
    pub(crate) fn is_full(&self) -> bool {
        self.journal.end.load(Ordering::Relaxed).saturating_sub(self.needs_from()) > MAX_UNPASSED
    }
}

/// The publishers at the end of the archive.
#[derive(Debug)]
pub(crate) struct Trail {
    term: u64,
    begun: Begun,
    journal: Reader,
    /// The most publishers that the disk remembers. A note has fewer, those that wrote last: others are taken for new ones by the broker that goes on.
    most: usize,
    known: Known,
    /// Those behind the batch that is on its way.
    next: Option<Known>,
}

#[derive(Debug, Clone)]
struct Known {
    at: Position,
    journaled: Journaled,
    /// The next entry of the journal.
    next_entry: u64,
    /// The entry with the last snapshot.
    snapshot: u64,
    /// Runs or entries behind the last snapshot are missing, or there is none.
    lacks: bool,
}

impl Trail {
    /// Reads the journal of the publishers of a topic, which remembers at most so many.
    pub(crate) fn new(term: u64, begun: Begun, journal: Reader, most: usize) -> Self {
        let first = begun.needs_from();
        let journaled = Journaled::default();
        let known = Known { at: 0, journaled, next_entry: first, snapshot: first, lacks: true };
        Self { term, begun, journal, most, known, next: None }
    }

    /// What is shared with the store.
    pub(crate) fn begun(&self) -> &Begun {
        &self.begun
    }

    /// The note of a batch that ends here. The archive ends there or before. None: nobody knows where the publishers are before the journal has another
    /// snapshot, for which the store is asked.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub(crate) fn note(
        &mut self,
        end: Position,
        missing_below: Position,
        disk: &mut Reader,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        // An attempt that fails leaves what is known as it is.
        let mut next = self.known.clone();
        let ahead = next.advance(end, disk, &mut self.journal)?;
        next.journaled.shrink(self.most);
        let (next_number, places) = match ahead {
            _ if !next.lacks => next.journaled.noted(MAX_NOTED),
            // A publisher that is taken to be before its place would send again what the log has.
            None => {
                self.begun.journal.lacks.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            // Nobody knows how far each was here. What is between was not archived then, or not all, and nobody asks a publisher twice.
            Some(snapshot) => {
                let mut journaled = Journaled::default();
                journaled.add(snapshot);
                journaled.lacks();
                journaled.noted(MAX_NOTED)
            }
        };
        self.next = Some(next);
        Ok(Some(Note { term: self.term, missing_below, next_number, places }.encode(end)))
    }

    /// Whether the archive has passed less, as far as this knows, and no snapshot is waited for.
    pub(crate) fn is_before(&self, end: Position) -> bool {
        self.known.at < end && !self.begun.lacks()
    }

    /// The archive ends here.
    pub(crate) fn passed(&mut self, end: Position) {
        if let Some(next) = self.next.take_if(|next| next.at == end) {
            self.known = next;
            self.begun.journal.from.store(self.known.snapshot, Ordering::Relaxed);
        }
    }
}

impl Known {
    /// Counts what the journal and the disk have up to a position. Returns the snapshot behind it, if one is there already.
    fn advance(
        &mut self,
        end: Position,
        disk: &mut Reader,
        journal: &mut Reader,
    ) -> Result<Option<Entry>, ReadError> {
        let ahead = self.read_journal(end, journal)?;
        if self.lacks {
            // The next snapshot replaces whatever the runs say.
            self.at = end;
        }
        while self.at < end {
            self.at = match disk.read(self.at)? {
                Read::Batch(batch) => {
                    self.journaled.batch(batch.position, &batch.bytes);
                    batch.end()
                }
                Read::Hole(hole) => {
                    self.lacks |= hole.cause == HoleCause::Damaged;
                    hole.range.end
                }
                Read::Removed { first } => {
                    self.lacks = true;
                    first
                }
                _ => end,
            };
        }
        Ok(ahead)
    }

    /// Goes on behind the last snapshot up to a position: an entry is in the journal before what follows it is in the log.
    fn read_journal(&mut self, end: Position, journal: &mut Reader) -> Result<Option<Entry>, ReadError> {
        loop {
            self.next_entry = match journal.read(self.next_entry)? {
                Read::Batch(batch) => {
                    match Entry::decode(&batch.bytes) {
                        Ok(entry @ Entry::Snapshot { at, .. }) => {
                            if at > end {
                                return Ok(Some(entry));
                            }
                            self.journaled.add(entry);
                            (self.at, self.snapshot, self.lacks) = (at, batch.position, false);
                        }
                        // It begins with a run that is counted later.
                        Ok(entry @ Entry::Begins { .. }) => self.journaled.add(entry),
                        Ok(Entry::Floors(_)) => {}
                        Err(_) => self.lacks = true,
                    }
                    batch.end()
                }
                Read::Hole(hole) => {
                    // What a machine that stopped had not synced begins with runs that its log does not have either.
                    self.lacks |= hole.cause == HoleCause::Damaged;
                    hole.range.end
                }
                Read::Removed { first } => {
                    self.lacks = true;
                    first
                }
                _ => return Ok(None),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use rbmq_wire::run_header;
    use rocketbufs::Epoch;
    use seglog::{Log, Options, SyncPolicy};

    use super::super::super::session_key::SessionKey;
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

    /// The journal and the log of a topic, with the entries of its publishers.
    fn world(entries: &[Entry], runs: &[&[u8]]) -> (tempfile::TempDir, Log, Trail) {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options::default().sync(SyncPolicy::Never);
        let mut journal = Log::open(dir.path().join("journal"), options()).unwrap();
        let mut log = Log::open(dir.path().join("log"), options()).unwrap();
        for run in runs {
            log.append(run).unwrap();
        }
        for entry in entries {
            journal.append(&entry.encode()).unwrap();
        }
        let trail = Trail::new(1, Begun::of(0..journal.end()), journal.reader(), 1_000_000);
        (dir, log, trail)
    }

    fn snapshot(at: Position, places: Vec<Place>) -> Entry {
        Entry::Snapshot { at, next_number: places.len() as u32, boot: 0, clean: true, places }
    }

    /// Each object has a note, also one of a few bytes. Who is missing in one is in the next one, when it has written again.
    #[test]
    fn a_note_of_very_many_publishers_has_those_that_wrote_last() {
        let run = |number: u32| [&run_header(number, 1).unwrap()[..], &[0]].concat();
        let many = 20_000;
        let places = (0..many).map(|number| place(number, 5)).collect();
        let (_dir, log, mut trail) = world(&[snapshot(0, places)], &[&run(9), &run(10)]);
        for (end, number) in [(log.end() / 2, 9), (log.end(), 10)] {
            let note = trail.note(end, 0, &mut log.reader()).unwrap().unwrap();
            trail.passed(end);
            assert!(note.len() <= MAX_NOTE_BYTES, "{}", note.len());
            let note = Note::decode(&note).unwrap();
            assert!(note.next_number == many && note.places.len() == MAX_NOTED);
            assert!(note.places.contains(&place(number, 6)), "{number}");
        }
    }

    /// The journal begins behind the end of the archive, as that of a broker that has shared nothing before. What is between is in no archive, and
    /// nobody says that it is.
    #[test]
    fn publishers_that_are_known_only_later_lack_what_is_before() {
        let run = [&run_header(0, 10).unwrap()[..], &[0; 10]].concat();
        let (_dir, log, mut trail) = world(&[snapshot(36, vec![place(0, 70)])], &[&run, &run, &run]);
        let mut disk = log.reader();
        let mut note = |end| {
            let note = trail.note(end, 0, &mut disk).unwrap().unwrap();
            trail.passed(end);
            (Note::decode(&note).unwrap().places, disk.read_bytes())
        };
        assert_eq!(note(18), (vec![Place { lacks_below: 70, ..place(0, 70) }], 0), "nothing is read in vain");
        assert_eq!(note(36), (vec![place(0, 70)], 0));
        assert_eq!(note(54).0, [place(0, 80)]);
    }

    #[test]
    fn the_journal_stays_up_to_the_last_snapshot_that_the_archive_has_passed() {
        let run = [&run_header(0, 10).unwrap()[..], &[0; 10]].concat();
        let entries = [snapshot(0, vec![place(0, 50)]), snapshot(18, vec![place(0, 60)])];
        let (_dir, log, mut trail) = world(&entries, &[&run, &run]);
        let begun = trail.begun().clone();
        trail.note(36, 0, &mut log.reader()).unwrap().unwrap();
        assert_eq!(begun.needs_from(), 0, "the object is not there yet");
        trail.passed(36);
        assert_eq!(begun.needs_from(), entries[0].encode().len() as u64);
        begun.grows_to(begun.needs_from() + MAX_UNPASSED);
        assert!(!begun.is_full());
        begun.grows_to(begun.needs_from() + MAX_UNPASSED + 1);
        assert!(begun.is_full());
    }
}
