//! Walks the records of a segment file.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::format::{self, IndexEntry, Kind, RECORD_HEADER, RecordHeader, SEGMENT_HEADER, Seal, TRAILER};
use crate::storage::File;

/// The least number of bytes that a read fetches, so that small records do not cost a system call each.
const READ_AHEAD: u64 = 64 << 10;

/// The first `limit` bytes of a file, of which a part is in memory.
#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<dyn File>,
    limit: u64,
    /// The bytes in memory, from `start` on: the whole file where it is mapped.
    chunk: Bytes,
    start: u64,
    /// The least number of bytes that a read elsewhere than at the end of the chunk fetches.
    aimed: u64,
}

impl Window {
    pub(crate) fn new(file: Arc<dyn File>, limit: u64, map: Option<Bytes>) -> Self {
        Self { file, limit, chunk: map.unwrap_or_default(), start: 0, aimed: READ_AHEAD }
    }

    /// Lets the window see more of a file that grew.
    pub(crate) fn extend(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Tells how much is of use at the next place, if it is none that the last reads led to.
    pub(crate) fn aim(&mut self, len: u64) {
        self.aimed = len.min(READ_AHEAD);
    }

    /// These bytes of the file; `None` if they are not all below the limit.
    pub(crate) fn get(&mut self, offset: u64, len: usize) -> io::Result<Option<Bytes>> {
        Ok(self.find(offset, len)?.map(|range| self.chunk.slice(range)))
    }

    /// The same for as long as nothing else is read.
    pub(crate) fn peek(&mut self, offset: u64, len: usize) -> io::Result<Option<&[u8]>> {
        Ok(self.find(offset, len)?.map(|range| &self.chunk[range]))
    }

    /// Where in the chunk these bytes are, which are read if they are not there.
    fn find(&mut self, offset: u64, len: usize) -> io::Result<Option<std::ops::Range<usize>>> {
        let Some(end) = offset.checked_add(len as u64).filter(|end| *end <= self.limit) else {
            return Ok(None);
        };
        if offset < self.start || end > self.start + self.chunk.len() as u64 {
            let follows = (self.start..=self.start + self.chunk.len() as u64).contains(&offset);
            let ahead = if follows { READ_AHEAD } else { self.aimed };
            self.load(offset, (len as u64).max(ahead).min(self.limit - offset) as usize)?;
        }
        let from = (offset - self.start) as usize;
        Ok((from + len <= self.chunk.len()).then_some(from..from + len))
    }

    fn load(&mut self, offset: u64, len: usize) -> io::Result<()> {
        // The memory of the last chunk is used again where no view of it is left, and only what it lacks is filled with zeros.
        let mut memory = std::mem::take(&mut self.chunk).try_into_mut().unwrap_or_else(|_| BytesMut::new());
        memory.resize(len, 0);
        let read = self.file.read_full(&mut memory, offset)?;
        memory.truncate(read);
        (self.chunk, self.start) = (memory.freeze(), offset);
        Ok(())
    }
}

/// A record that is as it was written.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) header: RecordHeader,
    pub(crate) payload: Bytes,
    /// The position after the record.
    pub(crate) end: u64,
    /// Where the next record starts in the file.
    pub(crate) next: u64,
}

/// The step of a walk at an offset of a segment file.
#[derive(Debug)]
pub(crate) enum Step {
    Record(Record),
    /// No whole record of this position.
    Bad,
    /// The window's limit.
    End,
}

/// Reads the record at an offset, whose position is known.
pub(crate) fn record_at(window: &mut Window, seed: u32, offset: u64, position: u64) -> io::Result<Step> {
    if offset >= window.limit() {
        return Ok(Step::End);
    }
    let Some(header) = header_at(window, seed, offset)?.filter(|header| header.position == position) else {
        return Ok(Step::Bad);
    };
    let payload = window.get(offset + RECORD_HEADER as u64, header.len as usize)?;
    let Some(payload) = payload.filter(|payload| header.matches(payload)) else {
        return Ok(Step::Bad);
    };
    let end = header.end(&payload);
    if matches!(header.kind, Kind::Hole | Kind::Lost) && end <= position {
        return Ok(Step::Bad);
    }
    Ok(Step::Record(Record { header, payload, end, next: offset + header.stored() }))
}

/// Reads the header at an offset.
pub(crate) fn header_at(window: &mut Window, seed: u32, offset: u64) -> io::Result<Option<RecordHeader>> {
    let bytes = window.peek(offset, RECORD_HEADER)?;
    Ok(bytes.and_then(|bytes| RecordHeader::decode(seed, bytes.try_into().expect("a header's length"))))
}

/// A range of positions without data.
pub(crate) type Range = std::ops::Range<u64>;

/// The findings of a walk through a whole segment.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) index: Vec<IndexEntry>,
    pub(crate) first_time: u64,
    pub(crate) last_time: u64,
    pub(crate) records: u64,
    pub(crate) hole_bytes: u64,
    /// The highest durable position that a record tells.
    pub(crate) durable: u64,
    /// Records that are not as they were written.
    pub(crate) damaged: Vec<Range>,
    /// The position after the last good record.
    pub(crate) end: u64,
    /// The offset after the last good record.
    pub(crate) len: u64,
}

impl Survey {
    /// A segment without records.
    pub(crate) fn empty(base: u64) -> Self {
        Self { end: base, len: SEGMENT_HEADER as u64, ..Self::default() }
    }

    /// The survey of a segment as its seal at an offset describes it.
    fn sealed(seal: Seal, header: &RecordHeader, offset: u64) -> Self {
        let Seal { first_time, last_time, records, hole_bytes, index } = seal;
        let (durable, end, len, damaged) = (header.durable, header.position, offset, Vec::new());
        Self { index, first_time, last_time, records, hole_bytes, durable, damaged, end, len }
    }

    /// The seal of a segment with these records.
    pub(crate) fn seal(&self) -> Seal {
        Seal {
            first_time: self.first_time,
            last_time: self.last_time,
            records: self.records,
            hole_bytes: self.hole_bytes,
            index: self.index.clone(),
        }
    }

    /// Counts a record at the end. The record gets an index entry if the last one is `interval` bytes away.
    pub(crate) fn push(&mut self, header: &RecordHeader, end: u64, interval: u64) {
        let offset = self.len;
        if self.index.last().is_none_or(|last| offset - last.offset >= interval) {
            self.index.push(IndexEntry { position: header.position, offset });
        }
        if self.records == 0 {
            self.first_time = header.time;
        }
        self.last_time = self.last_time.max(header.time);
        self.durable = self.durable.max(header.durable);
        self.records += 1;
        if header.kind != Kind::Data {
            self.hole_bytes += end - header.position;
        }
        (self.end, self.len) = (end, offset + header.stored());
    }
}

/// Walks through the records of a segment up to the window's limit or its seal.
///
/// All below the position `kept` was in the file: bytes of it that are no record are damaged, and the walk goes on behind them. Other bytes
/// that are no record were not finished, unless a later record says that they were durable.
pub(crate) fn survey(
    window: &mut Window,
    seed: u32,
    base: u64,
    interval: u64,
    mut kept: u64,
) -> io::Result<Survey> {
    let mut survey = Survey::empty(base);
    // Whether the records behind the first damaged one have to be asked what was durable.
    let mut unasked = kept != u64::MAX;
    loop {
        match record_at(window, seed, survey.len, survey.end)? {
            Step::Record(record) if record.header.kind == Kind::Seal => return Ok(survey),
            Step::Record(record) => survey.push(&record.header, record.end, interval),
            Step::End => return Ok(survey),
            Step::Bad => {
                let after = resume(window, seed, survey.len + 8, survey.end, unasked)?;
                (kept, unasked) = (kept.max(after.durable), false);
                let Some(next) = after.next.filter(|_| kept > survey.end) else { return Ok(survey) };
                survey.damaged.push(survey.end..next.position);
                (survey.end, survey.len) = (next.position, next.offset);
                // A record behind a damaged one can be found without walking only by an entry of its own.
                survey.index.push(next);
            }
        }
    }
}

/// The findings behind a damaged record.
struct After {
    /// The first header behind it.
    next: Option<IndexEntry>,
    /// The highest durable position that a header behind it tells.
    durable: u64,
}

/// The first header of a later position at or behind an offset.
pub(crate) fn next_header(
    window: &mut Window,
    seed: u32,
    from: u64,
    position: u64,
) -> io::Result<Option<IndexEntry>> {
    Ok(resume(window, seed, from, position, false)?.next)
}

/// Looks for a header of a later position, or for `all` of them. A walk asks for all only once, so its time is linear in the size of
/// the file whatever the file contains.
fn resume(window: &mut Window, seed: u32, from: u64, position: u64, all: bool) -> io::Result<After> {
    let mut after = After { next: None, durable: 0 };
    let mut offset = format::aligned(from);
    while offset + RECORD_HEADER as u64 <= window.limit() {
        if let Some(header) = header_at(window, seed, offset)?.filter(|header| header.position > position) {
            after.next.get_or_insert(IndexEntry { position: header.position, offset });
            after.durable = after.durable.max(header.durable);
            if !all {
                break;
            }
        }
        offset += 8;
    }
    Ok(after)
}

/// Reads the seal of a complete segment; `None` if the file does not end with one.
pub(crate) fn load_seal(file: &Arc<dyn File>, seed: u32, len: u64) -> io::Result<Option<Survey>> {
    let Some(trailer_offset) = len.checked_sub(TRAILER as u64) else { return Ok(None) };
    let mut window = Window::new(Arc::clone(file), len, None);
    let Some(trailer) = window.get(trailer_offset, TRAILER)? else { return Ok(None) };
    let trailer = trailer[..].try_into().expect("a trailer's length");
    let Some(offset) = format::decode_trailer(seed, trailer) else { return Ok(None) };
    let Some(header) = header_at(&mut window, seed, offset)?.filter(|header| header.kind == Kind::Seal)
    else {
        return Ok(None);
    };
    let Step::Record(record) = record_at(&mut window, seed, offset, header.position)? else {
        return Ok(None);
    };
    if record.next != trailer_offset {
        return Ok(None);
    }
    Ok(Seal::decode(&record.payload)
        .filter(|seal| {
            seal.index.last().is_none_or(|last| last.offset < offset && last.position < header.position)
        })
        .map(|seal| Survey::sealed(seal, &header, offset)))
}
