//! Appends, reads, holes, segments, retention and reopening on real files.

use std::time::Duration;

use seglog::{
    AppendError, HoleCause, Log, OpenError, Options, Read, ReadMode, Reader, Retention, SyncPolicy,
};
use tempfile::TempDir;

fn small() -> Options {
    Options::default().segment_bytes(4096).max_batch(2048).index_interval(256).sync(SyncPolicy::Never)
}

fn open(dir: &TempDir, options: Options) -> Log {
    Log::open(dir.path(), options).expect("the log opens")
}

/// Bytes that tell their position.
fn bytes(position: u64, len: usize) -> Vec<u8> {
    (position..position + len as u64).map(|at| (at * 7 + (at >> 8)) as u8).collect()
}

/// Appends batches of different sizes up to about `end`.
fn fill(log: &mut Log, end: u64) {
    let mut len = 1;
    while log.end() < end {
        let position = log.end();
        log.append(&bytes(position, len)).expect("the batch is appended");
        len = len * 5 % 997 + 1;
    }
}

/// Reads everything from a position on and checks every byte.
fn check(reader: &mut Reader, from: u64) -> u64 {
    let mut position = from;
    loop {
        match reader.read(position).expect("the log can be read") {
            Read::Batch(batch) => {
                assert_eq!(batch.position, position);
                assert_eq!(&batch.bytes[..], bytes(position, batch.bytes.len()));
                position = batch.end();
            }
            Read::End { end } => {
                assert_eq!(end, position);
                return end;
            }
            other => panic!("{other:?} at {position}"),
        }
    }
}

#[test]
fn a_reader_counts_what_it_reads() {
    let dir = TempDir::new().expect("a directory");
    let mut log = open(&dir, small());
    (0..100).for_each(|n| _ = log.append(&bytes(n * 1000, 1000)).expect("the batch is appended"));
    let mut reader = log.reader();
    assert_eq!(reader.read_bytes(), 0);
    check(&mut reader, 0);
    let all = reader.read_bytes();
    assert!((100_000..120_000).contains(&all), "{all}");
    reader.read(50_500).expect("the log can be read");
    let before = reader.read_bytes();
    assert!(before > all);
    reader.read(50_501).expect("the log can be read");
    assert_eq!(reader.read_bytes(), before, "the batch is in memory");
    assert_eq!(reader.clone().read_bytes(), 0);
}

#[test]
fn every_byte_comes_back_through_many_segments_and_reopening() {
    for mode in [ReadMode::Copy, ReadMode::Map] {
        let dir = TempDir::new().expect("a directory");
        let options = small().read_mode(mode).open_segments(2);
        let mut log = open(&dir, options.clone());
        fill(&mut log, 40_000);
        assert!(log.stats().segments > 8, "{:?}", log.stats());
        let end = log.end();
        assert_eq!(check(&mut log.reader(), 0), end);
        assert_eq!(log.close().expect("it closes"), end);

        let mut log = open(&dir, options);
        assert_eq!((log.end(), log.durable(), log.first()), (end, end, 0));
        assert_eq!(log.recovery().torn_bytes, 0);
        assert_eq!(log.recovery().scanned_segments, 1);
        fill(&mut log, 60_000);
        for from in (0..60_000).step_by(777) {
            check(&mut log.reader(), from);
        }
    }
}

#[test]
fn small_reads_in_any_order_find_their_bytes() {
    let dir = TempDir::new().expect("a directory");
    let mut log = open(&dir, small());
    fill(&mut log, 20_000);
    let mut reader = log.reader();
    let mut position = 0;
    for round in 0..2_000u64 {
        position = (position + round * 7919) % 19_000;
        let mut buffer = [0; 300];
        let read = reader.read_into(position, &mut buffer).expect("a read");
        assert_eq!((read.len, read.stopped), (300, None));
        assert_eq!(&buffer[..], bytes(position, 300));
    }
}

#[test]
fn a_time_leads_to_the_first_batch_since_then() {
    let dir = TempDir::new().expect("a directory");
    let mut log = open(&dir, small());
    let mut model: Vec<(u64, u64)> = Vec::new();
    for round in 0..60u64 {
        let position = log.end() + if round % 7 == 3 { 500 } else { 0 };
        log.append_at(position, &bytes(position, 150)).expect("an append");
        let Read::Batch(batch) = log.reader().read(position).expect("a read") else { panic!("it is there") };
        model.push((batch.time, position));
        std::thread::sleep(Duration::from_millis(round % 3));
    }
    assert!(log.stats().segments > 2, "{:?}", log.stats());
    let times = model.iter().flat_map(|(time, _)| [time - 1, *time, time + 1]);
    for time in times.chain([0, u64::MAX]) {
        let first = model.iter().find(|(at, _)| *at >= time).map_or(log.end(), |(_, position)| *position);
        assert_eq!(log.reader().find_time(time).expect("a search"), first, "since {time}");
    }
}

#[test]
fn holes_are_told_and_stay() {
    let dir = TempDir::new().expect("a directory");
    let mut log = open(&dir, small().first_position(1000));
    log.append_at(1010, b"ten").expect("an append");
    log.append_hole(2000).expect("a hole");
    log.append_many(&[(2000, b"a"), (2001, b"b"), (2010, b"c")]).expect("appends");
    assert_eq!((log.stats().holes, log.stats().hole_bytes), (3, 10 + 987 + 8));
    log.close().expect("it closes");

    let log = open(&dir, small());
    let mut reader = log.reader();
    let mut told = Vec::new();
    let mut position = 1000;
    loop {
        match reader.read(position).expect("a read") {
            Read::Batch(batch) => position = batch.end(),
            Read::Hole(hole) => {
                assert_eq!(hole.cause, HoleCause::Marked);
                position = hole.range.end;
                told.push(hole.range);
            }
            Read::End { end } => break assert_eq!(end, 2011),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, [1000..1010, 1013..2000, 2002..2010]);
    let inside = reader.read(1500).expect("a read");
    assert!(matches!(inside, Read::Hole(hole) if hole.range == (1500..2000)));
    let mut buffer = [0; 8];
    let read = reader.read_into(2001, &mut buffer).expect("a read");
    assert_eq!((read.len, buffer[0]), (1, b'b'));
    assert!(matches!(read.stopped, Some(Read::Hole(_))));
    assert_eq!(reader.read(999).expect("a read"), Read::Removed { first: 1000 });
}

#[test]
fn what_cannot_be_appended_changes_nothing() {
    let dir = TempDir::new().expect("a directory");
    let mut log = open(&dir, small());
    log.append(b"0123456789").expect("an append");
    assert!(matches!(log.append_at(9, b"x"), Err(AppendError::Overlap { position: 9, end: 10 })));
    assert!(matches!(log.append(&[0; 2049]), Err(AppendError::TooLarge { len: 2049, max: 2048 })));
    assert!(matches!(log.append_at(u64::MAX, b"x"), Err(AppendError::PastTheEnd)));
    let second_overlaps: &[(u64, &[u8])] = &[(10, b"abc"), (12, b"d")];
    assert!(matches!(log.append_many(second_overlaps), Err(AppendError::Overlap { position: 12, end: 13 })));
    assert_eq!((log.append(b"").expect("nothing"), log.end()), (10, 10));
}

#[test]
fn there_is_one_writer() {
    let dir = TempDir::new().expect("a directory");
    let log = open(&dir, small());
    assert!(matches!(Log::open(dir.path(), small()), Err(OpenError::Locked(_))));
    drop(log);
    open(&dir, small());
}

#[test]
fn retention_removes_whole_segments_and_tells_readers() {
    let dir = TempDir::new().expect("a directory");
    let retention = Retention { max_bytes: Some(16 << 10), ..Retention::default() };
    let mut log = open(&dir, small().retention(retention));
    let mut slow = log.reader();
    log.append(&bytes(0, 10)).expect("an append");
    assert!(matches!(slow.read(0).expect("a read"), Read::Batch(_)));
    fill(&mut log, 100_000);
    let stats = log.stats();
    assert!(stats.file_bytes <= 20 << 10 && stats.removed_segments > 10, "{stats:?}");
    assert_eq!(stats.removed_bytes, log.first());
    let Read::Removed { first } = slow.read(0).expect("a read") else { panic!("it is removed") };
    assert_eq!(first, log.first());
    check(&mut slow, first);
    let middle = (log.first() + log.end()) / 2;
    let first = log.release(middle).expect("removed");
    assert!(first <= middle && middle - first < 8192);
    let end = log.end();
    drop(log);
    let log = open(&dir, small());
    assert_eq!((log.first(), log.end()), (first, end));
    assert!(log.recovery().damaged.is_empty());
}

#[test]
fn segments_stay_where_one_batch_is_more_than_the_limit() {
    let dir = TempDir::new().expect("a directory");
    let retention = Retention { max_bytes: Some(16 << 10), min_segments: 4, ..Retention::default() };
    let mut log = open(&dir, small().max_batch(1 << 20).retention(retention));
    for _ in 0..5 {
        let large = log.end();
        log.append(&bytes(large, 100_000)).expect("an append");
        let then = log.end();
        log.append(&bytes(then, 10)).expect("an append");
        log.apply_retention().expect("removed");
        // This one, and the one before.
        let kept = if large == 0 { 0 } else { large - 100_010 };
        assert_eq!(log.first(), kept);
        check(&mut log.reader(), kept);
    }
    // Small ones take their place, and the limit is met again.
    let end = log.end() + 100_000;
    fill(&mut log, end);
    log.apply_retention().expect("removed");
    assert!(log.stats().file_bytes <= 20 << 10, "{:?}", log.stats());
}

#[test]
fn a_follower_sees_every_append_and_the_end() {
    let dir = TempDir::new().expect("a directory");
    let mut log = open(&dir, small().sync(SyncPolicy::Interval(Duration::from_millis(2))));
    let mut follow = log.reader().follow(0);
    let follower = std::thread::spawn(move || {
        loop {
            match follow.next(None).expect("a read") {
                Read::Batch(batch) => assert_eq!(&batch.bytes[..], bytes(batch.position, batch.bytes.len())),
                Read::End { end } => return end,
                other => panic!("{other:?}"),
            }
        }
    });
    fill(&mut log, 50_000);
    let end = log.end();
    let reader = log.reader();
    assert!(reader.wait_durable(end, None).expect("the thread syncs") >= end);
    drop(log);
    assert_eq!(follower.join().expect("it ends"), end);
    assert!(reader.is_closed());
}

#[test]
fn another_process_reads_what_is_whole() {
    let dir = TempDir::new().expect("a directory");
    assert!(matches!(Reader::open(dir.path(), small()), Err(OpenError::Missing(_))));
    let mut log = open(&dir, small());
    fill(&mut log, 3_000);
    // This reader works as one of another process does: it shares nothing but the files.
    let mut reader = Reader::open(dir.path(), small()).expect("it opens");
    assert_eq!(reader.id(), log.id());
    assert_eq!(check(&mut reader, 0), log.end());
    fill(&mut log, 30_000);
    assert_eq!(check(&mut reader, 0), log.end());
    let end = log.end();
    assert_eq!(reader.wait(end, Some(Duration::from_millis(20))).expect("a wait"), end);
    fill(&mut log, end + 1);
    assert!(reader.wait(end, None).expect("a wait") > end);
    log.release(15_000).expect("removed");
    // The file may still be open.
    assert!(matches!(reader.clone().read(0).expect("a read"), Read::Removed { .. } | Read::Batch(_)));
    check(&mut reader, log.first());
}

/// A reader that jumps in both directions, in segments that are open, closed and still written, between batches of all sizes.
#[test]
fn a_reader_goes_back_and_forth() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().segment_bytes(512 << 10).open_segments(2).index_interval(4 << 10);
    let mut log = Log::open(dir.path(), options).expect("a log");
    let mut reader = log.reader();
    let mut expected = Vec::new();
    let mut random = 1_u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for round in 0..200 {
        let size = [1, 100, 3000, 40_000, 150_000][draw(5)];
        let batch: Vec<u8> = (0..size).map(|at| (at * 7 + round) as u8).collect();
        log.append(&batch).expect("an append");
        expected.extend_from_slice(&batch);
        for _ in 0..20 {
            let from = draw(expected.len());
            let mut bytes = vec![0; (1 + draw(2000)).min(expected.len() - from)];
            let read = reader.read_into(from as u64, &mut bytes).expect("a read");
            assert_eq!((read.len, read.stopped), (bytes.len(), None));
            assert!(bytes == expected[from..from + bytes.len()], "{} bytes from {from} on", bytes.len());
        }
    }
    assert!(log.stats().segments > 5);
}

/// Whatever the umask: the user of the process alone reads what others have sent.
#[test]
fn folders_and_files_are_for_their_user() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let folder = dir.path().join("topics/one");
    let mut log = Log::open(&folder, Options::default()).expect("a log");
    fill(&mut log, 1000);
    let files = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let paths: Vec<_> = files.chain([dir.path().join("topics"), folder.clone()]).collect();
    assert!(paths.len() >= 4, "a segment and a lock: {paths:?}");
    for path in paths {
        let mode = std::fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}", path.display());
    }
}
