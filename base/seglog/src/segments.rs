//! The life of segment files: begun, completed, written anew, removed.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{AppendError, FileError, SyncError};
use crate::format::{self, Kind, RECORD_HEADER, RecordHeader, SEGMENT_HEADER, SegmentHeader};
use crate::scan::{self, Step, Survey, Window};
use crate::shared::{OpenFile, Segment, State};
use crate::storage::{File, OpenMode, Storage};
use crate::writer::Writer;

/// The name under which a file is prepared: a segment that has its own name is whole, whenever the machine stopped.
fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("seg.tmp")
}

/// Prepares a file under another name, and puts it durably in its place.
fn put(
    storage: &dyn Storage,
    path: &Path,
    fill: impl FnOnce(&Arc<dyn File>) -> io::Result<()>,
) -> Result<Arc<dyn File>, FileError> {
    let tmp = unfinished(path);
    let prepared = (|| {
        let file = storage.open(&tmp, OpenMode::Create)?;
        fill(&file)?;
        file.sync()?;
        Ok(file)
    })();
    let file = prepared.map_err(|error| {
        // The unfinished file takes room that others may need. If the file stays, the next opening of the log removes
        // it.
        let _ = storage.remove(&tmp);
        FileError::new("write", &tmp)(error)
    })?;
    storage.rename(&tmp, path).map_err(FileError::new("rename", &tmp))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    storage.sync_dir(dir).map_err(FileError::new("sync", dir))?;
    Ok(file)
}

/// Makes a new segment, which is durable when this returns.
pub(crate) fn create(
    storage: &dyn Storage,
    dir: &Path,
    base: u64,
    log_id: [u8; 16],
) -> Result<Segment, FileError> {
    let path = dir.join(format::file_name(base));
    let mut salt = [0; 8];
    storage.random(&mut salt).map_err(FileError::new("create", &path))?;
    let header = SegmentHeader { base, log_id, created: storage.now(), salt: u64::from_le_bytes(salt) };
    let file = put(storage, &path, |file| file.write_all(&mut [IoSlice::new(&header.encode())], 0))?;
    Ok(Segment::fresh(header, file))
}

/// The last segment, as it is at this moment.
struct Last {
    base: u64,
    seed: u32,
    sealed: bool,
    file: Option<Arc<dyn File>>,
    path: PathBuf,
    len: u64,
    end: u64,
}

impl Writer {
    fn last(&self) -> Last {
        let mut state = self.shared.state.lock();
        let last = state.last();
        Last {
            base: last.base,
            seed: last.seed,
            sealed: last.sealed,
            file: last.open.as_ref().map(|open| Arc::clone(&open.file)),
            path: self.shared.path(last.base),
            len: last.records.len,
            end: last.records.end,
        }
    }

    /// Completes the last segment and begins the next one. Limits of retention that can be met now are.
    pub(crate) fn roll(&mut self) -> Result<(), AppendError> {
        let end = self.end();
        let not_written = |source| AppendError::NotWritten { end, source };
        if !self.last().sealed {
            self.seal().map_err(not_written)?;
        }
        let segment =
            create(&*self.shared.storage, &self.shared.dir, end, self.shared.log_id).map_err(not_written)?;
        self.shared.change(|state| {
            state.segments.push_back(segment);
            self.shared.close_files(state, end);
        });
        // A segment that cannot be removed is counted, and tried again with the next segment.
        let _ = self.retain();
        Ok(())
    }

    /// Writes the seal behind the last record. All records are durable before the segment counts as sealed.
    fn seal(&mut self) -> Result<(), FileError> {
        let Last { seed, file: Some(file), path, len, end, .. } = self.last() else { return Ok(()) };
        let payload = self.shared.state.lock().last().records.seal().encode();
        let header = RecordHeader {
            kind: Kind::Seal,
            position: end,
            len: payload.len() as u32,
            payload_crc: crc32c::crc32c(&payload),
            time: self.shared.storage.now(),
            durable: self.durable(),
        };
        let padding = &[0; 8][..(format::aligned(payload.len() as u64) as usize - payload.len())];
        let (head, tail) = (header.encode(seed), format::encode_trailer(seed, len));
        let mut parts = [&head[..], &payload, padding, &tail].map(IoSlice::new);
        if let Err(error) = file.write_all(&mut parts, len) {
            self.torn = true;
            // If the torn end cannot be cut now, the next append cuts it first.
            let _ = self.cut_torn();
            return Err(FileError::new("complete", &path)(error));
        }
        // Until the sync succeeds the records are followed by a seal that does not count: the next append cuts it.
        self.torn = true;
        self.shared.sync_last(true).map_err(|error| error.source)?;
        self.torn = false;
        self.shared.change(|state| {
            let last = state.last();
            last.sealed = true;
            last.file_len = len + header.stored() + tail.len() as u64;
            // Readers open the file again, as the sealed one.
            last.open = None;
            last.records.index = Vec::new();
        });
        Ok(())
    }

    /// Completes the last segment if it is older than segments may be.
    pub(crate) fn roll_old(&mut self) -> Result<(), AppendError> {
        let Some(age) = self.shared.options.segment_age else { return Ok(()) };
        let now = self.shared.storage.now();
        let old = {
            let mut state = self.shared.state.lock();
            let Segment { records, sealed, .. } = state.last();
            let old = u128::from(now.abs_diff(records.first_time)) >= age.as_millis();
            !*sealed && records.records > 0 && old
        };
        if !old {
            return Ok(());
        }
        let end = self.end();
        self.repair().map_err(|error| AppendError::NotWritten { end, source: error.source })?;
        self.cut_torn().map_err(|source| AppendError::NotWritten { end, source })?;
        self.roll()
    }

    /// Removes segments as the limits say. A clock that has just stepped ahead makes none old.
    pub(crate) fn retain(&mut self) -> Result<u64, FileError> {
        let limits = self.shared.options.retention;
        let storage = &self.shared.storage;
        let (now, ahead) = self.age_clock.look(storage.now(), storage.steady());
        self.shared.state.lock().stats.clock_ahead_ms = if limits.max_age.is_some() { ahead } else { 0 };
        let (held_from, is_held) = (self.held_from, Cell::new(false));
        let first = self.remove_while(|state| {
            let bytes: u64 = state.segments.iter().map(|segment| segment.file_len).sum();
            let age = u128::from(now.saturating_sub(last_write(state)));
            let may_go = state.segments.len() > limits.min_segments;
            let goes = (may_go && limits.max_bytes.is_some_and(|max| bytes > max))
                || limits.max_segments.is_some_and(|max| state.segments.len() > max)
                || limits.max_age.is_some_and(|max| age > max.as_millis());
            is_held.set(goes && state.limit(0) > held_from);
            goes && !is_held.get()
        });
        self.is_held = is_held.get();
        first
    }

    /// Removes the first segment as long as the condition holds and there is another one behind it.
    pub(crate) fn remove_while(&mut self, goes: impl Fn(&State) -> bool) -> Result<u64, FileError> {
        self.sync_removal()?;
        loop {
            let taken = self.shared.change(|state| match state.segments.len() {
                2.. if goes(state) => state.segments.pop_front(),
                _ => None,
            });
            let Some(segment) = taken else { return Ok(self.first()) };
            let base = segment.base;
            let path = self.shared.path(base);
            let removed = match self.shared.storage.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(FileError::new("remove", &path)(error))
                }
                _ => Ok(()),
            };
            self.shared.change(|state| match removed {
                Ok(()) => {
                    state.stats.removed_segments += 1;
                    state.stats.removed_bytes += state.first() - base;
                    Ok(())
                }
                Err(error) => {
                    state.segments.push_front(segment);
                    state.stats.failed_removals += 1;
                    Err(error)
                }
            })?;
            self.unsynced_removal = true;
            self.sync_removal()?;
        }
    }

    /// Makes a removal durable before the next one: after a crash no older segment is there without a newer one.
    fn sync_removal(&mut self) -> Result<(), FileError> {
        if self.unsynced_removal {
            let dir = &self.shared.dir;
            self.shared.storage.sync_dir(dir).map_err(FileError::new("sync", dir))?;
            self.unsynced_removal = false;
        }
        Ok(())
    }

    /// After a failed sync, writes the last segment anew.
    ///
    /// The kernel takes the pages of a failed sync for written, so another sync of the same file would promise too
    /// much. The records are read back, checked, and written to a new file, which then takes the place of the old one.
    /// Records that do not come back are a hole from then on.
    pub(crate) fn repair(&mut self) -> Result<(), SyncError> {
        // Only the writer ends this state, so a look is enough, which does not wait for a sync that is under way.
        if !self.shared.state.lock().suspect {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let _turn = shared.sync_turn.lock();
        if !shared.state.lock().suspect {
            return Ok(());
        }
        let Last { base, seed, file, path, len, end, .. } = self.last();
        let Some(old) = file else { return Ok(()) };
        let mut survey = Survey::empty(base);
        let interval = shared.options.index_interval;
        let mut window = Window::new(Arc::clone(&old), len, None);
        let mut lost = 0;
        let put = put(&*shared.storage, &path, |new| {
            let header = window.get(0, SEGMENT_HEADER)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            new.write_all(&mut [IoSlice::new(&header)], 0)?;
            let time = shared.storage.now();
            lost = copy(&mut window, new, seed, &mut survey, Copying { end, interval, time })?;
            Ok(())
        });
        let file = put.map_err(|source| {
            let durable = shared.state.lock().durable;
            SyncError { durable, source }
        })?;
        shared.change(|state| {
            let last = state.last();
            last.generation += 1;
            last.file_len = survey.len;
            last.records = survey;
            last.open = Some(OpenFile { file, map: None });
            state.durable = state.end;
            state.suspect = false;
            state.stats.repairs += 1;
            state.stats.lost_bytes += lost;
        });
        self.torn = false;
        Ok(())
    }
}

/// The parameters and the progress of a copy of records.
struct Copying {
    /// The position after the last record.
    end: u64,
    interval: u64,
    time: u64,
}

/// When the oldest segment was written last. A clock that was ahead has left a time that is too late; the segments behind it began
/// later, so the earliest of their times bounds it.
fn last_write(state: &State) -> u64 {
    let behind = state.segments.iter().skip(1).filter(|segment| segment.records.records > 0);
    behind.map(|segment| segment.records.first_time).fold(state.segments[0].records.last_time, u64::min)
}

/// Copies records to a new file, with holes for those that are damaged. Returns the positions in these holes.
fn copy(
    window: &mut Window,
    new: &Arc<dyn File>,
    seed: u32,
    survey: &mut Survey,
    copying: Copying,
) -> io::Result<u64> {
    let (mut offset, mut lost) = (survey.len, 0);
    while survey.end < copying.end {
        let (header, payload, end) = match scan::record_at(window, seed, offset, survey.end)? {
            Step::Record(record) => {
                offset = record.next;
                (record.header, record.payload, record.end)
            }
            Step::End | Step::Bad => {
                let next = scan::next_header(window, seed, offset + 8, survey.end)?;
                let end = next.map_or(copying.end, |next| next.position);
                offset = next.map_or(window.limit(), |next| next.offset);
                let hole = format::encode_hole(end);
                let payload_crc = crc32c::crc32c(&hole);
                let (position, time) = (survey.end, copying.time);
                lost += end - position;
                let header =
                    RecordHeader { kind: Kind::Lost, position, len: 8, payload_crc, time, durable: 0 };
                (header, hole.to_vec().into(), end)
            }
        };
        let padding = &[0; 8][..header.stored() as usize - RECORD_HEADER - payload.len()];
        let head = header.encode(seed);
        new.write_all(&mut [&head[..], &payload, padding].map(IoSlice::new), survey.len)?;
        survey.push(&header, end, copying.interval);
    }
    Ok(lost)
}
