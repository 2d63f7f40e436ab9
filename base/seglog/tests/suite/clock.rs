//! Retention by age with a clock that jumps.

use std::sync::Arc;
use std::time::Duration;

use seglog::{Log, Options, Read, Retention, SyncPolicy};
use seglog_sim::SimStorage;

const AGE: u64 = 60_000;
const YEAR: u64 = 365 * 24 * 3600 * 1000;
const NOW: u64 = 50 * YEAR;

fn open(disk: &SimStorage) -> Log {
    let age = Some(Duration::from_millis(AGE));
    let options = Options::default()
        .segment_bytes(4096)
        .segment_age(age)
        .sync(SyncPolicy::Never)
        .retention(Retention { max_age: age, ..Retention::default() });
    Log::open_on(Arc::new(disk.clone()), "log", options).expect("a log")
}

/// A log with two segments and a bit, written at this time.
fn written(disk: &SimStorage, time: u64) -> Log {
    disk.set_clock(time);
    let mut log = open(disk);
    for _ in 0..5 {
        log.append(&[1; 1900]).expect("an append");
    }
    assert_eq!(log.stats().segments, 3);
    log
}

#[test]
fn a_clock_that_jumps_ahead_makes_complete_segments_old_and_readers_learn_it() {
    let disk = SimStorage::new(1);
    let mut log = written(&disk, NOW);
    disk.set_clock(NOW + 10 * YEAR);
    log.append(&[2; 100]).expect("an append");
    // The last segment was old as well and is complete, so a new one has begun.
    assert_eq!((log.first(), log.end()), (9_500, 9_600));
    assert!(matches!(log.reader().read(0), Ok(Read::Removed { first: 9_500 })));
    assert_eq!(log.stats().removed_bytes, 9_500);
}

#[test]
fn a_clock_that_jumps_back_removes_nothing_early() {
    let disk = SimStorage::new(2);
    let mut log = written(&disk, NOW);
    disk.set_clock(NOW - 10 * YEAR);
    log.apply_retention().expect("retention");
    log.append(&[2; 100]).expect("an append");
    disk.advance(AGE - 1);
    log.apply_retention().expect("retention");
    assert_eq!((log.first(), log.end()), (0, 9_600), "everything is there");
}

/// The times in segments of a clock that was ahead say nothing, and those behind them do.
#[test]
fn a_clock_that_was_ahead_keeps_nothing_for_ever() {
    for reopened in [false, true] {
        let disk = SimStorage::new(3);
        let mut log = written(&disk, NOW + 10 * YEAR);
        disk.set_clock(NOW);
        log.append(&[2; 100]).expect("an append");
        if reopened {
            drop(log);
            log = open(&disk);
        }
        disk.advance(AGE + 1);
        log.apply_retention().expect("retention");
        assert_eq!(
            (log.first(), log.end()),
            (9_600, 9_600),
            "a minute after the clock was right, all is old"
        );
    }
}
