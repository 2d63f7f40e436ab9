//! A store against its own past: after a crash, a restart or a new limit it continues exactly where it was.

use std::fs;

use rbmq_wire::run_header;
use seglog::OpenError;

use super::super::super::session_key::SessionKey;
use super::super::folder::{folder, read_name};
use super::*;

mod clock;
mod ends;
mod trail;

const OPTIONS: StoreOptions = StoreOptions {
    max_bytes: Some(4 << 20),
    max_age: None,
    sync: Duration::from_millis(1),
    max_delivery: 1 << 20,
    max_publishers: 100,
    begin: None,
    is_shared: false,
};

fn topic() -> TopicName {
    "plant/sensors".parse().unwrap()
}

fn place(number: u32, position: Position) -> Place {
    let key = SessionKey { instance: 5, client: number.into() };
    Place { number, key, bid: 1, epoch: Epoch(number.into()), position, lacks_below: 0 }
}

fn append(store: &mut Store, place: Place, bytes: &[u8]) {
    let run = [&run_header(place.number, bytes.len()).unwrap()[..], bytes].concat();
    store.append(place, bytes.len() as u64, &run).unwrap();
}

/// A copy of a killed process's folder: the files, and no lock.
fn killed(from: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for part in ["", "log", "publishers"] {
        fs::create_dir_all(copy.path().join(part)).unwrap();
        for file in fs::read_dir(from.join(part)).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                fs::copy(&path, copy.path().join(part).join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    copy
}

#[test]
fn a_killed_store_continues_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, empty) = Store::open(dir.path(), &topic(), &OPTIONS).unwrap();
    assert_eq!((empty.last.0, empty.places.len(), empty.next_number), (0, 0, 0));
    let (mut first, mut second) = (place(0, 100), place(1, 0));
    first.lacks_below = 100;
    for round in 0..50u64 {
        append(&mut store, first, &[1; 10]);
        first.position += 10;
        // The second publisher loses bytes now and then.
        if round % 7 == 0 {
            second.position += 1;
            second.lacks_below = second.position;
        }
        append(&mut store, second, &[2; 20]);
        second.position += 20;
        let copy = killed(dir.path());
        let (again, recovered) = Store::open(copy.path(), &topic(), &OPTIONS).unwrap();
        assert_eq!(recovered.places, [first, second]);
        assert_eq!((recovered.next_number, recovered.epoch), (2, empty.epoch));
        assert_eq!(again.log.end(), store.log.end());
        assert_eq!((recovered.last.0, recovered.last.1.len()), (store.log.end() - 28, 28));
    }
}

#[test]
fn the_log_is_larger_than_the_journal_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path(), &topic(), &OPTIONS).unwrap();
    let mut publisher = place(0, 0);
    for _ in 0..100 {
        append(&mut store, publisher, &[3; 500_000]);
        publisher.position += 500_000;
    }
    assert!(store.log.first() > 0, "the limit removed old data");
    let copy = killed(dir.path());
    let (_, recovered) = Store::open(copy.path(), &topic(), &OPTIONS).unwrap();
    assert_eq!(recovered.places, [publisher]);
    assert_eq!(recovered.last.1.len(), 0, "the last delivery is too large for every ring to have it");
    assert_eq!(recovered.last.0, store.log.end());
}

/// The journal was on the disk before the log: nobody knows whose bytes are missing, so nothing of before is confirmed, also later.
#[test]
fn what_a_log_lacks_that_the_journal_counts_is_lacking_for_its_publishers() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path(), &topic(), &OPTIONS).unwrap();
    append(&mut store, place(0, 0), b"here");
    let early = killed(dir.path());
    append(&mut store, place(0, 4), b"gone");
    store.write_snapshot(false).unwrap();
    let late = killed(dir.path());
    fs::remove_dir_all(late.path().join("log")).unwrap();
    fs::rename(early.path().join("log"), late.path().join("log")).unwrap();
    let expected = Place { lacks_below: 8, ..place(0, 8) };
    let (again, recovered) = Store::open(late.path(), &topic(), &OPTIONS).unwrap();
    assert_eq!((again.log.end(), recovered.places), (store.log.end(), vec![expected]));
    let (_, recovered) = Store::open(killed(late.path()).path(), &topic(), &OPTIONS).unwrap();
    assert_eq!(recovered.places, [expected]);
}

#[test]
fn a_machine_that_crashed_uses_no_position_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = Store::open(dir.path(), &topic(), &OPTIONS).unwrap();
    append(&mut store, place(0, 0), b"seen");
    store.boot = 1;
    store.write_snapshot(false).unwrap();
    let copy = killed(dir.path());
    let (again, recovered) = Store::open(copy.path(), &topic(), &OPTIONS).unwrap();
    assert!(again.log.end() >= store.log.end() + UNSYNCED_BYTES);
    assert_eq!(recovered.last, (again.log.end(), Bytes::new()));
    assert_eq!(recovered.places[0].position, 4);
    // A broker that was stopped in order lost nothing, whatever happened to the machine afterwards.
    let end = store.log.end();
    drop(store);
    let (again, _) = Store::open(dir.path(), &topic(), &OPTIONS).unwrap();
    assert_eq!(again.log.end(), end);
}

#[test]
fn folders_belong_to_one_topic() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path(), &topic(), &OPTIONS).unwrap());
    let other = Store::open(dir.path(), &"other".parse().unwrap(), &OPTIONS).unwrap_err();
    assert!(other.to_string().contains("it belongs to topic 'plant/sensors'"), "{other}");
    assert_eq!(read_name(dir.path()).unwrap(), Some(topic()));
    assert_eq!(folder(&topic()), "plant%2Fsensors");
    assert_eq!(folder(&".a".parse().unwrap()), "%2Ea");
    let long = |end: char| format!("{}{end}", "ä".repeat(120)).parse().unwrap();
    let (one, two) = (folder(&long('a')), folder(&long('b')));
    assert!(one.len() <= 200 && one != two, "{one} {two}");
}

#[test]
fn a_second_writer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path(), &topic(), &OPTIONS).unwrap();
    let refused = Store::open(dir.path(), &topic(), &OPTIONS).unwrap_err();
    assert!(matches!(refused, KeepError::Log(OpenError::Locked(_))), "{refused}");
    drop(first);
    Store::open(dir.path(), &topic(), &OPTIONS).unwrap();
}
