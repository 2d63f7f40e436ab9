//! Readers: by position, and following the end.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::attach;
use crate::error::{FileError, OpenError, ReadError, WaitError};
use crate::format::{IndexEntry, Kind};
use crate::options::{Options, ReadMode};
use crate::recover;
use crate::scan::{self, Record, Step, Survey, Window};
use crate::shared::{OpenFile, Shared, Stats};
use crate::storage::{OpenMode, OsStorage, Storage};

/// Data of the log, from the position that was asked for to the end of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// The position of the first byte.
    pub position: u64,
    /// The bytes. They stay valid for as long as the value lives, whatever happens to the log.
    pub bytes: Bytes,
    /// The position of the first byte of the whole batch.
    pub batch: u64,
    /// When the batch was appended, in milliseconds since 1970.
    pub time: u64,
}

impl Batch {
    /// The position after the last byte.
    pub fn end(&self) -> u64 {
        self.position + self.bytes.len() as u64
    }
}

/// Why positions have no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HoleCause {
    /// The writer left them out: it appended at a later position.
    Marked,
    /// The log had data there, and it is damaged or missing.
    Damaged,
}

/// A range of positions without data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hole {
    /// The positions, from the one that was asked for.
    pub range: Range<u64>,
    /// Why there is no data.
    pub cause: HoleCause,
}

/// The outcome of a read at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Read {
    /// Data.
    Batch(Batch),
    /// No data, and there never will be. Go on at the end of the range.
    Hole(Hole),
    /// The position was removed by retention. Go on at `first`.
    Removed {
        /// The first position that is kept.
        first: u64,
    },
    /// The position is at the end of the log or beyond: nothing yet.
    End {
        /// The end of the log.
        end: u64,
    },
}

/// How much [`Reader::read_into`] read, and why it stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadInto {
    /// Bytes that were filled.
    pub len: usize,
    /// The outcome of the read after these bytes, if it kept the buffer from being full.
    pub stopped: Option<Read>,
}

/// Reads a log by position.
///
/// A reader finds its place by the index, or goes on where it was. A reader keeps the last batch, so that small reads in
/// one batch read and check it once. Every byte that it returns was checked. A clone is an independent reader.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    durable_only: bool,
    place: Option<Place>,
    read_bytes: u64,
}

/// Where a reader is in a segment.
#[derive(Debug)]
struct Place {
    base: u64,
    generation: u64,
    seed: u32,
    window: Window,
    /// A record at or before the position that was read last.
    at: IndexEntry,
    /// The record there, if it was read.
    record: Option<Record>,
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        Self { durable_only: self.durable_only, ..Self::new(Arc::clone(&self.shared)) }
    }
}

/// The state's answer about a position.
enum Located {
    Answer(Read),
    /// The place is set; positions of the segment end there.
    Segment {
        limit: u64,
    },
    /// The file of this segment is not open.
    Closed {
        base: u64,
    },
}

impl Reader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, durable_only: false, place: None, read_bytes: 0 }
    }

    /// Opens a log for reading only, also while another process writes it. Nothing in the directory is changed.
    ///
    /// The reader sees batches that the other process has written completely. Waits poll, since nobody wakes the readers of
    /// other processes.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(OsStorage), dir, options)
    }

    /// The same on another storage.
    pub fn open_on(
        storage: Arc<dyn Storage>,
        dir: impl AsRef<Path>,
        options: Options,
    ) -> Result<Self, OpenError> {
        attach::attach(storage, dir.as_ref(), options).map(|shared| Self::new(Arc::new(shared)))
    }

    /// Lets the reader see only durable bytes: a crash of the machine does not lose them.
    pub fn durable_only(mut self) -> Self {
        self.durable_only = true;
        self
    }

    /// The name of the log.
    pub fn id(&self) -> [u8; 16] {
        self.shared.log_id
    }

    /// The first position that is kept.
    pub fn first(&self) -> u64 {
        self.shared.kept().start
    }

    /// The position after the last appended byte.
    pub fn end(&self) -> u64 {
        self.shared.kept().end
    }

    /// The positions behind the end that the files should have, and did not when [`Reader::open`] opened them: somebody has cut or damaged
    /// them since. The next writer makes them a hole.
    pub fn missing(&self) -> Range<u64> {
        self.shared.missing.clone()
    }

    /// The bytes below this position are on the disk.
    pub fn durable(&self) -> u64 {
        self.shared.state.lock().durable
    }

    /// Whether the writer closed the log, or there was none when the log was opened for reading.
    pub fn is_closed(&self) -> bool {
        !self.shared.state.lock().writer
    }

    /// The bytes of records that this reader has read and checked so far, wherever it looked for something.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Counters of the log.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Waits until the log goes beyond a position, at most `timeout` (`None`: without limit), or the writer closes it. Returns the
    /// end; the durable end if the reader sees only durable bytes.
    pub fn wait(&self, position: u64, timeout: Option<Duration>) -> Result<u64, ReadError> {
        let shared = &self.shared;
        if shared.follows.is_some() {
            return attach::wait(shared, position, timeout).map_err(|source| ReadError { position, source });
        }
        Ok(shared.wait_beyond(position, self.durable_only, timeout))
    }

    /// Waits until the bytes below a position are on the disk. Returns the durable end. This call only waits: the log's
    /// [`SyncPolicy`](crate::SyncPolicy) or [`Log::sync`](crate::Log::sync) makes the bytes durable.
    pub fn wait_durable(&self, position: u64, timeout: Option<Duration>) -> Result<u64, WaitError> {
        self.shared.wait_durable(position, timeout)
    }

    /// Reads the bytes at a position, up to the end of its batch.
    pub fn read(&mut self, position: u64) -> Result<Read, ReadError> {
        let failed = |source| ReadError { position, source };
        loop {
            match self.locate(position) {
                Located::Answer(Read::End { .. })
                    if attach::refresh(&self.shared, position).map_err(failed)? => {}
                Located::Answer(answer) => return Ok(answer),
                Located::Segment { limit } => {
                    let base = self.place.as_ref().map_or(0, |place| place.base);
                    let read = self.walk(position, limit);
                    return read
                        .map_err(|error| failed(FileError::new("read", &self.shared.path(base))(error)));
                }
                Located::Closed { base } => self.open_file(base).map_err(failed)?,
            }
        }
    }

    /// Copies data to a buffer, across batches, until it is full or something else than data comes.
    pub fn read_into(&mut self, position: u64, buffer: &mut [u8]) -> Result<ReadInto, ReadError> {
        let mut len = 0;
        while len < buffer.len() {
            match self.read(position + len as u64)? {
                Read::Batch(batch) => {
                    let count = batch.bytes.len().min(buffer.len() - len);
                    buffer[len..len + count].copy_from_slice(&batch.bytes[..count]);
                    len += count;
                }
                other => return Ok(ReadInto { len, stopped: Some(other) }),
            }
        }
        Ok(ReadInto { len, stopped: None })
    }

    /// The position of the first batch that was appended at this time (milliseconds since 1970) or later: between the first kept
    /// position and the end, which is the answer if there is no such batch. Reads a few dozen records at most. Where the clock of the
    /// machine was set back, the times of a log are out of order, and the answer is one of the places where they pass `time`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut log = seglog::Log::open(dir.path(), seglog::Options::default())?;
    /// log.append(b"hello")?;
    /// assert_eq!(log.reader().find_time(0)?, 0);
    /// assert_eq!(log.reader().find_time(u64::MAX)?, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find_time(&mut self, time: u64) -> Result<u64, ReadError> {
        let (mut low, mut high) = (self.first(), self.end());
        // Below the answer, the batch at or behind a position is too old; from the answer on it is not.
        while low < high {
            let middle = low + (high - low) / 2;
            match self.batch_behind(middle)? {
                Some(batch) if batch.time < time => low = batch.end(),
                Some(batch) if batch.batch <= middle => high = batch.batch.max(low),
                _ => high = middle,
            }
        }
        Ok(self.batch_behind(low)?.map_or(self.end(), |batch| batch.position))
    }

    /// The batch at a position or, in a hole, the next one.
    fn batch_behind(&mut self, mut position: u64) -> Result<Option<Batch>, ReadError> {
        loop {
            position = match self.read(position)? {
                Read::Batch(batch) => return Ok(Some(batch)),
                Read::Hole(hole) => hole.range.end,
                Read::Removed { first } => first,
                Read::End { .. } => return Ok(None),
            };
        }
    }

    /// Reads on from a position, and waits at the end.
    pub fn follow(self, position: u64) -> Follow {
        Follow { reader: self, position }
    }

    fn locate(&mut self, position: u64) -> Located {
        let mut state = self.shared.state.lock();
        let end = if self.durable_only { state.durable } else { state.end };
        let first = state.first();
        if position < first {
            return Located::Answer(Read::Removed { first });
        }
        let Some(at) = state.at(position).filter(|_| position < end) else {
            return Located::Answer(Read::End { end });
        };
        let limit = state.limit(at);
        state.uses += 1;
        let uses = state.uses;
        let segment = &mut state.segments[at];
        segment.used = uses;
        if position >= segment.records.end {
            let hole = Hole { range: position..limit, cause: HoleCause::Damaged };
            return Located::Answer(Read::Hole(hole));
        }
        let here = |place: &&mut Place| (place.base, place.generation) == (segment.base, segment.generation);
        let place = self.place.as_mut().filter(here);
        let (floor, extent) = segment.floor(position);
        // The index of a segment that was closed is gone, so its places lead forward only.
        if let Some(place) = place.filter(|place| place.at.position <= position || segment.open.is_some()) {
            place.window.extend(segment.records.len);
            if floor.offset > place.at.offset || place.at.position > position {
                (place.at, place.record) = (floor, None);
                place.window.aim(extent);
            }
            return Located::Segment { limit };
        }
        let Some(OpenFile { file, map }) = segment.open.clone() else {
            return Located::Closed { base: segment.base };
        };
        let mut window = Window::new(file, segment.records.len, map);
        window.aim(extent);
        self.place = Some(Place {
            base: segment.base,
            generation: segment.generation,
            seed: segment.seed,
            window,
            at: floor,
            record: None,
        });
        Located::Segment { limit }
    }

    /// Walks to the record of a position.
    fn walk(&mut self, position: u64, limit: u64) -> std::io::Result<Read> {
        loop {
            let Some(place) = &mut self.place else { return Ok(Read::End { end: position }) };
            let record = match place.record.take() {
                Some(record) => record,
                None => {
                    match scan::record_at(&mut place.window, place.seed, place.at.offset, place.at.position)?
                    {
                        Step::Record(record) => {
                            self.read_bytes += record.header.stored();
                            record
                        }
                        _ => {
                            let damaged = place.at.position;
                            let next = place.behind_damage()?;
                            let end = next.map_or(limit, |next| next.position);
                            self.shared.change(|state| {
                                state.stats.damaged_reads += 1;
                                state.note_damage(damaged..end.max(damaged));
                            });
                            match next {
                                Some(next) => place.at = next,
                                None => self.place = None,
                            }
                            if position < end {
                                return Ok(Read::Hole(Hole {
                                    range: position..end,
                                    cause: HoleCause::Damaged,
                                }));
                            }
                            continue;
                        }
                    }
                }
            };
            if position < record.end {
                let read = answer(&record, position);
                place.record = Some(record);
                return Ok(read);
            }
            place.at = IndexEntry { position: record.end, offset: record.next };
        }
    }

    /// Opens the file of a complete segment. A segment that was removed meanwhile is no error: the next look finds it gone.
    fn open_file(&self, base: u64) -> Result<(), FileError> {
        let shared = &self.shared;
        let path = shared.path(base);
        let opened = match recover::open_segment(&*shared.storage, &path, OpenMode::Read) {
            Err(error) => {
                let removed =
                    error.source.kind() == std::io::ErrorKind::NotFound && attach::lost(shared, base);
                return if removed { Ok(()) } else { Err(error) };
            }
            Ok(opened) => opened,
        };
        let damaged = || FileError::new("read", &path)(std::io::ErrorKind::InvalidData.into());
        let opened = opened.map_err(|_| damaged())?;
        let seed = opened.header.seed();
        let (file, len) = (opened.file, opened.len);
        let interval = shared.options.index_interval;
        let load = || -> std::io::Result<(Survey, Option<Bytes>)> {
            let records = match scan::load_seal(&file, seed, len)? {
                Some(records) => records,
                None => {
                    let mut window = Window::new(Arc::clone(&file), len, None);
                    scan::survey(&mut window, seed, base, interval, u64::MAX)?
                }
            };
            let mapped = shared.options.read_mode == ReadMode::Map;
            let map = if mapped { file.map(records.len as usize)? } else { None };
            Ok((records, map))
        };
        let (records, map) = load().map_err(FileError::new("read", &path))?;
        let mut state = shared.state.lock();
        shared.close_files(&mut state, base);
        if let Some(segment) = state.find(base).filter(|segment| segment.open.is_none()) {
            segment.records = records;
            segment.open = Some(OpenFile { file, map });
        }
        Ok(())
    }
}

impl Place {
    /// The next record behind a damaged one.
    fn behind_damage(&mut self) -> std::io::Result<Option<IndexEntry>> {
        scan::next_header(&mut self.window, self.seed, self.at.offset + 8, self.at.position)
    }
}

/// The outcome of a read of a record at a position.
fn answer(record: &Record, position: u64) -> Read {
    let hole = |cause| Read::Hole(Hole { range: position..record.end, cause });
    match record.header.kind {
        Kind::Data => {}
        Kind::Lost => return hole(HoleCause::Damaged),
        Kind::Hole | Kind::Seal => return hole(HoleCause::Marked),
    }
    let from = (position - record.header.position) as usize;
    Read::Batch(Batch {
        position,
        bytes: record.payload.slice(from..),
        batch: record.header.position,
        time: record.header.time,
    })
}

/// Reads a log from a position on, and waits at its end.
#[derive(Debug)]
pub struct Follow {
    reader: Reader,
    position: u64,
}

impl Follow {
    /// The position that is read next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next batch or hole. At the end of the log it waits for more, at most `timeout` (`None`: without limit), and returns
    /// [`Read::End`] when the time is over or the writer closed the log. After [`Read::Removed`] it goes on at the first kept
    /// position.
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Read, ReadError> {
        let mut read = self.reader.read(self.position)?;
        if let Read::End { .. } = read {
            self.reader.wait(self.position, timeout)?;
            read = self.reader.read(self.position)?;
        }
        match &read {
            Read::Batch(batch) => self.position = batch.end(),
            Read::Hole(hole) => self.position = hole.range.end,
            Read::Removed { first } => self.position = *first,
            Read::End { .. } => {}
        }
        Ok(read)
    }
}
