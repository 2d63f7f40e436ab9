//! Appends: from batches to records in the last segment.

use std::io::IoSlice;

use crate::error::{AppendError, FileError};
use crate::format::{self, Kind, RECORD_HEADER, RecordHeader};
use crate::shared::OpenFile;
use crate::storage::MAX_PARTS;
use crate::writer::Writer;

/// A batch that is to be appended. A batch without parts is the end of a hole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending<'a> {
    position: u64,
    parts: &'a [&'a [u8]],
    /// The kind of the positions between the end of the log and the batch: a hole, or lost data.
    gap: Kind,
}

impl<'a> Pending<'a> {
    pub(crate) fn batch(position: u64, parts: &'a [&'a [u8]]) -> Self {
        Self { position, parts, gap: Kind::Hole }
    }

    /// The end of a range whose data is gone.
    pub(crate) fn lost(to: u64) -> Self {
        Self { position: to, parts: &[], gap: Kind::Lost }
    }

    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    fn end(&self) -> u64 {
        self.position + self.len()
    }

    /// The most bytes of the batch in the file, with a hole before it.
    fn stored(&self) -> u64 {
        2 * RECORD_HEADER as u64 + 8 + format::aligned(self.len())
    }

    /// The most parts of a write: two headers, the hole, the payload, the padding.
    fn slices(&self) -> usize {
        4 + self.parts.len()
    }

    fn payload_crc(&self) -> u32 {
        self.parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
    }
}

/// A record of a write that is under way.
struct Ready {
    header: RecordHeader,
    hole: [u8; 8],
    /// The place of the batch among those of the write; `None` for a hole.
    batch: Option<usize>,
    end: u64,
}

impl Writer {
    /// Appends batches in order.
    pub(crate) fn write(&mut self, batches: &[Pending<'_>]) -> Result<u64, AppendError> {
        self.check(batches)?;
        let mut rest = batches;
        while !rest.is_empty() {
            self.prepare(rest[0].stored())?;
            let count = self.fitting(rest);
            self.write_group(&rest[..count])?;
            rest = &rest[count..];
        }
        self.sync_if_due()
    }

    /// Checks the sizes and the order of the batches.
    fn check(&self, batches: &[Pending<'_>]) -> Result<(), AppendError> {
        let mut end = self.end();
        let max = u64::from(self.shared.options.max_batch);
        for batch in batches {
            let len = batch.len();
            if len > max {
                return Err(AppendError::TooLarge { len, max });
            }
            if batch.position < end {
                return Err(AppendError::Overlap { position: batch.position, end });
            }
            end = batch.position.checked_add(len).ok_or(AppendError::PastTheEnd)?;
        }
        Ok(())
    }

    /// Makes the last segment ready for a record of this size.
    fn prepare(&mut self, bytes: u64) -> Result<(), AppendError> {
        let end = self.end();
        self.repair().map_err(|error| AppendError::NotWritten { end, source: error.source })?;
        self.cut_torn().map_err(|source| AppendError::NotWritten { end, source })?;
        let options = &self.shared.options;
        let (limit, age) = (options.segment_bytes, options.segment_age);
        let now = age.map_or(0, |_| self.shared.storage.now());
        let full = {
            let mut state = self.shared.state.lock();
            let last = state.last();
            let old =
                age.is_some_and(|age| u128::from(now.abs_diff(last.records.first_time)) >= age.as_millis());
            last.sealed || last.records.records > 0 && (last.records.len + bytes > limit || old)
        };
        if full { self.roll() } else { Ok(()) }
    }

    /// How many of the batches fit into one write to the last segment: at least one.
    fn fitting(&self, batches: &[Pending<'_>]) -> usize {
        let used = self.shared.state.lock().last().records.len;
        let mut room = self.shared.options.segment_bytes.saturating_sub(used);
        let mut slices = MAX_PARTS;
        let fits = |batch: &&Pending<'_>| {
            let fits = batch.stored() <= room && batch.slices() <= slices;
            room = room.saturating_sub(batch.stored());
            slices = slices.saturating_sub(batch.slices());
            fits
        };
        batches.iter().take_while(fits).count().max(1)
    }

    /// Writes batches as records to the last segment, and shows them to readers.
    fn write_group(&mut self, batches: &[Pending<'_>]) -> Result<(), AppendError> {
        let time = self.shared.storage.now();
        let (seed, offset, end, durable, file) = {
            let mut state = self.shared.state.lock();
            let (end, durable) = (state.end, state.durable);
            let last = state.last();
            let OpenFile { file, .. } = last.open.clone().expect("the last segment is open for writing");
            (last.seed, last.records.len, end, durable, file)
        };
        let records = records(batches, end, time, durable);
        if records.is_empty() {
            return Ok(());
        }
        let mut headers = std::mem::take(&mut self.headers);
        headers.clear();
        records.iter().for_each(|record| headers.extend_from_slice(&record.header.encode(seed)));
        let mut slices = slices(&records, batches, &headers);
        let written = file.write_all(&mut slices, offset);
        self.headers = headers;
        if let Err(source) = written {
            self.torn = true;
            self.shared.change(|state| state.stats.failed_writes += 1);
            // If the torn end cannot be cut now, the next append cuts it first.
            let _ = self.cut_torn();
            let path = self.shared.path(self.shared.state.lock().last().base);
            return Err(AppendError::NotWritten { end, source: FileError::new("write", &path)(source) });
        }
        if let (Some(mark), Some(last)) = (&self.shared.mark, records.last()) {
            // Before anybody learns of the new end.
            mark.note(last.end, durable);
        }
        self.publish(&records);
        Ok(())
    }

    fn publish(&mut self, records: &[Ready]) {
        let interval = self.shared.options.index_interval;
        let scheduled = self.shared.change(|state| {
            for record in records {
                let last = state.last();
                last.records.push(&record.header, record.end, interval);
                last.file_len = last.records.len;
                state.end = record.end;
                state.last_time = record.header.time;
                if record.batch.is_some() {
                    state.stats.batches += 1;
                    state.stats.bytes += u64::from(record.header.len);
                } else {
                    state.stats.holes += 1;
                    state.stats.hole_bytes += record.end - record.header.position;
                }
            }
            std::mem::replace(&mut state.scheduled, true)
        });
        if !scheduled && let Some(ticker) = &mut self.ticker {
            ticker.schedule();
        }
    }

    /// Cuts the bytes that a failed append left behind the last record.
    pub(crate) fn cut_torn(&mut self) -> Result<(), FileError> {
        if !self.torn {
            return Ok(());
        }
        let (file, len, path) = {
            let mut state = self.shared.state.lock();
            let last = state.last();
            (last.open.clone().map(|open| open.file), last.records.len, self.shared.path(last.base))
        };
        let Some(file) = file else { return Ok(()) };
        file.set_len(len).map_err(FileError::new("cut", &path))?;
        self.torn = false;
        // The torn bytes that are cut may be on the disk already. They must not come back when the next append is lost
        // in a crash.
        self.shared.sync_last(true).map(drop).map_err(|error| error.source)
    }

    fn sync_if_due(&mut self) -> Result<u64, AppendError> {
        let (end, durable) = {
            let state = self.shared.state.lock();
            (state.end, state.durable)
        };
        if self.shared.options.sync.bytes().is_some_and(|bytes| end - durable >= bytes) {
            self.shared.sync().map_err(|error| AppendError::NotDurable {
                end,
                durable: error.durable,
                source: error.source,
            })?;
        }
        Ok(end)
    }
}

/// The records of some batches, and of the holes between them.
fn records(batches: &[Pending<'_>], mut end: u64, time: u64, durable: u64) -> Vec<Ready> {
    let mut records = Vec::with_capacity(batches.len());
    for (at, batch) in batches.iter().enumerate() {
        if batch.position > end {
            let hole = format::encode_hole(batch.position);
            let payload_crc = crc32c::crc32c(&hole);
            let header = RecordHeader { kind: batch.gap, position: end, len: 8, payload_crc, time, durable };
            records.push(Ready { header, hole, batch: None, end: batch.position });
        }
        let len = batch.len();
        if len > 0 {
            let header = RecordHeader {
                kind: Kind::Data,
                position: batch.position,
                len: len as u32,
                payload_crc: batch.payload_crc(),
                time,
                durable,
            };
            records.push(Ready { header, hole: [0; 8], batch: Some(at), end: batch.end() });
        }
        end = batch.end();
    }
    records
}

/// The memory of records in the order of the file.
fn slices<'a>(records: &'a [Ready], batches: &[Pending<'a>], headers: &'a [u8]) -> Vec<IoSlice<'a>> {
    let mut slices = Vec::with_capacity(records.len() * 4);
    for (record, header) in records.iter().zip(headers.chunks_exact(RECORD_HEADER)) {
        slices.push(IoSlice::new(header));
        match record.batch {
            None => slices.push(IoSlice::new(&record.hole)),
            Some(at) => slices.extend(batches[at].parts.iter().map(|part| IoSlice::new(part))),
        }
        let len = u64::from(record.header.len);
        slices.push(IoSlice::new(&[0; 8][..(format::aligned(len) - len) as usize]));
    }
    slices
}
