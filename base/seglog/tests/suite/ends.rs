//! The end of a log, damaged in every way after each kind of stop: what was appended is there, or is told to be missing, and no position
//! gets another meaning.

use std::path::Path;
use std::sync::Arc;

use seglog::storage::Storage;
use seglog::{HoleCause, Log, OpenError, Options, Read, Reader, SyncPolicy};
use seglog_sim::{Fault, SimStorage};

/// How the writer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The log is closed.
    Closed,
    /// The process is killed; the machine goes on.
    Killed,
    /// The machine stops.
    Machine,
}

/// The files that a writer left.
#[derive(Debug, Clone)]
struct Left {
    files: Vec<(String, Vec<u8>)>,
    stop: Stop,
    /// The end of what must be there.
    kept: u64,
    /// The end of what readers may have seen.
    appended: u64,
}

fn options() -> Options {
    Options::default().segment_bytes(4096).index_interval(512).sync(SyncPolicy::Never)
}

fn open(disk: &SimStorage) -> Result<Log, OpenError> {
    Log::open_on(Arc::new(disk.clone()), "log", options())
}

fn byte(position: u64) -> u8 {
    (position * 13 + position / 251) as u8
}

fn append(log: &mut Log, len: u64) {
    let bytes: Vec<u8> = (log.end()..log.end() + len).map(byte).collect();
    log.append(&bytes).expect("an append");
}

/// Writes a log of three segments, whose last records are not synced, and stops.
fn write(stop: Stop) -> Left {
    let disk = SimStorage::new(11);
    let mut log = open(&disk).expect("a new log");
    for len in [700, 33, 900, 512, 8, 1000, 640].into_iter().cycle().take(13) {
        append(&mut log, len);
    }
    // The mark of this sync reaches the disk.
    disk.advance(2000);
    log.sync().expect("a sync");
    let mut kept = log.end();
    append(&mut log, 77);
    append(&mut log, 130);
    let appended = log.end();
    if stop == Stop::Machine {
        disk.crash();
    } else {
        kept = appended;
    }
    let files = || {
        let names = disk.list(Path::new("log")).expect("the folder");
        let contents = |name: String| disk.contents(format!("log/{name}")).map(|bytes| (name, bytes));
        names.into_iter().filter_map(contents).collect()
    };
    // The files as they are before the log is dropped, which syncs.
    let mut left = Left { files: files(), stop, kept, appended };
    if stop == Stop::Closed {
        log.close().expect("it closes");
        left.files = files();
    }
    left
}

impl Left {
    fn segments(&self) -> Vec<usize> {
        (0..self.files.len()).filter(|at| self.files[*at].0.ends_with(".seg")).collect()
    }

    /// Opens the files where the writer left them, with a change.
    fn opened(&self, change: impl FnOnce(&mut Vec<(String, Vec<u8>)>)) -> Result<Log, OpenError> {
        let mut files = self.files.clone();
        change(&mut files);
        let disk = SimStorage::new(12);
        if self.stop == Stop::Machine {
            disk.crash();
        }
        for (name, bytes) in files {
            disk.set_contents(format!("log/{name}"), bytes);
        }
        open(&disk)
    }

    /// Checks what a log has of the bytes that it must have. `told`: whether something may be missing.
    fn check(&self, what: &str, log: &mut Log, told: bool) {
        let (mut reader, mut at, mut missing) = (log.reader(), 0, Vec::new());
        while at < self.kept {
            match reader.read(at).expect("a read") {
                Read::Batch(batch) => {
                    assert!(
                        batch.bytes.iter().zip(at..).all(|(own, at)| *own == byte(at)),
                        "{what}: bytes at {at}"
                    );
                    at = batch.end();
                }
                Read::Hole(hole) => {
                    assert_eq!(hole.cause, HoleCause::Damaged, "{what}: {hole:?} of what was kept");
                    at = hole.range.end;
                    missing.push(hole.range);
                }
                Read::Removed { first } => {
                    missing.push(at..first);
                    at = first;
                }
                other => panic!("{what}: {other:?} at {at} of {}", self.kept),
            }
        }
        assert!(told || missing.is_empty(), "{what}: {missing:?} is missing");
        let end = log.end();
        assert!(end >= self.kept, "{what}: it goes on at {end}");
        if self.stop != Stop::Machine {
            assert!(end >= self.appended, "{what}: {end} has a meaning already");
        }
        append(log, 50);
        let read = log.reader().read(end).expect("a read");
        assert!(
            matches!(read, Read::Batch(batch) if batch.position == end && batch.bytes[0] == byte(end)),
            "{what}"
        );
    }
}

/// Bytes between two places that are damaged. `SEGLOG_CASES` set: each place.
fn step() -> usize {
    if std::env::var_os("SEGLOG_CASES").is_some() { 1 } else { 13 }
}

/// Damages the last two segments at each place in a way, and checks what is left.
fn each_place(way: fn(&mut Vec<u8>, usize)) {
    for stop in [Stop::Closed, Stop::Killed, Stop::Machine] {
        let left = write(stop);
        let segments = left.segments();
        assert!(segments.len() >= 3, "{stop:?}: {:?}", left.files.len());
        for segment in &segments[segments.len() - 2..] {
            for at in
                (0..left.files[*segment].1.len()).step_by(step()).chain([left.files[*segment].1.len() - 1])
            {
                let what = format!("{stop:?}, byte {at} of {}", left.files[*segment].0);
                match left.opened(|files| way(&mut files[*segment].1, at)) {
                    // The header of the last segment says so itself.
                    Err(OpenError::Corrupt { .. } | OpenError::Version { .. }) => assert!(at < 64, "{what}"),
                    Err(error) => panic!("{what}: {error}"),
                    Ok(mut log) => left.check(&what, &mut log, true),
                }
            }
        }
    }
}

#[test]
fn a_flipped_bit_takes_nothing_silently() {
    each_place(|file, at| file[at] ^= 0x10);
}

#[test]
fn a_cut_takes_nothing_silently() {
    each_place(|file, at| file.truncate(at));
}

#[test]
fn bytes_that_were_added_take_nothing() {
    for stop in [Stop::Closed, Stop::Killed, Stop::Machine] {
        let left = write(stop);
        let last = *left.segments().last().expect("segments");
        let record = left.files[last].1[64..].to_vec();
        for len in (1..record.len()).step_by(step()) {
            for added in [vec![0; len], vec![0xa5; len], record[..len].to_vec()] {
                let mut log = left.opened(|files| files[last].1.extend(&added)).expect("it opens");
                left.check(&format!("{stop:?}, {len} bytes more"), &mut log, false);
            }
        }
    }
}

#[test]
fn segments_that_are_gone_are_told() {
    for stop in [Stop::Closed, Stop::Killed, Stop::Machine] {
        let left = write(stop);
        for count in 1..3 {
            let removed = |files: &mut Vec<(String, Vec<u8>)>| {
                let segments = left.segments();
                for at in segments[segments.len() - count..].iter().rev() {
                    files.remove(*at);
                }
            };
            let mut log = left.opened(removed).expect("it opens");
            assert!(log.recovery().damaged_bytes() > 0, "{stop:?}, {count} segments");
            left.check(&format!("{stop:?}, {count} segments less"), &mut log, true);
        }
    }
}

#[test]
fn a_damaged_mark_takes_nothing() {
    for stop in [Stop::Closed, Stop::Killed, Stop::Machine] {
        let left = write(stop);
        let lock = left.files.iter().position(|(name, _)| name == "lock").expect("a mark");
        let len = left.files[lock].1.len();
        for at in 0..len {
            let mut log = left.opened(|files| files[lock].1[at] ^= 0x10).expect("it opens");
            left.check(&format!("{stop:?}, byte {at} of the mark"), &mut log, false);
            let mut log = left.opened(|files| files[lock].1.truncate(at)).expect("it opens");
            left.check(&format!("{stop:?}, {at} bytes of the mark"), &mut log, false);
        }
    }
}

/// An opening that fails, since the disk is full or broken, forgets nothing of the end.
#[test]
fn an_opening_that_fails_forgets_nothing() {
    let left = write(Stop::Machine);
    let last = *left.segments().last().expect("segments");
    for after in 0..30 {
        let (disk, cut) = (SimStorage::new(after.into()), 64 + 40);
        disk.crash();
        for (at, (name, bytes)) in left.files.iter().enumerate() {
            let bytes = if at == last { bytes[..cut].to_vec() } else { bytes.clone() };
            disk.set_contents(format!("log/{name}"), bytes);
        }
        let expected = {
            let whole = SimStorage::new(0);
            whole.crash();
            for (name, _) in &left.files {
                whole.set_contents(
                    format!("log/{name}"),
                    disk.contents(format!("log/{name}")).expect("a file"),
                );
            }
            let log = open(&whole).expect("it opens");
            (log.end(), log.recovery().damaged_bytes())
        };
        assert!(expected.0 >= left.kept && expected.1 > 0);
        for fault in [Fault::Write, Fault::Sync, Fault::Name] {
            disk.fail(fault, after, 1);
            let opened = open(&disk);
            disk.heal();
            let (failed, opened) = (opened.is_err(), opened.or_else(|_| open(&disk)).expect("it opens"));
            assert_eq!(opened.end(), expected.0, "{fault:?} after {after}, failed: {failed}");
        }
    }
}

/// A reader of another process finds what the writer will find.
#[test]
fn a_reader_sees_what_follows_damage() {
    let left = write(Stop::Closed);
    let disk = SimStorage::new(1);
    for (name, bytes) in &left.files {
        disk.set_contents(format!("log/{name}"), bytes.clone());
    }
    let name = format!("log/{}", left.files[*left.segments().last().expect("segments")].0);
    let mut bytes = disk.contents(&name).expect("a segment");
    // The first record of the last segment: no later one says that it was durable.
    bytes[64 + 60] ^= 1;
    disk.set_contents(&name, bytes);
    let read = |reader: &mut Reader| {
        let (mut at, mut found) = (reader.first(), Vec::new());
        while at < left.appended {
            match reader.read(at).expect("a read") {
                Read::Batch(batch) => at = batch.end(),
                Read::Hole(hole) => {
                    at = hole.range.end;
                    found.push(hole.range);
                }
                other => panic!("{other:?} at {at}"),
            }
        }
        found
    };
    let mut reader = Reader::open_on(Arc::new(disk.clone()), "log", options()).expect("it opens");
    let seen = read(&mut reader);
    assert!(seen.len() == 1 && reader.missing().is_empty(), "{seen:?}, {:?}", reader.missing());
    let log = open(&disk).expect("it opens");
    assert_eq!(read(&mut log.reader()), seen);
    assert_eq!(log.recovery().damaged, seen);
}

#[test]
fn a_machine_that_stops_has_its_end_behind_what_readers_saw() {
    // The mark of the unsynced records reaches the disk in some of the runs, and their bytes do not.
    let mut skipped = 0;
    for seed in 0..200 {
        let disk = SimStorage::new(seed);
        let mut log = open(&disk).expect("a new log");
        append(&mut log, 100);
        log.sync().expect("a sync");
        append(&mut log, 900);
        disk.crash();
        drop(log);
        let log = open(&disk).expect("it opens");
        assert!(log.recovery().damaged.is_empty(), "seed {seed}");
        let unsynced = log.recovery().unsynced.clone();
        assert!(unsynced.is_empty() || unsynced == (100..1000), "seed {seed}: {unsynced:?}");
        if !unsynced.is_empty() {
            skipped += 1;
            let read = log.reader().read(100).expect("a read");
            assert!(
                matches!(read, Read::Hole(hole) if hole.range == unsynced && hole.cause == HoleCause::Marked)
            );
        }
    }
    assert!(skipped > 10, "{skipped}");
}
