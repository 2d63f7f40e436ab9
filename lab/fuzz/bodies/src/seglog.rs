//! The segment log, opened over arbitrary files.

use std::sync::Arc;

use seglog::format::{RECORD_HEADER, SEGMENT_HEADER, SegmentHeader};
use seglog::{Log, Options, Read, Reader};
use seglog_sim::SimStorage;

const FIRST: &str = "log/00000000000000000000.seg";

fn options() -> Options {
    Options::default().segment_bytes(4096).max_batch(1 << 20).index_interval(64)
}

/// Opens a log whose only segment is the input after its first byte. With an odd first byte the checksums of headers are made right
/// first, so that their fields are looked at. Whatever the file is, opening ends, a reader gets to the end, and what it read is still
/// there after appends and a crash.
pub fn seglog_recovery(data: &[u8]) {
    let Some((flags, file)) = data.split_first() else { return };
    let mut file = file.to_vec();
    if flags & 1 == 1 {
        make_right(&mut file);
    }
    let disk = SimStorage::new(u64::from(*flags));
    disk.set_contents(FIRST, file.clone());
    if let Ok(mut reader) = Reader::open_on(Arc::new(disk.clone()), "log", options()) {
        read_all(&mut reader);
    }
    assert_eq!(disk.contents(FIRST), Some(file), "reading changes nothing");
    let Ok(mut log) = Log::open_on(Arc::new(disk.clone()), "log", options()) else { return };
    let found = read_all(&mut log.reader());
    // A log may end at the last position.
    if log.append(b"goes on").is_err() {
        return;
    }
    log.sync().expect("the disk works");
    let end = log.end();
    disk.crash();
    drop(log);
    let log = Log::open_on(Arc::new(disk), "log", options()).expect("what was opened once opens again");
    assert_eq!(log.end(), end);
    let again = read_all(&mut log.reader());
    assert_eq!(again[..found.len()], found, "nothing has changed");
    assert_eq!(again.last(), Some(&(end - 7, end, Some(b"goes on".to_vec()))));
}

/// Ranges with their data, from the first position to the end.
fn read_all(reader: &mut Reader) -> Vec<(u64, u64, Option<Vec<u8>>)> {
    let (mut at, mut all) = (reader.first(), Vec::new());
    loop {
        let (to, bytes) = match reader.read(at).expect("the disk works") {
            Read::Batch(batch) => (batch.end(), Some(batch.bytes.to_vec())),
            Read::Hole(hole) => (hole.range.end, None),
            Read::End { end } => {
                assert_eq!(end, at);
                return all;
            }
            other => panic!("{other:?}"),
        };
        assert!(to > at, "a reader goes forward");
        all.push((at, to, bytes));
        at = to;
    }
}

/// Makes the checksums of the header and of all record headers in a row right.
fn make_right(file: &mut [u8]) {
    let set = |file: &mut [u8], at: usize, crc: u32| file[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    let Some(head) = file.first_chunk::<SEGMENT_HEADER>() else { return };
    let crc = crc32c::crc32c(&head[..60]);
    set(file, 60, crc);
    let head = file.first_chunk::<SEGMENT_HEADER>().expect("it is as long as before");
    let Ok(header) = SegmentHeader::decode(head) else { return };
    let mut at = SEGMENT_HEADER;
    while at + RECORD_HEADER <= file.len() {
        let len = u32::from_le_bytes(file[at + 16..at + 20].try_into().expect("four bytes")) as usize;
        let end = at.saturating_add(RECORD_HEADER).saturating_add(len);
        if let Some(payload) = file.get(at + RECORD_HEADER..end) {
            let crc = crc32c::crc32c(payload);
            set(file, at + 20, crc);
        }
        let crc = crc32c::crc32c_append(header.seed(), &file[at..at + 44]);
        set(file, at + 44, crc);
        at = end.saturating_add(7) & !7;
    }
}
