//! The log and the journal of a topic, damaged in every way after each kind of stop: what was stored is there or is told to be missing,
//! no position gets a second meaning, and no publisher goes on behind what is stored.

use seglog::HoleCause;
use seglog_sim::SimStorage;

use super::*;

const DIR: &str = "topic";
/// Segments have a mebibyte at least. A delivery of this size fills the first one.
const LARGE: usize = 1 << 20;

/// How the broker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    InOrder,
    Killed,
    Machine,
}

const STOPS: [Stop; 3] = [Stop::InOrder, Stop::Killed, Stop::Machine];

/// No thread syncs: the tests do.
const QUIET: StoreOptions = StoreOptions { sync: Duration::from_secs(3600), ..OPTIONS };

/// A delivery: where it is in the log, who wrote it, and how far its publisher is then.
#[derive(Debug, Clone)]
struct Delivery {
    at: Position,
    place: Place,
    bytes: Vec<u8>,
}

impl Delivery {
    fn end(&self) -> Position {
        self.at + self.bytes.len() as u64
    }
}

/// The files that a broker left, and what they must have.
#[derive(Debug, Clone)]
struct Left {
    stop: Stop,
    files: Vec<(String, Vec<u8>)>,
    deliveries: Vec<Delivery>,
    /// The end of what must be there.
    kept: Position,
}

fn open(disk: &SimStorage) -> Result<(Store, Recovered), KeepError> {
    Store::open_on(Arc::new(disk.clone()), Path::new(DIR), &topic(), &QUIET)
}

/// Appends a delivery of a publisher, which loses a byte before every third one.
fn store_next(store: &mut Store, deliveries: &mut Vec<Delivery>, len: usize) {
    let (count, number) = (deliveries.len(), deliveries.len() as u32 % 2);
    let last = deliveries.iter().rev().find(|delivery| delivery.place.number == number);
    let position = last.map_or(0, |last| last.place.position) + u64::from(count.is_multiple_of(3));
    let (at, bytes) = (store.log.end(), vec![count as u8; len]);
    append(store, place(number, position), &bytes);
    let place = place(number, position + len as u64);
    deliveries.push(Delivery { at, place, bytes });
}

fn files(disk: &SimStorage) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for part in ["log", "publishers"] {
        for name in disk.list(&Path::new(DIR).join(part)).expect("a folder") {
            let path = format!("{DIR}/{part}/{name}");
            found.extend(disk.contents(&path).map(|bytes| (path, bytes)));
        }
    }
    found
}

/// Stores a large delivery and small ones, the last two not synced, and stops.
fn write(stop: Stop) -> Left {
    let disk = SimStorage::new(5);
    let (mut store, _) = open(&disk).expect("a new store");
    let mut deliveries = Vec::new();
    for len in [30, LARGE, 200, 8, 90, 300, 41, 77] {
        store_next(&mut store, &mut deliveries, len);
    }
    // The marks of these syncs reach the disk.
    disk.advance(2000);
    store.log.sync().expect("a sync");
    store.journal.sync().expect("a sync");
    let synced = store.log.end();
    store_next(&mut store, &mut deliveries, 120);
    store_next(&mut store, &mut deliveries, 60);
    let end = store.log.end();
    let mut left = Left { stop, files: Vec::new(), deliveries, kept: end };
    match stop {
        Stop::InOrder => drop(store),
        Stop::Killed => left.files = files(&disk),
        Stop::Machine => {
            disk.crash();
            left.kept = synced;
        }
    }
    if left.files.is_empty() {
        left.files = files(&disk);
    }
    left
}

impl Left {
    /// The files of a part of the folder whose end is damaged: the last two segments of the log, all of the journal.
    fn segments(&self, part: &str) -> Vec<usize> {
        let of = format!("{DIR}/{part}/");
        let is = |at: &usize| self.files[*at].0.starts_with(&of) && self.files[*at].0.ends_with(".seg");
        let all: Vec<usize> = (0..self.files.len()).filter(is).collect();
        all[all.len().saturating_sub(2)..].to_vec()
    }

    /// Opens the files where the broker left them, with a change.
    fn opened(
        &self,
        change: impl FnOnce(&mut Vec<(String, Vec<u8>)>),
    ) -> Result<(Store, Recovered), KeepError> {
        let (disk, mut files) = (SimStorage::new(6), self.files.clone());
        if self.stop == Stop::Machine {
            disk.crash();
        }
        change(&mut files);
        files.into_iter().for_each(|(path, bytes)| disk.set_contents(path, bytes));
        open(&disk)
    }

    /// Checks what a store has of the deliveries. Returns how many bytes are missing.
    fn check(&self, what: &str, store: &Store, recovered: &Recovered) -> u64 {
        let (mut reader, mut missing) = (store.reader(), 0);
        for delivery in self.deliveries.iter().filter(|delivery| delivery.end() <= self.kept) {
            match reader.read(delivery.at).expect("a read") {
                Read::Batch(batch) => {
                    assert!(
                        batch.position == delivery.at && batch.bytes.ends_with(&delivery.bytes),
                        "{what}"
                    );
                }
                // A hole that the opening did not find: the reader has found and counted it.
                Read::Hole(hole) if hole.cause == HoleCause::Damaged => {
                    missing += delivery.bytes.len() as u64
                }
                other => panic!("{what}: {other:?} at {}", delivery.at),
            }
        }
        let seen = self.deliveries.last().expect("deliveries").end();
        assert!(store.log.end() >= seen, "{what}: {} has a meaning already", store.log.end());
        for place in &recovered.places {
            let mut own = self.deliveries.iter().rev().filter(|own| own.place.number == place.number);
            let last = own.next().expect("its deliveries").place.position;
            assert!(
                place.position <= last,
                "{what}: publisher {} is at {} of {last}",
                place.number,
                place.position
            );
        }
        let told = reader.stats().damaged_bytes;
        assert!(missing <= told, "{what}: {missing} bytes are missing, and {told} are told");
        missing
    }
}

/// Bytes between two places that are damaged, of a file with so many. `SEGLOG_CASES` set: nearly each place.
fn step(len: usize) -> usize {
    let few = std::env::var_os("SEGLOG_CASES").is_none();
    match len {
        0..LARGE if few => 41,
        0..LARGE => 1,
        _ if few => 65_537,
        _ => 1021,
    }
}

/// Damages a part of the folder at each place in a way, and checks what is left.
fn each_place(part: &str, way: fn(&mut Vec<u8>, usize)) -> u64 {
    let mut missing = 0;
    for left in STOPS.map(write) {
        for segment in left.segments(part) {
            let (path, len) = (&left.files[segment].0, left.files[segment].1.len());
            for at in (0..len).step_by(step(len)).chain([len - 1]) {
                let what = format!("{:?}, byte {at} of {path}", left.stop);
                match left.opened(|files| way(&mut files[segment].1, at)) {
                    // The header of a segment says so itself.
                    Err(KeepError::Log(OpenError::Corrupt { .. } | OpenError::Version { .. })) => {
                        assert!(at < 64, "{what}");
                    }
                    Err(error) => panic!("{what}: {error}"),
                    Ok((store, recovered)) => missing += left.check(&what, &store, &recovered),
                }
            }
        }
    }
    missing
}

fn flip(file: &mut [u8], at: usize) {
    file[at] ^= 0x10;
}

#[test]
fn a_damaged_log_takes_nothing_silently() {
    assert!(each_place("log", |file, at| flip(file, at)) > 0);
    assert!(each_place("log", Vec::truncate) > 0);
}

#[test]
fn a_damaged_journal_takes_no_message() {
    assert_eq!(each_place("publishers", |file, at| flip(file, at)), 0);
    assert_eq!(each_place("publishers", Vec::truncate), 0);
}

#[test]
fn bytes_that_were_added_take_nothing() {
    for left in STOPS.map(write) {
        for part in ["log", "publishers"] {
            let last = *left.segments(part).last().expect("segments");
            let own = left.files[last].1[64..].to_vec();
            for len in (1..400).step_by(step(0)) {
                for added in [vec![0; len], vec![0xa5; len], own[..len.min(own.len())].to_vec()] {
                    let (store, recovered) =
                        left.opened(|files| files[last].1.extend(&added)).expect("it opens");
                    let what = format!("{:?}, {len} bytes behind {}", left.stop, left.files[last].0);
                    assert_eq!(left.check(&what, &store, &recovered), 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_machine_that_stops_after_the_first_delivery_uses_no_position_again() {
    for seed in 0..50 {
        let disk = SimStorage::new(seed);
        drop(open(&disk).expect("a new store"));
        let (mut store, _) = open(&disk).expect("it opens again");
        append(&mut store, place(0, 0), b"seen by a subscriber");
        let seen = store.log.end();
        disk.crash();
        drop(store);
        let (store, _) = open(&disk).expect("it opens");
        assert!(store.log.end() >= seen, "seed {seed}: {} has a meaning already", store.log.end());
    }
}
