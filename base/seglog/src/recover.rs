//! Opens the segments of a log: whole records are found, an unfinished append is cut, damage is told.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{FileError, OpenError};
use crate::format::{self, NotASegment, SEGMENT_HEADER, SegmentHeader};
use crate::mark::{Known, Marks};
use crate::options::Options;
use crate::scan::{self, Survey, Window};
use crate::shared::Segment;
use crate::storage::{File, OpenMode, Storage};

/// The findings of the opening of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Segments of the log.
    pub segments: usize,
    /// Segments whose records were all checked. The others have a seal, and are checked when they are read.
    pub scanned_segments: usize,
    /// Bytes at the end of the last segment that were no whole record, and were cut.
    pub torn_bytes: u64,
    /// Positions whose data is damaged or missing although it was durable. Readers get them as holes.
    pub damaged: Vec<Range<u64>>,
    /// Positions that were appended, and not durable, before the machine stopped. They may have been read. Readers get them as a hole.
    pub unsynced: Range<u64>,
}

impl Recovery {
    /// Notes what the segments do not have of the end of the log.
    fn miss(&mut self, end: u64, known: Known) {
        if known.kept > end {
            self.damaged.push(end..known.kept);
        }
        self.unsynced = end.max(known.kept)..known.appended.max(known.kept).max(end);
    }

    /// How many positions are [`damaged`](Self::damaged).
    pub fn damaged_bytes(&self) -> u64 {
        self.damaged.iter().map(|range| range.end - range.start).sum()
    }
}

/// The segments of a directory.
pub(crate) struct Found {
    pub(crate) log_id: [u8; 16],
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) recovery: Recovery,
}

/// The header of a segment, and the file.
pub(crate) struct Opened {
    pub(crate) header: SegmentHeader,
    pub(crate) file: Arc<dyn File>,
    pub(crate) len: u64,
}

/// The bases of the segments in a directory, in order; files that were not finished are removed if `clean`.
pub(crate) fn list(storage: &dyn Storage, dir: &Path, clean: bool) -> Result<Vec<u64>, FileError> {
    let names = storage.list(dir).map_err(FileError::new("list", dir))?;
    if clean {
        for name in names
            .iter()
            .filter(|name| name.strip_suffix(".tmp").is_some_and(|n| format::base_of(n).is_some()))
        {
            let path = dir.join(name);
            storage.remove(&path).map_err(FileError::new("remove", &path))?;
        }
    }
    let mut bases: Vec<u64> = names.iter().filter_map(|name| format::base_of(name)).collect();
    bases.sort_unstable();
    Ok(bases)
}

/// Opens a segment and reads its header.
pub(crate) fn open_segment(
    storage: &dyn Storage,
    path: &Path,
    mode: OpenMode,
) -> Result<Result<Opened, NotASegment>, FileError> {
    let file = storage.open(path, mode).map_err(FileError::new("open", path))?;
    let read = || -> io::Result<_> {
        let mut bytes = [0; SEGMENT_HEADER];
        let whole = file.read_full(&mut bytes, 0)? == SEGMENT_HEADER;
        Ok((whole.then_some(bytes), file.size()?))
    };
    let (bytes, len) = read().map_err(FileError::new("read", path))?;
    let header = bytes.ok_or(NotASegment::Damaged).and_then(|bytes| SegmentHeader::decode(&bytes));
    Ok(header.map(|header| Opened { header, file, len }))
}

/// Opens all segments. With `write` the last one is cut after its last whole record and made durable.
pub(crate) fn recover(
    storage: &dyn Storage,
    dir: &Path,
    options: &Options,
    marks: &Marks,
    write: bool,
) -> Result<Option<Found>, OpenError> {
    let bases = list(storage, dir, write)?;
    let mut found = None;
    for (at, base) in bases.iter().enumerate() {
        let last = at + 1 == bases.len();
        let path = dir.join(format::file_name(*base));
        let mode = if last && write { OpenMode::ReadWrite } else { OpenMode::Read };
        match open_segment(storage, &path, mode)? {
            Ok(opened) => {
                let known = marks.known(opened.header.log_id);
                let place = match (last, write) {
                    (false, _) => Where::Before,
                    (true, false) => Where::Read(known),
                    (true, true) => Where::Written(known),
                };
                add(&mut found, opened, &path, *base, options, place)?;
            }
            Err(NotASegment::Version(version)) => return Err(OpenError::Version { path, version }),
            Err(_) if last => {
                return Err(corrupt(
                    &path,
                    "the header is damaged; restore the file, or remove it and lose its data",
                ));
            }
            // The next segment tells that something is missing.
            Err(_) => {}
        }
    }
    if let (Some(found), Some(first)) = (&mut found, bases.first()) {
        let start = found.segments.front().map_or(*first, |segment| segment.base);
        if start > *first {
            found.recovery.damaged.insert(0, *first..start);
        }
        found.recovery.segments = found.segments.len();
    }
    Ok(found)
}

fn corrupt(path: &Path, reason: &str) -> OpenError {
    OpenError::Corrupt { path: path.to_owned(), reason: reason.to_owned() }
}

/// The place of a segment in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    /// Another segment follows.
    Before,
    /// The segment is the last one, and the log is only read.
    Read(Known),
    /// The segment is the last one, and the log has a writer.
    Written(Known),
}

/// Adds a segment behind the others.
fn add(
    found: &mut Option<Found>,
    opened: Opened,
    path: &Path,
    base: u64,
    options: &Options,
    place: Where,
) -> Result<(), OpenError> {
    let Opened { header, .. } = opened;
    let found = found.get_or_insert_with(|| Found {
        log_id: header.log_id,
        segments: VecDeque::new(),
        recovery: Recovery::default(),
    });
    if header.base != base {
        return Err(corrupt(path, "the name does not match the position in the header"));
    }
    if header.log_id != found.log_id {
        return Err(corrupt(path, "the segment belongs to another log"));
    }
    if let Some(before) = found.segments.back() {
        let end = before.records.end;
        if end > base {
            return Err(corrupt(path, "the segment overlaps the one before it"));
        }
        if end < base {
            found.recovery.damaged.push(end..base);
        }
    }
    let segment =
        examine(&mut found.recovery, opened, options, place).map_err(FileError::new("recover", path))?;
    found.segments.push_back(segment);
    Ok(())
}

fn examine(recovery: &mut Recovery, opened: Opened, options: &Options, place: Where) -> io::Result<Segment> {
    let Opened { header, file, len } = opened;
    let mut segment = Segment::fresh(header, Arc::clone(&file));
    segment.file_len = len;
    if let Some(records) = scan::load_seal(&file, segment.seed, len)? {
        if let Where::Written(known) = place {
            recovery.miss(records.end, known);
            // The writer may have stopped between the write of the seal and the sync.
            settle(&file, &records, len)?;
        }
        (segment.sealed, segment.open) = (true, None);
        segment.records = Survey { index: Vec::new(), ..records };
        return Ok(segment);
    }
    let kept = match place {
        Where::Before => u64::MAX,
        Where::Read(known) | Where::Written(known) => known.kept,
    };
    let mut window = Window::new(Arc::clone(&file), len, None);
    segment.records = scan::survey(&mut window, segment.seed, header.base, options.index_interval, kept)?;
    recovery.scanned_segments += 1;
    recovery.damaged.append(&mut segment.records.damaged);
    match place {
        Where::Written(known) => {
            recovery.miss(segment.records.end, known);
            segment.file_len = segment.records.len;
            recovery.torn_bytes = len.saturating_sub(segment.file_len);
            if len != segment.file_len {
                file.set_len(segment.file_len)?;
            }
            settle(&file, &segment.records, segment.file_len)?;
        }
        Where::Read(_) => {}
        Where::Before => {
            (segment.sealed, segment.open) = (true, None);
            segment.records.index = Vec::new();
        }
    }
    Ok(segment)
}

/// Makes the last segment durable.
///
/// The process that wrote it may have died after a failed sync. The kernel then holds pages that it takes for written and that are not
/// on the disk, and another sync would succeed without writing them. So bytes that no record calls durable are written once more.
fn settle(file: &Arc<dyn File>, records: &Survey, len: u64) -> io::Result<()> {
    let at = records.index.partition_point(|entry| entry.position <= records.durable);
    let mut offset = at.checked_sub(1).map_or(0, |at| records.index[at].offset);
    let mut buffer = vec![0; (len - offset).min(256 << 10) as usize];
    while offset < len {
        let wanted = buffer.len().min((len - offset) as usize);
        let read = file.read_full(&mut buffer[..wanted], offset)?;
        if read == 0 {
            break;
        }
        file.write_all(&mut [IoSlice::new(&buffer[..read])], offset)?;
        offset += read as u64;
    }
    file.sync()
}
