//! The times of deliveries after restarts of brokers whose clock is set back.

use seglog_sim::SimStorage;

use super::*;

/// No thread syncs, and the journal has many snapshots.
const QUIET: StoreOptions = StoreOptions { sync: Duration::from_secs(3600), ..OPTIONS };

fn open(disk: &SimStorage) -> Store {
    Store::open_on(Arc::new(disk.clone()), Path::new("topic"), &topic(), &QUIET).unwrap().0
}

/// The times of all deliveries that are kept.
fn times(store: &Store) -> Vec<(Position, u64)> {
    let (mut reader, mut at, mut found) = (store.reader(), store.log.first(), Vec::new());
    while let Read::Batch(batch) = reader.read(at).unwrap() {
        found.push((batch.position, store.clock().time(batch.position, batch.time)));
        at = batch.end();
    }
    found
}

/// The files of a process that was killed now.
fn killed(disk: &SimStorage) -> SimStorage {
    let copy = SimStorage::new(7);
    for part in ["topic/log", "topic/publishers"] {
        for name in disk.list(Path::new(part)).unwrap() {
            let path = format!("{part}/{name}");
            disk.contents(&path).into_iter().for_each(|bytes| copy.set_contents(&path, bytes));
        }
    }
    copy
}

#[test]
fn times_are_the_same_after_restarts_and_grow() {
    let mut disk = SimStorage::new(7);
    let (mut told, mut publisher) = (Vec::new(), place(0, 0));
    for round in 0..60u64 {
        let mut store = open(&disk);
        // In each round the clock is somewhere else.
        for step in 0..5 {
            disk.set_clock(1_000 + (round * 7919 + step * 104_729) % 5_000 + round * 50);
            let at = store.log.end();
            append(&mut store, publisher, &[1; 60_000]);
            publisher.position += 60_000;
            told.push((at, store.last_time));
        }
        if round % 3 == 0 {
            store.write_snapshot(false).unwrap();
        }
        if round % 2 == 0 {
            let copy = killed(&disk);
            drop(store);
            disk = copy;
        } else {
            drop(store);
        }
        let store = open(&disk);
        let kept = times(&store);
        assert_eq!(kept, told[told.len() - kept.len()..]);
        assert!(kept.is_sorted_by_key(|(_, time)| *time));
    }
    let floors = open(&disk).clock().floors();
    assert!(told[0].0 < floors[0].0 && floors.len() > 1, "{floors:?}");
}
