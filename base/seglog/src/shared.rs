//! The state that the writer and the readers of a log share.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use locks::{Condvar, Mutex, MutexGuard};

use crate::error::{FileError, SyncError, WaitError};
use crate::format::{self, IndexEntry, SegmentHeader};
use crate::mark::MarkWriter;
use crate::options::Options;
use crate::scan::Survey;
use crate::storage::{File, Storage};

/// The most damaged ranges that are remembered. More are counted each time that a reader meets them.
const MAX_DAMAGE: usize = 1024;

/// Counters of a log since it was opened, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Batches that were appended.
    pub batches: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Holes that were marked.
    pub holes: u64,
    /// Positions in these holes.
    pub hole_bytes: u64,
    /// Appends that failed and left the log as it was.
    pub failed_writes: u64,
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Segments that were written anew after a failed sync.
    pub repairs: u64,
    /// Positions that were appended and that such a segment does not have any more: the system had forgotten them.
    pub lost_bytes: u64,
    /// Segments that retention removed.
    pub removed_segments: u64,
    /// Positions in these segments.
    pub removed_bytes: u64,
    /// Segments that retention could not remove; the next attempt includes them.
    pub failed_removals: u64,
    /// How far the clock has stepped ahead, in milliseconds, while nothing is removed for the age that it says: for the first ten minutes.
    /// 0: the clock goes as usual, or there is no limit of age.
    pub clock_ahead_ms: u64,
    /// Positions whose data is damaged or missing, as far as the opening and readers have found them.
    pub damaged_bytes: u64,
    /// Reads that met damaged data.
    pub damaged_reads: u64,
    /// Segments of the log at present.
    pub segments: u64,
    /// Bytes of their files.
    pub file_bytes: u64,
}

/// A segment of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) seed: u32,
    /// Whether the segment is complete: nobody writes to it any more.
    pub(crate) sealed: bool,
    /// How often the file was replaced by another one.
    pub(crate) generation: u64,
    /// Its records. The index is empty while the file is not open.
    pub(crate) records: Survey,
    /// Bytes of the file.
    pub(crate) file_len: u64,
    pub(crate) open: Option<OpenFile>,
    /// When a reader looked for the file last, in the log's own count.
    pub(crate) used: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct OpenFile {
    pub(crate) file: Arc<dyn File>,
    pub(crate) map: Option<Bytes>,
}

impl Segment {
    /// A segment of which nothing was read yet.
    pub(crate) fn fresh(header: SegmentHeader, file: Arc<dyn File>) -> Self {
        let records = Survey::empty(header.base);
        let file_len = records.len;
        let open = Some(OpenFile { file, map: None });
        let (base, seed) = (header.base, header.seed());
        Self { base, seed, sealed: false, generation: 0, records, file_len, open, used: 0 }
    }

    /// The last index entry at or before a position, where to start to look for it, and the bytes of the file up to the next entry.
    pub(crate) fn floor(&self, position: u64) -> (IndexEntry, u64) {
        let Survey { index, len, .. } = &self.records;
        let after = index.partition_point(|entry| entry.position <= position);
        let start = IndexEntry { position: self.base, offset: format::SEGMENT_HEADER as u64 };
        let floor = after.checked_sub(1).map_or(start, |at| index[at]);
        let end = index.get(after).map_or(*len, |next| next.offset);
        (floor, end.saturating_sub(floor.offset))
    }
}

#[derive(Debug)]
pub(crate) struct State {
    /// In order of their bases; never empty.
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) end: u64,
    /// When the last batch was appended, since the log was opened.
    pub(crate) last_time: u64,
    /// The bytes below this position are on the disk.
    pub(crate) durable: u64,
    /// A sync failed, and the bytes above `durable` were not written anew yet.
    pub(crate) suspect: bool,
    /// Whether there is a writer.
    pub(crate) writer: bool,
    /// The ticker knows that there is something to sync.
    pub(crate) scheduled: bool,
    /// Threads that wait for a change.
    pub(crate) waiting: usize,
    pub(crate) uses: u64,
    pub(crate) stats: Stats,
    /// The damaged ranges that `stats` counts, the first few of them.
    damage: Vec<Range<u64>>,
}

impl State {
    pub(crate) fn new(segments: VecDeque<Segment>, end: u64, durable: u64) -> Self {
        Self {
            segments,
            end,
            last_time: 0,
            durable,
            suspect: false,
            writer: true,
            scheduled: false,
            waiting: 0,
            uses: 0,
            stats: Stats::default(),
            damage: Vec::new(),
        }
    }

    /// Counts the positions of damage, each once.
    pub(crate) fn note_damage(&mut self, damaged: Range<u64>) {
        let touches = |known: &mut Range<u64>| known.start <= damaged.end && damaged.start <= known.end;
        let mut merged = damaged.clone();
        for known in self.damage.extract_if(.., touches) {
            self.stats.damaged_bytes -= known.end - known.start;
            merged = merged.start.min(known.start)..merged.end.max(known.end);
        }
        self.stats.damaged_bytes += merged.end - merged.start;
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(merged);
        }
    }

    pub(crate) fn first(&self) -> u64 {
        self.segments.front().map_or(self.end, |segment| segment.base)
    }

    pub(crate) fn last(&mut self) -> &mut Segment {
        self.segments.back_mut().expect("a log has a segment")
    }

    /// The segment whose range of positions includes this one.
    pub(crate) fn at(&self, position: u64) -> Option<usize> {
        self.segments.partition_point(|segment| segment.base <= position).checked_sub(1)
    }

    pub(crate) fn find(&mut self, base: u64) -> Option<&mut Segment> {
        let at = self.segments.binary_search_by_key(&base, |segment| segment.base).ok()?;
        self.segments.get_mut(at)
    }

    /// Where the positions of a segment end: at the next one.
    pub(crate) fn limit(&self, at: usize) -> u64 {
        self.segments.get(at + 1).map_or(self.end, |next| next.base)
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) log_id: [u8; 16],
    pub(crate) state: Mutex<State>,
    /// The end, the durable end, or the writer changed.
    pub(crate) changed: Condvar,
    /// Held during a sync, and while the file of the last segment is replaced. Taken before `state`.
    pub(crate) sync_turn: Mutex<()>,
    /// There where another process writes the log. Held while one reader looks for more.
    pub(crate) follows: Option<Mutex<()>>,
    pub(crate) after_sync: OnceLock<AfterSync>,
    /// There where this process writes the log.
    pub(crate) mark: Option<MarkWriter>,
    /// Positions at the end that were not in the files when they were opened for reading only, although they were written.
    pub(crate) missing: Range<u64>,
}

/// The function that a thread which syncs in intervals calls after each of its syncs.
pub(crate) struct AfterSync(pub(crate) Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for AfterSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AfterSync")
    }
}

impl Shared {
    pub(crate) fn path(&self, base: u64) -> PathBuf {
        self.dir.join(format::file_name(base))
    }

    /// Applies a change and wakes the threads that wait for it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        result
    }

    /// Makes the bytes durable that were appended before the call.
    pub(crate) fn sync(&self) -> Result<u64, SyncError> {
        self.sync_last(false)
    }

    /// The same at the end of an interval. The next append begins another interval.
    pub(crate) fn sync_tick(&self) -> Result<u64, SyncError> {
        self.state.lock().scheduled = false;
        let synced = self.sync();
        if let Some(AfterSync(call)) = self.after_sync.get() {
            call();
        }
        synced
    }

    /// The same as [`sync`](Self::sync), also if only bytes that are no record were written (`always`).
    pub(crate) fn sync_last(&self, always: bool) -> Result<u64, SyncError> {
        let _turn = self.sync_turn.lock();
        let (file, path, end) = {
            let mut state = self.state.lock();
            let (durable, end) = (state.durable, state.end);
            if durable == end && !always {
                return Ok(durable);
            }
            let last = state.last();
            let path = self.path(last.base);
            let file = last.open.as_ref().map(|open| Arc::clone(&open.file));
            let Some(file) = file.filter(|_| !state.suspect) else {
                let earlier = std::io::Error::other("an earlier sync failed");
                return Err(SyncError { durable, source: FileError::new("sync", &path)(earlier) });
            };
            (file, path, end)
        };
        let result = file.sync();
        let synced = self.change(|state| match result {
            Ok(()) => {
                state.durable = state.durable.max(end);
                state.stats.syncs += 1;
                Ok(state.durable)
            }
            Err(source) => {
                state.suspect = true;
                state.stats.failed_syncs += 1;
                Err(SyncError { durable: state.durable, source: FileError::new("sync", &path)(source) })
            }
        });
        if let (Some(mark), Ok(durable)) = (&self.mark, &synced) {
            mark.note_durable(*durable, self.storage.now());
        }
        synced
    }

    /// Waits until the condition holds. Returns whether it does; not, when the time is over.
    fn wait_for(
        &self,
        state: &mut MutexGuard<'_, State>,
        timeout: Option<Duration>,
        holds: impl Fn(&State) -> bool,
    ) -> bool {
        // A time that is too far away for the clock is no limit.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        state.waiting += 1;
        while !holds(state) {
            match until {
                None => self.changed.wait(state),
                Some(until) if self.changed.wait_until(state, until).timed_out() => break,
                Some(_) => {}
            }
        }
        state.waiting -= 1;
        holds(state)
    }

    /// Waits until the log (`durable`: its durable part) goes beyond a position, or there is no writer. Returns the end.
    pub(crate) fn wait_beyond(&self, position: u64, durable: bool, timeout: Option<Duration>) -> u64 {
        let mut state = self.state.lock();
        let end = |state: &State| if durable { state.durable } else { state.end };
        self.wait_for(&mut state, timeout, |state| end(state) > position || !state.writer);
        end(&state)
    }

    /// Waits until the bytes below a position are durable.
    pub(crate) fn wait_durable(&self, position: u64, timeout: Option<Duration>) -> Result<u64, WaitError> {
        let mut state = self.state.lock();
        let failed = state.stats.failed_syncs;
        let done =
            |state: &State| state.durable >= position || !state.writer || state.stats.failed_syncs != failed;
        let in_time = self.wait_for(&mut state, timeout, done);
        let durable = state.durable;
        match () {
            () if durable >= position => Ok(durable),
            () if !in_time => Err(WaitError::Timeout { durable }),
            () if !state.writer => Err(WaitError::Closed { durable }),
            () => Err(WaitError::SyncFailed { durable }),
        }
    }

    /// Closes the files of the sealed segments that were not used for the longest time, except `keep`.
    pub(crate) fn close_files(&self, state: &mut State, keep: u64) {
        loop {
            let open = state.segments.iter_mut().filter(|s| s.sealed && s.open.is_some() && s.base != keep);
            let mut count = 0;
            let oldest = open.inspect(|_| count += 1).min_by_key(|segment| segment.used);
            let Some(segment) = oldest.filter(|_| count >= self.options.open_segments) else { return };
            segment.open = None;
            segment.records.index = Vec::new();
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.state.lock();
        let file_bytes = state.segments.iter().map(|segment| segment.file_len).sum();
        Stats { segments: state.segments.len() as u64, file_bytes, ..state.stats }
    }

    pub(crate) fn kept(&self) -> Range<u64> {
        let state = self.state.lock();
        state.first()..state.end
    }
}
