//! A log that was cut at every byte, and one with damage at every byte.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges")]

use std::sync::Arc;

use seglog::{HoleCause, Log, OpenError, Options, Read, ReadMode, SyncPolicy};
use seglog_sim::SimStorage;

const SEGMENT: &str = "log/00000000000000000000.seg";

fn options() -> Options {
    Options::default().segment_bytes(4096).index_interval(64).sync(SyncPolicy::Never)
}

fn open(disk: &SimStorage) -> Result<Log, OpenError> {
    Log::open_on(Arc::new(disk.clone()), "log", options())
}

fn byte(position: u64) -> u8 {
    (position * 13 + 5) as u8
}

/// A segment with batches of these sizes, with a hole of 3 before each third, and where each record ends: in the file and in the log.
fn segment(sizes: &[usize], sync_each: bool) -> (Vec<u8>, Vec<(usize, u64)>) {
    let disk = SimStorage::new(1);
    let mut log = open(&disk).expect("a new log");
    let mut ends = vec![(64, 0)];
    let here = |log: &Log| (disk.contents(SEGMENT).expect("the segment").len(), log.end());
    for (at, size) in sizes.iter().enumerate() {
        if at % 3 == 2 {
            log.append_hole(log.end() + 3).expect("a hole");
            ends.push(here(&log));
        }
        let bytes: Vec<u8> = (log.end()..log.end() + *size as u64).map(byte).collect();
        log.append(&bytes).expect("an append");
        ends.push(here(&log));
        if sync_each {
            log.sync().expect("a sync");
        }
    }
    log.sync().expect("a sync");
    (disk.contents(SEGMENT).expect("the segment"), ends)
}

/// Reads all of a log. Returns the damaged ranges and the end.
fn read_all(log: &Log) -> (Vec<std::ops::Range<u64>>, u64) {
    let (mut reader, mut at, mut damaged) = (log.reader(), log.first(), Vec::new());
    loop {
        match reader.read(at).expect("a read") {
            Read::Batch(batch) => {
                assert!(batch.bytes.iter().enumerate().all(|(i, b)| *b == byte(at + i as u64)), "at {at}");
                at = batch.end();
            }
            Read::Hole(hole) => {
                assert_eq!(hole.range.start, at);
                at = hole.range.end;
                if hole.cause == HoleCause::Damaged {
                    damaged.push(hole.range);
                }
            }
            Read::End { end } => {
                assert_eq!(end, at);
                return (damaged, end);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The end of the last record that is whole in the first `len` bytes. Padding is no part of it.
fn whole(ends: &[(usize, u64)], file: &[u8], len: usize) -> u64 {
    let starts = ends.iter().map(|(offset, _)| *offset);
    let mut end = 0;
    for (start, (_, position)) in starts.zip(&ends[1..]) {
        let payload = u32::from_le_bytes(file[start + 16..start + 20].try_into().expect("a length")) as usize;
        if start + 48 + payload <= len {
            end = *position;
        }
    }
    end
}

#[test]
fn a_cut_at_every_byte_leaves_the_whole_records() {
    let (file, ends) = segment(&[5, 100, 1, 64, 200, 7, 333], false);
    for len in 0..=file.len() {
        let disk = SimStorage::new(2);
        disk.set_contents(SEGMENT, file[..len].to_vec());
        let opened = open(&disk);
        if len < 64 {
            // A segment gets its name when its header is on the disk, so this is damage: nothing is removed without being told.
            assert!(matches!(opened, Err(OpenError::Corrupt { .. })), "{len}");
            assert_eq!(disk.contents(SEGMENT).map(|file| file.len()), Some(len));
            continue;
        }
        let mut log = opened.expect("it opens");
        let end = whole(&ends, &file, len);
        assert_eq!(read_all(&log), (vec![], end), "cut at {len}");
        assert!(log.recovery().damaged.is_empty());
        // The log goes on there, also after another crash.
        let bytes: Vec<u8> = (end..end + 50).map(byte).collect();
        log.append(&bytes).expect("an append");
        log.sync().expect("a sync");
        disk.crash();
        drop(log);
        assert_eq!(read_all(&open(&disk).expect("it opens")), (vec![], end + 50));
    }
}

#[test]
fn a_cut_sealed_segment_is_read_as_far_as_it_goes() {
    let disk = SimStorage::new(3);
    let mut log = open(&disk).expect("a new log");
    while log.stats().segments < 3 {
        let bytes: Vec<u8> = (log.end()..log.end() + 700).map(byte).collect();
        log.append(&bytes).expect("an append");
    }
    let end = log.close().expect("it closes");
    let file = disk.contents(SEGMENT).expect("the segment");
    let next = 700 * 5;
    for len in (0..=file.len()).step_by(37).chain([file.len() - 1]) {
        disk.set_contents(SEGMENT, file[..len].to_vec());
        let log = open(&disk).expect("the other segments are whole");
        let records = len.saturating_sub(64) as u64 / 752;
        let left = (records.min(5) * 700).max(if len >= 64 + records as usize * 752 + 748 {
            records * 700 + 700
        } else {
            0
        });
        let missing = log.recovery().damaged.clone();
        if len < 64 {
            assert_eq!((log.first(), missing), (next, vec![0..next]), "{len}");
        } else {
            let expected: Vec<_> = std::iter::once(left..next).filter(|range| !range.is_empty()).collect();
            assert_eq!(missing, expected, "{len}");
            assert_eq!(read_all(&log), (expected, end));
        }
    }
}

#[test]
fn damage_of_durable_data_is_a_hole_and_hides_nothing_else() {
    let sizes = [50, 60, 70, 80, 90];
    let (file, ends) = segment(&sizes, true);
    let end = ends.last().expect("records").1;
    for at in 64..file.len() {
        let disk = SimStorage::new(4);
        let mut bytes = file.clone();
        bytes[at] ^= 0x10;
        disk.set_contents(SEGMENT, bytes);
        let log = open(&disk).expect("it opens");
        let (damaged, found) = read_all(&log);
        let record = ends.iter().rposition(|(offset, _)| *offset <= at).expect("a record");
        let range = ends[record].1..ends[record + 1].1;
        match &damaged[..] {
            // Padding, or the last record, of which nothing later says that it was durable.
            [] if found == end => {
                let payload =
                    u32::from_le_bytes(file[ends[record].0 + 16..][..4].try_into().expect("a length"));
                assert!(at >= ends[record].0 + 48 + payload as usize, "{at}");
            }
            [] => assert_eq!((found, range.end), (range.start, end), "{at}"),
            _ => {
                assert_eq!((&damaged, found), (&vec![range.clone()], end), "{at}");
                assert_eq!(log.recovery().damaged, [range]);
            }
        }
    }
}

#[test]
fn damage_of_a_sealed_segment_is_found_when_it_is_read() {
    for mode in [ReadMode::Copy, ReadMode::Map] {
        let disk = SimStorage::new(5);
        let mut log = open(&disk).expect("a new log");
        while log.stats().segments < 2 {
            let bytes: Vec<u8> = (log.end()..log.end() + 300).map(byte).collect();
            log.append(&bytes).expect("an append");
        }
        let end = log.close().expect("it closes");
        let mut file = disk.contents(SEGMENT).expect("the segment");
        // The third batch, and the header of the fifth.
        file[64 + 2 * 352 + 100] ^= 1;
        file[64 + 4 * 352 + 9] ^= 1;
        disk.set_contents(SEGMENT, file);
        let log = Log::open_on(Arc::new(disk.clone()), "log", options().read_mode(mode)).expect("it opens");
        assert_eq!(log.recovery().scanned_segments, 1, "only the last one");
        let inside = log.reader().read(777).expect("a read");
        assert!(matches!(inside, Read::Hole(hole) if hole.range == (777..900)));
        assert_eq!(read_all(&log), (vec![600..900, 1200..1500], end));
        assert_eq!(log.stats().damaged_reads, 3);
        assert_eq!(log.stats().damaged_bytes, 600, "each range counts once");
    }
}

#[test]
fn segments_of_another_log_or_version_are_refused() {
    let (file, _) = segment(&[10, 20], true);
    let disk = SimStorage::new(6);
    let mut log = open(&disk).expect("a new log");
    log.append(&[1; 100]).expect("an append");
    log.close().expect("it closes");
    let own = disk.contents(SEGMENT).expect("the segment");

    disk.set_contents("log/00000000000000000100.seg", own.clone());
    assert!(matches!(open(&disk), Err(OpenError::Corrupt { .. })), "the name is another position");
    let mut other = file.clone();
    other[16..24].copy_from_slice(&100u64.to_le_bytes());
    let crc = crc32c::crc32c(&other[..60]);
    other[60..64].copy_from_slice(&crc.to_le_bytes());
    disk.set_contents("log/00000000000000000100.seg", other);
    let refused = open(&disk).expect_err("it is of another log");
    assert!(refused.to_string().contains("another log"), "{refused}");

    let disk = SimStorage::new(7);
    let mut newer = own;
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_le_bytes());
    disk.set_contents(SEGMENT, newer);
    assert!(matches!(open(&disk), Err(OpenError::Version { version: 2, .. })));
}
