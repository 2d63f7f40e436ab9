//! The disk level: a [`seglog::Log`] for each topic.
//!
//! ```text
//!   directory/
//!     topic-00007/            segments of the log, whose random name is the epoch
//!     topic-00007.running     there while a process has the log open
//!     topic-00007.sessions    the stacks that have written the log
//! ```
//!
//! The bytes on the disk survive the process. Bytes that only the levels below had do not survive it, and readers may have seen them.
//! So their offsets are not used again: if the file `running` exists when a topic is opened, the log continues behind a hole.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use locks::{Condvar, Mutex, MutexGuard, RwLock};
use seglog::storage::{OsStorage, Storage};
use seglog::{AppendError, Log, OpenError, Options, Read, Reader, Recovery, Retention, SyncPolicy};
use tracing::warn;

use super::keeper::Keeper;
use super::session_file;
use super::signal::Signal;
use crate::counters::LevelCounters;
use crate::level::{Appended, Counters, Found, Kept, Level, LevelError, LevelKind, Stop, Written};
use crate::log::{Batch, Hole, MAX_OFFSET, Offset, Window};
use crate::sessions::Sessions;
use crate::spread;
use crate::topic::{Epoch, TopicId};

/// The largest message: more than a datagram carries.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Messages are put together up to this size for one write.
const GATHER_BYTES: usize = 4 << 20;
/// How often old segments are looked for.
const MIN_LOOK: Duration = Duration::from_millis(10);
const MAX_LOOK: Duration = Duration::from_secs(60);
/// The most readers that a topic keeps for later reads. Each remembers its position and its last batch.
const IDLE_READERS: usize = 8;

/// The settings of a [`DiskLevel`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// The folder. One process uses it at a time.
    pub directory: PathBuf,
    /// Bytes of a segment file; default 64 MiB, 4 KiB to 1 TiB. Retention works in segments.
    pub segment_bytes: u64,
    /// The most bytes of a topic's files; default 1 GiB, none for no limit. Whole segments are removed, the oldest first.
    pub max_bytes: Option<u64>,
    /// The longest time that a segment stays after its last write, by the clock of the system; default no limit. A topic that gets no
    /// more messages is looked at after a quarter of this time, once a minute at least. A clock that jumps ahead makes segments old at
    /// once; one that jumps back keeps them longer, but not longer than this after it was right again.
    pub max_age: Option<Duration>,
    /// How often written bytes are made durable; default 1 s. A crash of the machine loses as much.
    pub sync_interval: Duration,
    /// How many topics the level takes; default 64. Each costs two descriptors, and about 64 more if all of its
    /// segments are read.
    pub max_topics: usize,
    /// The next level is woken each time that a topic has grown by this many bytes; default 1 MiB.
    pub batch_bytes: u64,
    /// How many offsets a stack skips after a process that was killed, as a hole; default 64 MiB. As many as the levels before the
    /// disk hold, so that an offset never means two bytes. Nothing is skipped where such a level has kept its window.
    pub restart_gap_bytes: u64,
}

impl DiskConfig {
    /// The defaults, in this folder.
    pub fn new(directory: impl Into<PathBuf>) -> DiskConfig {
        DiskConfig {
            directory: directory.into(),
            segment_bytes: 64 << 20,
            max_bytes: Some(1 << 30),
            max_age: None,
            sync_interval: Duration::from_secs(1),
            max_topics: 64,
            batch_bytes: 1 << 20,
            restart_gap_bytes: 64 << 20,
        }
    }

    fn options(&self, start: Offset, epoch: Epoch) -> Result<Options, LevelError> {
        let mut log_id = [0; 16];
        getrandom::fill(&mut log_id).map_err(io::Error::other)?;
        log_id[..4].copy_from_slice(&epoch.0.to_le_bytes());
        let retention =
            Retention { max_bytes: self.max_bytes, max_age: self.max_age, ..Retention::default() };
        Ok(Options::default()
            .segment_bytes(self.segment_bytes)
            .segment_age(self.max_age)
            .sync(SyncPolicy::BytesOrInterval(8 << 20, self.sync_interval))
            .retention(retention)
            .first_position(start)
            .log_id(Some(log_id)))
    }
}

/// The level of segment files.
pub struct DiskLevel {
    config: DiskConfig,
    /// Where the logs are.
    storage: Arc<dyn Storage>,
    /// Removes segments that have become too old.
    keeper: Option<Keeper>,
    topics: Arc<RwLock<HashMap<TopicId, Arc<Topic>>>>,
    /// Topics that a thread is opening. This lock is taken before that of `topics`, and is free while the thread waits for the disk.
    opening: Mutex<HashSet<TopicId>>,
    /// Signalled when a topic of `opening` is open, or could not be opened.
    opened: Condvar,
    signal: Signal,
}

struct Topic {
    log: Mutex<Log>,
    /// Reads the window, without the lock that a writer holds while it syncs.
    ends: Reader,
    readers: Mutex<Vec<Reader>>,
    epoch: Epoch,
    running: PathBuf,
    /// The head of a log that a killed process left, and how many bytes after the head readers may have seen.
    unsure: Option<(Offset, u64)>,
    /// Ranges that were damaged when the log was opened.
    damaged: u64,
    counters: LevelCounters,
}

impl DiskLevel {
    /// A level without topics. The folder is made if it is not there.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(config: DiskConfig) -> io::Result<DiskLevel> {
        private_files::create_folder(&config.directory)?;
        Self::on(Arc::new(OsStorage), config)
    }

    fn on(storage: Arc<dyn Storage>, config: DiskConfig) -> io::Result<DiskLevel> {
        let signal = Signal::new(config.batch_bytes);
        let topics = Arc::new(RwLock::<HashMap<TopicId, Arc<Topic>>>::default());
        let keeper = config.max_age.map(|age| {
            let (topics, interval) = (Arc::clone(&topics), (age / 4).clamp(MIN_LOOK, MAX_LOOK));
            Keeper::start("retention", interval, move || remove_old(&topics))
        });
        Ok(DiskLevel {
            config,
            storage,
            keeper: keeper.transpose()?,
            topics,
            opening: Mutex::default(),
            opened: Condvar::new(),
            signal,
        })
    }

    fn topic(&self, topic: TopicId) -> Result<Arc<Topic>, LevelError> {
        let topics = self.topics.read();
        topics.get(&topic).cloned().ok_or(LevelError::UnknownTopic(topic))
    }

    fn opening(&self) -> MutexGuard<'_, HashSet<TopicId>> {
        self.opening.lock()
    }

    /// The window of an open topic. A topic that is not open counts as being opened by the caller from then on.
    fn reserve(&self, topic: TopicId) -> Result<Option<Window>, LevelError> {
        let mut opening = self.opening();
        while opening.contains(&topic) {
            self.opened.wait(&mut opening);
        }
        let topics = self.topics.read();
        if let Some(open) = topics.get(&topic) {
            return Ok(Some(open.window()));
        }
        let used = topics.len() + opening.len();
        if used >= self.config.max_topics {
            return Err(LevelError::TooManyTopics(used));
        }
        opening.insert(topic);
        Ok(None)
    }

    fn new_topic(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Topic, LevelError> {
        let name = folder(topic);
        let running = self.config.directory.join(format!("{name}.running"));
        let options = self.config.options(start, epoch)?;
        let folder = self.config.directory.join(name);
        let log = Log::open_on(Arc::clone(&self.storage), folder, options).map_err(not_opened)?;
        warn_of_damage(topic, log.recovery());
        let killed = running.exists();
        // The file has no content, so only its name must be durable.
        private_files::write(&running, b"").map_err(no_room)?;
        File::open(&self.config.directory)?.sync_all()?;
        let unsure = killed.then_some((log.end(), self.config.restart_gap_bytes));
        let id = log.id();
        let epoch = Epoch(u32::from_le_bytes([id[0], id[1], id[2], id[3]]).max(1));
        let (ends, readers, counters) = (log.reader(), Mutex::default(), LevelCounters::default());
        let damaged = log.recovery().damaged.len() as u64;
        Ok(Topic { log: Mutex::new(log), ends, readers, epoch, running, unsure, damaged, counters })
    }

    /// The file with a topic's sessions.
    fn sessions_file(&self, topic: TopicId) -> PathBuf {
        self.config.directory.join(format!("{}.sessions", folder(topic)))
    }

    /// Whether the folder has segments of a topic.
    fn has_segments(&self, topic: TopicId) -> io::Result<bool> {
        match self.storage.list(&self.config.directory.join(folder(topic))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            names => Ok(names?.iter().any(|name| name.ends_with(".seg"))),
        }
    }
}

/// Removes segments that are too old in all topics.
fn remove_old(topics: &RwLock<HashMap<TopicId, Arc<Topic>>>) {
    let topics: Vec<Arc<Topic>> = topics.read().values().cloned().collect();
    for topic in topics {
        // The log counts segments that could not be removed, and tries them again.
        let _ = topic.log().apply_retention();
    }
}

/// Says what the log of a topic does not have any more.
fn warn_of_damage(TopicId(topic): TopicId, recovery: &Recovery) {
    for Range { start, end } in &recovery.damaged {
        let bytes = end - start;
        warn!(
            "topic {topic}: {bytes} bytes from offset {start} to {end} are damaged or missing on the disk: they are a hole"
        );
    }
    if recovery.torn_bytes > 0 {
        let bytes = recovery.torn_bytes;
        warn!(
            "topic {topic}: {bytes} bytes at the end of the disk level were not written whole, and are cut"
        );
    }
}

/// The name of a topic's folder.
fn folder(topic: TopicId) -> String {
    format!("topic-{:05}", topic.0)
}

/// The error of a log that cannot be opened.
fn not_opened(error: OpenError) -> LevelError {
    match error {
        OpenError::File(error) if error.is_full() => LevelError::Full(io::Error::other(error)),
        other => LevelError::Io(io::Error::other(other)),
    }
}

/// The error of a file beside the logs.
fn no_room(error: io::Error) -> LevelError {
    if error.kind() == io::ErrorKind::StorageFull { LevelError::Full(error) } else { LevelError::Io(error) }
}

/// The error of an append that added nothing.
fn failed(error: AppendError) -> LevelError {
    match error {
        AppendError::NotWritten { source, .. } if source.is_full() => {
            LevelError::Full(io::Error::other(source))
        }
        other => LevelError::Io(io::Error::other(other)),
    }
}

/// Bytes that are in the log count as written even if they could not be made durable: the log repairs this by itself.
fn appended(result: Result<u64, AppendError>) -> Result<(), LevelError> {
    match result {
        Ok(_) | Err(AppendError::NotDurable { .. }) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

impl Topic {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.readers.lock()
    }

    fn window(&self) -> Window {
        let head = self.ends.end();
        Window { first: self.ends.first().min(head), head, epoch: self.epoch }
    }

    fn read(&self, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        let mut reader = self.readers().pop().unwrap_or_else(|| self.ends.clone());
        let read = reader.read_into(from, out).map_err(io::Error::other)?;
        let mut readers = self.readers();
        if readers.len() < IDLE_READERS {
            readers.push(reader);
        }
        drop(readers);
        let at = from + read.len as u64;
        let stop = match read.stopped {
            None => Stop::Filled,
            Some(Read::Hole(hole)) => Stop::Hole(Hole { from: at, to: hole.range.end }),
            Some(Read::Removed { first }) => Stop::Gone(first),
            Some(Read::End { .. }) => Stop::Head,
            Some(other) => return Err(LevelError::Io(io::Error::other(format!("{other:?}")))),
        };
        Ok(Found { bytes: read.len, stop })
    }

    /// Appends gathered messages.
    fn flush(&self, log: &mut Log, gathered: &mut Vec<u8>, messages: u64) -> Result<(), LevelError> {
        let end = log.end();
        let result = appended(log.append_at(end, gathered));
        match result {
            Ok(()) => {
                self.counters.appended(messages, gathered.len() as u64);
            }
            Err(_) => self.counters.refused(messages),
        }
        gathered.clear();
        result
    }
}

impl Level for DiskLevel {
    fn kind(&self) -> LevelKind {
        LevelKind::Disk
    }

    fn capacity_bytes(&self) -> Option<u64> {
        self.config.max_bytes
    }

    fn kept(&self, topic: TopicId) -> Result<Option<Kept>, LevelError> {
        if self.topic(topic).is_err() {
            if !self.has_segments(topic)? {
                return Ok(None);
            }
            // The log has its own start and epoch.
            self.open(topic, 0, Epoch::ANY)?;
        }
        let topic = self.topic(topic)?;
        let window = topic.window();
        let unsure = topic.unsure.filter(|(head, _)| *head == window.head);
        Ok(Some(Kept { window, unsure_bytes: unsure.map_or(0, |(_, bytes)| bytes) }))
    }

    fn sessions(&self, topic: TopicId) -> Result<Option<Sessions>, LevelError> {
        Ok(Some(session_file::load(&self.sessions_file(topic))?))
    }

    fn keep_sessions(&self, topic: TopicId, sessions: &Sessions) -> Result<(), LevelError> {
        session_file::store(&self.sessions_file(topic), sessions).map_err(no_room)
    }

    fn open(&self, topic: TopicId, start: Offset, epoch: Epoch) -> Result<Window, LevelError> {
        if start > MAX_OFFSET {
            return Err(LevelError::Offset(start));
        }
        if let Some(open) = self.reserve(topic)? {
            return Ok(open);
        }
        let new = self.new_topic(topic, start, epoch);
        let mut opening = self.opening();
        opening.remove(&topic);
        let window = new.map(|new| {
            let window = new.window();
            self.topics.write().insert(topic, Arc::new(new));
            window
        });
        drop(opening);
        self.opened.notify_all();
        window
    }

    fn window(&self, topic: TopicId) -> Option<Window> {
        self.topic(topic).ok().map(|topic| topic.window())
    }

    fn append(
        &self,
        topic: TopicId,
        messages: &mut dyn Iterator<Item = &[u8]>,
    ) -> Result<Appended, LevelError> {
        let topic = self.topic(topic)?;
        let mut log = topic.log();
        let offset = log.end();
        let mut done = Appended { offset, bytes: 0, messages: 0, oversize: 0 };
        let (mut gathered, mut count) = (Vec::new(), 0);
        for message in messages {
            let size = message.len() as u64;
            if message.len() > MAX_MESSAGE_BYTES || offset + done.bytes + size > MAX_OFFSET {
                done.oversize += 1;
                continue;
            }
            if gathered.len() + message.len() > GATHER_BYTES {
                topic.flush(&mut log, &mut gathered, std::mem::take(&mut count))?;
            }
            gathered.extend_from_slice(message);
            count += 1;
            done.messages += 1;
            done.bytes += size;
        }
        topic.flush(&mut log, &mut gathered, count)?;
        drop(log);
        topic.counters.refused(done.oversize);
        self.signal.grown(offset..offset + done.bytes);
        Ok(done)
    }

    fn write(&self, topic: TopicId, batch: Batch<'_>) -> Result<Written, LevelError> {
        if batch.offset > MAX_OFFSET || batch.end() > MAX_OFFSET {
            return Err(LevelError::Offset(batch.offset));
        }
        let topic = self.topic(topic)?;
        let mut log = topic.log();
        let head = log.end();
        let placed = batch.place(head);
        let at = placed.hole.map_or(head, |hole| hole.to);
        let result =
            if placed.bytes.is_empty() { log.append_hole(at) } else { log.append_at(at, placed.bytes) };
        drop(log);
        if let Err(error) = appended(result) {
            topic.counters.refused(1);
            return Err(error);
        }
        let written =
            Written { hole: placed.hole, bytes: placed.bytes.len() as u64, repeated: placed.repeated };
        topic.counters.written(&written);
        self.signal.grown(head..batch.end().max(head));
        Ok(written)
    }

    fn wait_batch(&self, timeout: Duration) -> bool {
        self.signal.wait(timeout)
    }

    fn wake(&self) {
        self.signal.wake();
    }

    fn transfer(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        self.topic(topic)?.read(from, out)
    }

    fn read(&self, topic: TopicId, from: Offset, out: &mut [u8]) -> Result<Found, LevelError> {
        let topic = self.topic(topic)?;
        let found = topic.read(from, out)?;
        topic.counters.read(Some(&found));
        Ok(found)
    }

    fn sync(&self) -> Result<(), LevelError> {
        let topics = self.topics.read();
        let topics: Vec<Arc<Topic>> = topics.values().cloned().collect();
        spread::for_each(&topics, |topic| topic.log().sync().map(drop))
            .map_err(|error| LevelError::Io(io::Error::other(error)))
    }

    fn counters(&self, topic: TopicId) -> Counters {
        let Ok(topic) = self.topic(topic) else { return Counters::default() };
        let stats = topic.ends.stats();
        let damaged = topic.damaged + stats.damaged_reads;
        Counters { damaged, ..topic.counters.counters(stats.removed_bytes) }
    }
}

impl Drop for DiskLevel {
    fn drop(&mut self) {
        self.keeper = None;
        let mut topics = self.topics.write();
        let topics: Vec<Arc<Topic>> = topics.drain().map(|(_, topic)| topic).collect();
        let closed = spread::for_each(&topics, |topic| {
            // Where the last bytes are not durable, the next process leaves a hole.
            if topic.log().sync().is_ok() {
                let _ = std::fs::remove_file(&topic.running);
            }
            Ok::<(), Infallible>(())
        });
        closed.unwrap_or_else(|never| match never {});
    }
}

#[cfg(test)]
mod ends;
