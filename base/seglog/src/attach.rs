//! Reading a log that another process writes.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use locks::{Condvar, Mutex};

use crate::error::{FileError, OpenError};
use crate::format::{self, Kind};
use crate::mark::Marks;
use crate::options::Options;
use crate::recover::{self, Found};
use crate::scan::{self, Step, Window};
use crate::shared::{OpenFile, Segment, Shared, State};
use crate::storage::{OpenMode, Storage};

/// How often a wait looks whether there is more.
const POLL: Duration = Duration::from_millis(5);

/// Opens the segments of a log for reading only.
pub(crate) fn attach(storage: Arc<dyn Storage>, dir: &Path, options: Options) -> Result<Shared, OpenError> {
    options.check()?;
    // Before the segments, since the writer of another process goes on. A reader that may not read the marks does without.
    let marks = storage.open(&dir.join(format::LOCK_FILE), OpenMode::Read);
    let marks = marks.and_then(|file| Marks::read(&*file, storage.boot())).unwrap_or_default();
    let found = recover::recover(&*storage, dir, &options, &marks, false)?;
    let Some(Found { log_id, segments, .. }) = found else { return Err(OpenError::Missing(dir.to_owned())) };
    let (end, durable) =
        segments.back().map_or((0, 0), |last| (last.records.end, last.records.durable.max(last.base)));
    let kept = marks.known(log_id).kept;
    let state = State::new(segments, end, durable);
    Ok(Shared {
        storage,
        dir: dir.to_owned(),
        options,
        log_id,
        state: Mutex::new(state),
        changed: Condvar::new(),
        sync_turn: Mutex::new(()),
        follows: Some(Mutex::new(())),
        after_sync: OnceLock::new(),
        mark: None,
        missing: end..end.max(kept),
    })
}

/// Waits until there is something beyond a position. Returns the end.
pub(crate) fn wait(shared: &Shared, position: u64, timeout: Option<Duration>) -> Result<u64, FileError> {
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        refresh(shared, position)?;
        let end = shared.kept().end;
        let rest = until.map(|until| until.saturating_duration_since(Instant::now()));
        if end > position || rest.is_some_and(|rest| rest.is_zero()) {
            return Ok(end);
        }
        std::thread::sleep(rest.map_or(POLL, |rest| rest.min(POLL)));
    }
}

/// Looks whether the other process has appended something beyond a position. Returns whether it has.
pub(crate) fn refresh(shared: &Shared, position: u64) -> Result<bool, FileError> {
    let Some(follows) = &shared.follows else { return Ok(false) };
    let _turn = follows.lock();
    while shared.kept().end <= position {
        if !advance(shared)? && !next_segment(shared)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads new records of the last segment. Returns whether there were some.
fn advance(shared: &Shared) -> Result<bool, FileError> {
    let (base, seed, sealed, open, mut offset, mut end) = {
        let mut state = shared.state.lock();
        let last = state.last();
        (last.base, last.seed, last.sealed, last.open.clone(), last.records.len, last.records.end)
    };
    let Some(OpenFile { file, .. }) = open.filter(|_| !sealed) else { return Ok(false) };
    let path = shared.path(base);
    let len = file.size().map_err(FileError::new("read", &path))?;
    let mut window = Window::new(file, len, None);
    let mut records = Vec::new();
    let mut complete = false;
    // An incomplete record is being written: the next look finds it whole.
    while let Step::Record(record) =
        scan::record_at(&mut window, seed, offset, end).map_err(FileError::new("read", &path))?
    {
        if record.header.kind == Kind::Seal {
            complete = true;
            break;
        }
        (offset, end) = (record.next, record.end);
        records.push((record.header, record.end));
    }
    shared.change(|state| {
        let last = state.segments.back_mut().expect("a log has a segment");
        for (header, end) in &records {
            last.records.push(header, *end, shared.options.index_interval);
        }
        (last.sealed, last.file_len) = (complete, len);
        state.durable = state.durable.max(last.records.durable);
        state.end = end;
    });
    Ok(!records.is_empty())
}

/// Adds the segment that the other process began after the last one. Returns whether there is one.
fn next_segment(shared: &Shared) -> Result<bool, FileError> {
    let last = shared.state.lock().last().base;
    let bases = recover::list(&*shared.storage, &shared.dir, false)?;
    let Some(base) = bases.iter().copied().find(|base| *base > last) else { return reopen(shared, last) };
    let path = shared.path(base);
    let opened = match recover::open_segment(&*shared.storage, &path, OpenMode::Read) {
        Ok(Ok(opened)) => opened,
        // Removed between the two looks, or of a format that only a newer program reads.
        Ok(Err(_)) => return Ok(false),
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    shared.change(|state| {
        // Retention removed the missing segments.
        while state.segments.front().is_some_and(|segment| bases.binary_search(&segment.base).is_err()) {
            state.segments.pop_front();
        }
        state.segments.push_back(Segment::fresh(opened.header, opened.file));
        (state.end, state.durable) = (base, base.max(state.durable));
    });
    advance(shared)?;
    Ok(true)
}

/// Opens the last segment again if another file took its place: the writer wrote it anew after a failed sync.
fn reopen(shared: &Shared, base: u64) -> Result<bool, FileError> {
    let open = shared.state.lock().last().open.clone();
    let Some(OpenFile { file, .. }) = open else { return Ok(false) };
    let path = shared.path(base);
    let Ok(Ok(opened)) = recover::open_segment(&*shared.storage, &path, OpenMode::Read) else {
        return Ok(false);
    };
    let len = file.size().map_err(FileError::new("read", &path))?;
    if opened.len <= len {
        return Ok(false);
    }
    let interval = shared.options.index_interval;
    let mut window = Window::new(Arc::clone(&opened.file), opened.len, None);
    let seed = opened.header.seed();
    let records = scan::survey(&mut window, seed, base, interval, 0);
    let records = records.map_err(FileError::new("read", &path))?;
    Ok(shared.change(|state| {
        let before = state.end;
        let last = state.last();
        last.generation += 1;
        last.seed = seed;
        last.open = Some(OpenFile { file: opened.file, map: None });
        let (end, durable) = (records.end, records.durable);
        last.records = records;
        (state.end, state.durable) = (end, state.durable.max(durable));
        end > before
    }))
}

/// Forgets a segment whose file is gone. Returns whether it can be that retention removed it.
pub(crate) fn lost(shared: &Shared, base: u64) -> bool {
    shared.change(|state| {
        while shared.follows.is_some() && state.segments.len() > 1 && state.first() <= base {
            state.segments.pop_front();
        }
        state.find(base).is_none()
    })
}
