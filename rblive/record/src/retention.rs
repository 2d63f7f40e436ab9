//! Retention: the recordings of a rule, their sizes, and the removal of the oldest ones.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use locks::FileLock;
use seglog::AgeClock;
use seglog::storage::{OsStorage, Storage as _};

use crate::counters::RecordCounters;
use crate::layout::{ABOUT, INDEX, folder_of, is_begin, names, stream_of};
use crate::settings::RecordRule;

/// The file that the process that keeps streams in a folder has locked.
const LOCK: &str = ".lock";

/// A recording: when it began, and its stream. The order is that of removal.
type Key = (String, String);

#[derive(Debug)]
struct Entry {
    bytes: u64,
    updated: SystemTime,
    /// Whether the recording still grows.
    active: bool,
}

/// The recordings of a rule.
#[derive(Debug)]
pub struct Shelf {
    pub rule: RecordRule,
    pub counters: Arc<RecordCounters>,
    entries: BTreeMap<Key, Entry>,
    of_stream: HashMap<String, u64>,
    total: u64,
    clock: AgeClock,
    /// Whether the clock was ahead at the last look.
    clock_is_ahead: bool,
    /// Whether the last write to the disk failed.
    failing: bool,
    _lock: FileLock,
}

impl Shelf {
    /// Locks the folder of a rule, and reads the recordings in it.
    pub fn open(rule: RecordRule, counters: Arc<RecordCounters>) -> io::Result<Self> {
        private_files::create_folder(&rule.folder)?;
        let file = private_files::to_write().truncate(false).open(rule.folder.join(LOCK))?;
        let lock = FileLock::try_exclusive(file)?;
        let lock = lock.ok_or_else(|| io::Error::other("another process keeps streams in it"))?;
        let mut shelf = Self {
            rule,
            counters,
            entries: BTreeMap::new(),
            of_stream: HashMap::new(),
            total: 0,
            clock: AgeClock::default(),
            clock_is_ahead: false,
            failing: false,
            _lock: lock,
        };
        shelf.now();
        shelf.scan();
        Ok(shelf)
    }

    /// Finds the recordings of earlier processes, and removes the rest of those whose removal was interrupted.
    fn scan(&mut self) {
        for folder in names(&self.rule.folder) {
            let Some(stream) = stream_of(&folder) else { continue };
            let path = self.rule.folder.join(&folder);
            for begin in names(&path).into_iter().filter(|name| is_begin(name)) {
                let recording = path.join(&begin);
                if recording.join(ABOUT).exists() {
                    let (bytes, updated) = size_of(&recording);
                    let key = (begin, stream.clone());
                    self.entries.insert(key.clone(), Entry { bytes: 0, updated, active: false });
                    self.resize(&key, bytes);
                } else {
                    self.delete(&recording);
                }
            }
        }
    }

    /// The folder of a stream.
    pub fn stream_folder(&self, stream: &str) -> PathBuf {
        self.rule.folder.join(folder_of(stream))
    }

    /// The newest recording of a stream, if it may be continued: its folder, its name and its bytes.
    pub fn resumable(&self, stream: &str) -> Option<(PathBuf, String, u64)> {
        let newest = self.entries.iter().rev().find(|((_, own), _)| own == stream);
        let ((begin, _), entry) = newest?;
        let age = entry.updated.elapsed().unwrap_or(Duration::ZERO);
        let may = !entry.active && age <= Duration::from_millis(self.rule.rejoin_ms);
        may.then(|| (self.stream_folder(stream).join(begin), begin.clone(), entry.bytes))
    }

    /// Records whether a recording grows.
    pub fn set_active(&mut self, stream: &str, begin: &str, active: bool) {
        let key = (begin.to_owned(), stream.to_owned());
        let new = Entry { bytes: 0, updated: SystemTime::now(), active };
        self.entries.entry(key).or_insert(new).active = active;
    }

    /// Records the new size of a recording.
    pub fn grown(&mut self, stream: &str, begin: &str, bytes: u64) {
        self.resize(&(begin.to_owned(), stream.to_owned()), bytes);
        if let Some(entry) = self.entries.get_mut(&(begin.to_owned(), stream.to_owned())) {
            entry.updated = SystemTime::now();
        }
    }

    fn resize(&mut self, key: &Key, bytes: u64) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        let own = self.of_stream.entry(key.1.clone()).or_default();
        *own = *own + bytes - before;
        self.total = self.total + bytes - before;
        RecordCounters::add(&self.counters.kept_bytes, bytes.wrapping_sub(before));
    }

    /// Makes room for a segment of a stream. False: the limits leave no room.
    pub fn make_room(&mut self, stream: &str) -> bool {
        while self.of_stream.get(stream).is_some_and(|bytes| *bytes >= self.rule.max_stream_bytes) {
            if !self.remove_oldest(|own| own == stream, "max_stream_bytes") {
                return false;
            }
        }
        while self.total >= self.rule.max_bytes {
            if !self.remove_oldest(|_| true, "max_bytes") {
                return false;
            }
        }
        true
    }

    fn remove_oldest(&mut self, of: impl Fn(&str) -> bool, why: &str) -> bool {
        let oldest = self.entries.iter().find(|((_, stream), entry)| !entry.active && of(stream));
        let Some(key) = oldest.map(|(key, _)| key.clone()) else { return false };
        self.remove(&key, why);
        true
    }

    /// Removes the recordings that are too old.
    pub fn expire(&mut self) {
        if self.rule.max_age_ms == 0 {
            return;
        }
        let age = Duration::from_millis(self.rule.max_age_ms);
        let now = self.now();
        let own_age = |entry: &Entry| now.duration_since(entry.updated).unwrap_or_default();
        let old = |entry: &Entry| !entry.active && own_age(entry) > age;
        let keys: Vec<_> =
            self.entries.iter().filter(|(_, entry)| old(entry)).map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.remove(key, "max_age_ms"));
    }

    /// The time by which recordings are too old. A clock that has just stepped ahead makes none old.
    fn now(&mut self) -> SystemTime {
        let (now, ahead) = self.clock.look(OsStorage.now(), OsStorage.steady());
        if ahead > 0 && !self.clock_is_ahead {
            let folder = self.rule.folder.display();
            tracing::warn!(%folder, "the clock has stepped ahead by {} s; in ten minutes it counts (max_age_ms)", ahead / 1000);
        }
        self.clock_is_ahead = ahead > 0;
        SystemTime::UNIX_EPOCH + Duration::from_millis(now)
    }

    fn remove(&mut self, key: &Key, why: &str) {
        tracing::info!(stream = key.1, begin = key.0, "a recording is removed: {why}");
        self.take_out(key);
        RecordCounters::add(&self.counters.removed, 1);
    }

    /// Removes a recording without a segment.
    pub fn discard(&mut self, stream: &str, begin: &str) {
        self.take_out(&(begin.to_owned(), stream.to_owned()));
    }

    fn take_out(&mut self, key: &Key) {
        let (begin, stream) = key;
        self.resize(key, 0);
        self.entries.remove(key);
        if self.of_stream.get(stream) == Some(&0) && !self.entries.keys().any(|(_, own)| own == stream) {
            self.of_stream.remove(stream);
        }
        let folder = self.stream_folder(stream);
        self.delete(&folder.join(begin));
        // Only an empty folder is removed.
        let _ = fs::remove_dir(folder);
    }

    /// Removes a folder, beginning with its description and playlists: a half-removed folder is no recording.
    fn delete(&mut self, recording: &Path) {
        let absent = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        let removed = absent(fs::remove_file(recording.join(ABOUT)))
            .and_then(|()| absent(fs::remove_file(recording.join(INDEX))))
            .and_then(|()| absent(fs::remove_dir_all(recording)));
        if let Err(error) = removed {
            self.failed(&error);
        }
    }

    /// Counts an error of the disk, and logs the first one.
    pub fn failed(&mut self, error: &io::Error) {
        RecordCounters::add(&self.counters.write_errors, 1);
        if !std::mem::replace(&mut self.failing, true) {
            let folder = self.rule.folder.display();
            tracing::error!(%folder, "streams cannot be kept, until this ends they have gaps: {error}");
        }
    }

    /// Records that a write to the disk succeeded.
    pub fn worked(&mut self) {
        if std::mem::replace(&mut self.failing, false) {
            tracing::warn!(folder = %self.rule.folder.display(), "streams are kept again");
        }
    }
}

/// The bytes of the segments of a recording, and when the last one was written.
fn size_of(recording: &Path) -> (u64, SystemTime) {
    let (mut bytes, mut updated) = (0, SystemTime::UNIX_EPOCH);
    for rendition in names(recording) {
        let folder = recording.join(rendition);
        for name in names(&folder) {
            let Ok(found) = folder.join(&name).metadata() else { continue };
            let is_media = [".mp4", ".m4s", ".ts"].iter().any(|end| name.ends_with(end));
            bytes += if is_media { found.len() } else { 0 };
            updated = updated.max(found.modified().unwrap_or(SystemTime::UNIX_EPOCH));
        }
    }
    if updated == SystemTime::UNIX_EPOCH {
        let about = recording.join(ABOUT).metadata().and_then(|found| found.modified());
        updated = about.unwrap_or_else(|_| SystemTime::now());
    }
    (bytes, updated)
}
