//! The log and the journal of a topic, damaged in every way after each kind of stop: what was stored is there or is told to be missing,
//! no position gets a second meaning, and no publisher goes on behind what is stored.

use seglog::HoleCause;
use seglog_sim::{Fault, SimStorage};

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

/// A machine that stops at any moment, whose disk has any of what it had not synced: no publisher sends again what the log has.
#[test]
fn a_machine_that_stops_has_no_delivery_whose_publisher_it_does_not_know() {
    for seed in 0..400 {
        let (disk, mut random) = (SimStorage::new(seed), testkit::Random::new(seed));
        let (mut store, _) = open(&disk).expect("a new store");
        let (mut deliveries, mut publishers) = (Vec::new(), 0);
        for _ in 0..random.between(2, 20) {
            let number = if random.percent(30) { publishers } else { random.below(publishers + 1) };
            publishers = publishers.max(number + 1);
            let number = number as u32;
            let last: Option<&Delivery> =
                deliveries.iter().rev().find(|one: &&Delivery| one.place.number == number);
            // Now and then a publisher has lost bytes.
            let lost = if random.percent(20) { random.between(1, 50) } else { 0 };
            let position = last.map_or(0, |last| last.place.position) + lost;
            let (at, bytes) = (store.log.end(), vec![number as u8; random.between(1, 900) as usize]);
            append(&mut store, place(number, position), &bytes);
            let place = place(number, position + bytes.len() as u64);
            deliveries.push(Delivery { at, place, bytes });
            match random.below(10) {
                // A publisher waits for the disk.
                0..3 => _ = store.log.sync().expect("a sync"),
                3 => _ = store.journal.sync().expect("a sync"),
                4 => store.write_snapshot(false).expect("it is written"),
                _ => {}
            }
        }
        disk.crash();
        drop(store);
        let (store, recovered) = open(&disk).expect("it opens");
        let mut reader = store.reader();
        for delivery in &deliveries {
            let Read::Batch(batch) = reader.read(delivery.at).expect("a read") else { continue };
            assert!(batch.bytes.ends_with(&delivery.bytes), "seed {seed}");
            let known = recovered.places.iter().find(|place| place.number == delivery.place.number);
            let known = known.map(|place| place.position);
            assert!(
                known >= Some(delivery.place.position),
                "seed {seed}: publisher {} is at {known:?}, and the log has it up to {}",
                delivery.place.number,
                delivery.place.position
            );
        }
    }
}

/// The journal begins another segment, and the one before goes, just before the machine stops.
#[test]
fn a_machine_that_stops_has_the_snapshot_for_which_others_were_removed() {
    let open = |disk: &SimStorage| {
        let options = StoreOptions { max_publishers: 20_000, ..QUIET };
        Store::open_on(Arc::new(disk.clone()), Path::new(DIR), &topic(), &options)
    };
    for seed in 0..10 {
        let disk = SimStorage::new(seed);
        let (mut store, _) = open(&disk).expect("a new store");
        append(&mut store, place(0, 0), b"first");
        let syncs = store.journal.stats().syncs;
        // More than a segment.
        let all: Vec<Place> = (1..9_000).map(|number| place(number, 0)).collect();
        assert!(!store.knows(all[0]));
        store.begin_all(&all).expect("the disk takes them");
        assert!(store.knows(*all.last().expect("many")));
        let spent = store.journal.stats().syncs - syncs;
        assert!(spent <= 3, "{spent} syncs for all of them, and for the segment");
        append(&mut store, place(0, 5), b"last");
        store.log.sync().expect("a sync");
        store.write_snapshot(false).expect("it is written");
        assert_eq!(store.journal.stats().segments, 1, "what was before is removed");
        disk.crash();
        drop(store);
        let (_, recovered) = open(&disk).expect("it opens");
        let first = recovered.places.first().map(|place| (place.number, place.position));
        assert_eq!(first, Some((0, 9)), "seed {seed}");
    }
}

/// The disk had no room for the entry of a publisher, which tries again.
#[test]
fn a_publisher_that_the_journal_had_no_room_for_is_in_it_when_its_delivery_is_there() {
    for fault in [Fault::Write, Fault::Sync] {
        let disk = SimStorage::new(3);
        let (mut store, _) = open(&disk).expect("a new store");
        append(&mut store, place(0, 0), b"first");
        disk.fail(fault, 0, 1);
        let run = [&run_header(1, 4).expect("a short run")[..], b"next"].concat();
        assert!(store.append(place(1, 5), 4, &run).is_err(), "{fault:?}");
        assert!(!store.knows(place(1, 5)));
        store.append(place(1, 5), 4, &run).expect("there is room");
        store.log.sync().expect("a sync");
        disk.crash();
        drop(store);
        let (_, recovered) = open(&disk).expect("it opens");
        let place = recovered.places.iter().find(|place| place.number == 1);
        assert_eq!(place.map(|place| place.position), Some(9), "{fault:?}");
    }
}
