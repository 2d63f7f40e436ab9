//! What is copied, and what is known of it.

use seglog::{Log, Options, SyncPolicy};

use super::super::places::Entry;
use super::*;

/// An archive that notes the batches it gets.
#[derive(Default)]
struct Notes(Mutex<Vec<(Position, usize)>>);

impl Archive for Arc<Notes> {
    fn open(&self, _: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        Ok(self.clone())
    }
}

impl ArchiveLog for Notes {
    fn kept(&self) -> Range<Position> {
        0..self.0.lock().last().map_or(0, |(at, len)| at + *len as u64)
    }

    fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.0.lock().push((position, bytes.len()));
        Ok(())
    }

    fn read(&self, _: Position, _: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
        Ok(ArchiveRead::End)
    }
}

/// Bytes that a crash of the machine can still take from the disk are not copied: their positions may get other bytes.
#[test]
fn only_what_is_on_the_disk_is_copied_and_holes_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), Options::default().sync(SyncPolicy::Never)).unwrap();
    let archived = Archived::new(
        &"a".parse().unwrap(),
        log.reader(),
        &dir.path().join("archive"),
        250,
        Arc::default(),
        None,
    );
    let notes = Arc::<Notes>::default();
    let copied = || {
        while archived.copy(&notes, || false) == Turn::Again {}
        notes.0.lock().clone()
    };
    for _ in 0..5 {
        log.append(&[7; 100]).unwrap();
    }
    assert_eq!(copied(), []);
    log.sync().unwrap();
    assert_eq!(archived.copy(&notes, || true), Turn::Over);
    assert_eq!(*notes.0.lock(), [], "the broker stops");
    // Whole deliveries, as many as fit.
    assert_eq!(copied(), [(0, 200), (200, 200), (400, 100)]);
    log.append_hole(900).unwrap();
    log.append(&[7; 600]).unwrap();
    log.sync().unwrap();
    assert_eq!(copied()[3..], [(900, 0), (900, 600)]);
    let load = archived.load();
    assert_eq!((load.bytes, load.holes, load.lag, load.is_failing), (1100, 0, 0, false));
}

/// An archive that ends elsewhere than its caller has written.
#[derive(Default)]
struct Moved {
    kept: Mutex<Range<Position>>,
    bytes: u8,
    hole: Range<Position>,
    note: Vec<u8>,
}

impl Archive for Arc<Moved> {
    fn open(&self, log: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        let mut kept = self.kept.lock();
        if kept.is_empty() {
            *kept = log.first..log.first;
        }
        Ok(self.clone())
    }
}

impl ArchiveLog for Moved {
    fn kept(&self) -> Range<Position> {
        self.kept.lock().clone()
    }

    /// Somebody else has written there.
    fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.kept.lock().end = position + bytes.len() as u64;
        Err(ArchiveError::Down("somebody else has written".into()))
    }

    fn note(&self) -> Vec<u8> {
        self.note.clone()
    }

    fn read(&self, position: Position, out: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
        let kept = self.kept();
        if !kept.contains(&position) {
            return Ok(ArchiveRead::End);
        }
        if self.hole.contains(&position) {
            return Ok(ArchiveRead::Hole { to: self.hole.end });
        }
        let end = if position < self.hole.start { self.hole.start } else { kept.end };
        let len = out.len().min((end - position) as usize);
        out[..len].fill(self.bytes);
        Ok(ArchiveRead::Bytes(len))
    }
}

fn log(dir: &Path, len: usize) -> Log {
    let mut log = Log::open(dir, Options::default().sync(SyncPolicy::Never)).unwrap();
    for _ in 0..len / 100 {
        log.append(&[7; 100]).unwrap();
    }
    log.sync().unwrap();
    log
}

fn archived(log: &Log, copied: &Path) -> Archived {
    Archived::new(&"a".parse().unwrap(), log.reader(), copied, 1 << 20, Arc::default(), None)
}

/// The end that another writer makes is not the own one, before the bytes were compared, and is read by nobody.
#[test]
fn what_somebody_else_has_written_is_not_confirmed() {
    for (bytes, confirmed) in [(7, Some(40_000)), (8, None)] {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path(), 40_000);
        let archived = archived(&log, &dir.path().join("archive"));
        let archive = Arc::new(Moved { bytes, ..Moved::default() });
        assert_eq!(archived.copy(&archive, || false), Turn::Over);
        assert_eq!((archive.kept(), archived.confirmed()), (0..40_000, Some(0)));
        archived.state.lock().retry_at = None;
        assert_eq!(archived.read(0, &mut [0; 9]), Ok(ArchiveRead::End));
        // The whole batch is compared, of which 16 KiB are not all.
        archived.copy(&archive, || false);
        assert_eq!((archived.confirmed(), archived.missing_below()), (confirmed, 0));
    }
}

/// What the disk has removed before, or what another archive may have, is missing.
#[test]
fn what_nothing_proves_may_be_missing() {
    let dir = tempfile::tempdir().unwrap();
    let (log, file) = (log(dir.path(), 1_000), dir.path().join("archive"));
    let opened_with = |kept: Range<Position>, hole| {
        let archived = archived(&log, &file);
        let archive = Arc::new(Moved { kept: Mutex::new(kept), bytes: 7, hole, note: Vec::new() });
        let mut copier = archived.copier.lock();
        let is_open = archived.open(&mut copier, &archive, &|| false).is_some();
        is_open.then(|| (archived.confirmed().unwrap(), archived.missing_below()))
    };
    let opened = |kept| opened_with(kept, 0..0);
    // A file of before, or none: the bytes are the same, and what lies before them is not known.
    std::fs::write(&file, "00000000000000000300 00000000000000000500\n").unwrap();
    assert_eq!(opened(0..500), Some((500, 500)));
    assert_eq!(opened(0..500), Some((500, 500)), "it is remembered");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(opened(0..0), Some((0, 0)));
    // Another archive has the same log.
    assert_eq!(opened(0..700), Some((700, 0)), "all was compared");
    let note = |text: &str| std::fs::write(&file, text.replace(',', " ")).unwrap();
    note("300,500,0");
    assert_eq!(opened(0..500), Some((500, 0)));
    note("300,500,0");
    assert_eq!(opened(0..200), Some((200, 0)), "its end was taken away, and comes again");
    note("300,500,0");
    assert_eq!(opened(400..500), Some((500, 500)), "what was written at 300 cannot be compared");
    // Another broker's disk had removed what this one has.
    for (hole, missing_below) in [(300..400, 400), (200..301, 301), (200..300, 0)] {
        note("300,500,0");
        assert_eq!(opened_with(0..500, hole), Some((500, missing_below)));
    }
}

/// An archive that has nothing of a log which it had once has lost it, or removed it, or is another one: publishers are told what the disk has not, and
/// once, also where the first call has failed, or the file is longer.
#[test]
fn an_empty_archive_proves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), Options::default().first_position(200)).unwrap();
    log.append(&[7; 300]).unwrap();
    log.sync().unwrap();
    let file = dir.path().join("archive");
    for tail in ["\n", " 12638153115695167455\n"] {
        std::fs::write(&file, format!("{:020} {:020} {:020}{tail}", 300, 500, 0)).unwrap();
        for _ in 0..2 {
            let archived = archived(&log, &file);
            let mut copier = archived.copier.lock();
            assert!(archived.open(&mut copier, &Arc::new(Closed), &|| false).is_none());
            archived.open(&mut copier, &Arc::new(Moved::default()), &|| false).unwrap();
            assert_eq!((archived.confirmed(), archived.missing_below()), (Some(200), 200));
        }
    }
}

/// The owner before has archived nothing. The object that fences it off is all that the archive has, and says that nothing is missing.
#[test]
fn a_broker_that_goes_on_where_nothing_was_archived_misses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = Log::open(dir.path(), Options::default().first_position(200)).unwrap();
    log.append(&[7; 300]).unwrap();
    log.sync().unwrap();
    let file = dir.path().join("archive");
    let begins = |at, note: &[u8]| {
        std::fs::write(&file, format!("{:020} {:020} {:020}\n", 200, 200, 0)).unwrap();
        let begun = Begun::of(0..0).within(at, 1_000);
        let trail = Trail::new(1, begun, log.reader(), 9);
        let (topic, disk) = ("a".parse().unwrap(), log.reader());
        let archived = Archived::new(&topic, disk, &file, 1 << 20, Arc::default(), Some(trail));
        let archive = Arc::new(Moved { note: note.to_vec(), ..Moved::default() });
        archived.open(&mut archived.copier.lock(), &archive, &|| false).unwrap();
        assert_eq!(archived.confirmed(), Some(200));
        archived.missing_below()
    };
    assert_eq!(begins(200, &[1]), 0);
    assert_eq!(begins(200, &[]), 200, "its rules have removed that object");
    assert_eq!(begins(100, &[1]), 200, "it is another one");
}

/// The archive had all before the broker was started again, and nobody publishes.
#[test]
fn the_journal_is_needed_from_the_end_of_an_archive_that_has_all() {
    let dir = tempfile::tempdir().unwrap();
    let log = log(&dir.path().join("log"), 300);
    let mut journal = Log::open(dir.path().join("journal"), Options::default()).unwrap();
    let snapshot =
        |at| Entry::Snapshot { at, next_number: 0, boot: 0, clean: true, places: Vec::new() }.encode();
    journal.append(&snapshot(0)).unwrap();
    let last = journal.append(&snapshot(300)).unwrap();
    let begun = Begun::of(0..journal.end()).within(300, 1_000);
    let trail = Some(Trail::new(1, begun.clone(), journal.reader(), 9));
    let (topic, file) = ("a".parse().unwrap(), dir.path().join("archive"));
    let archived = Archived::new(&topic, log.reader(), &file, 1 << 20, Arc::default(), trail);
    let archive = Arc::new(Moved { kept: Mutex::new(0..300), bytes: 7, note: vec![1], ..Moved::default() });
    assert_eq!(archived.copy(&archive, || false), Turn::Over);
    assert_eq!(begun.needs_from(), last);
}

/// An archive that does not answer.
struct Closed;

impl Archive for Arc<Closed> {
    fn open(&self, _: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
        Err(ArchiveError::Down("it does not answer".into()))
    }
}
