//! The folder of all kept topics.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use locks::{FileLock, Mutex};
use rbmq_wire::TopicName;
use rocketbufs::Bid;
use tracing::warn;

use super::super::descriptors::have_room_for_kept_topic;
use super::archived::Archived;
use super::archivist::Archives;
use super::clock::Clock;
use super::copied;
use super::error::KeepError;
use super::folder::{folder, read_name};
use super::news::News;
use super::scribe::{Scribe, ScribeThread};
use super::store::{Recovered, Store, StoreOptions};
use super::takeover::Taken;
use super::trail::Trail;

/// The logs of the kept topics, by their buffers. Clones share the tables.
#[derive(Clone, Default)]
pub(crate) struct KeptLogs(Arc<Mutex<Logs>>, News);

#[derive(Default)]
struct Logs {
    open: HashMap<Bid, seglog::Reader>,
    by_name: HashMap<TopicName, Bid>,
    clocks: HashMap<TopicName, Clock>,
    /// Topics on the disk that could not be opened.
    unavailable: HashSet<TopicName>,
}

/// How much of a topic is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KeptLoad {
    /// Bytes of files.
    pub(crate) file_bytes: u64,
    /// The first position that is kept.
    pub(crate) first: u64,
    /// The position behind the last.
    pub(crate) end: u64,
    /// Bytes that are not on the disk yet.
    pub(crate) unsynced: u64,
    /// Bytes that were found damaged or missing.
    pub(crate) damaged: u64,
    /// Whether its publishers wait for the disk.
    pub(crate) is_failing: bool,
}

impl KeptLogs {
    /// The log of a topic, and the clock of its times.
    pub(crate) fn of(&self, topic: &TopicName) -> Option<(seglog::Reader, Clock)> {
        let logs = self.0.lock();
        let reader = logs.open.get(logs.by_name.get(topic)?)?;
        Some((reader.clone(), logs.clocks.get(topic)?.clone()))
    }

    /// What is told of appends.
    pub(crate) fn news(&self) -> &News {
        &self.1
    }

    /// The topics with an open log, by name.
    pub(crate) fn topics(&self) -> Vec<(TopicName, Bid)> {
        let mut topics: Vec<_> =
            self.0.lock().by_name.iter().map(|(topic, bid)| (topic.clone(), *bid)).collect();
        topics.sort_unstable();
        topics
    }

    fn get(&self, bid: Bid) -> Option<seglog::Reader> {
        self.0.lock().open.get(&bid).cloned()
    }

    /// How many topics of the disk could not be opened.
    pub(crate) fn unavailable(&self) -> usize {
        self.0.lock().unavailable.len()
    }

    /// How much of a buffer is kept. None if it is not.
    pub(crate) fn load(&self, bid: Bid, is_failing: bool) -> Option<KeptLoad> {
        let log = self.get(bid)?;
        let unsynced = log.end().saturating_sub(log.durable());
        let stats = log.stats();
        let (file_bytes, damaged) = (stats.file_bytes, stats.damaged_bytes);
        Some(KeptLoad { file_bytes, first: log.first(), end: log.end(), unsynced, damaged, is_failing })
    }
}

/// The kept topics of a broker.
pub(crate) struct Keeper {
    dir: PathBuf,
    names: HashMap<Bid, TopicName>,
    logs: KeptLogs,
    archives: Archives,
    by_name: HashMap<TopicName, Bid>,
    scribe: Scribe,
    /// The thread and the lock of the folder. None if no topic is kept.
    _owned: Option<(ScribeThread, FileLock)>,
}

impl Keeper {
    /// For the topics in a folder, which is made if it does not exist; empty: no topic is kept.
    ///
    /// # Errors
    /// Another broker uses the folder, or the system refuses it.
    pub(crate) fn new(dir: &str, archives: Archives) -> Result<Self, KeepError> {
        let (names, by_name, scribe) = (HashMap::new(), HashMap::new(), Scribe::default());
        let dir = PathBuf::from(dir);
        let owned = match dir.as_os_str().is_empty() {
            true => None,
            false => {
                let lock = lock(&dir)?;
                Some((ScribeThread::start(&scribe).map_err(KeepError::Thread)?, lock))
            }
        };
        Ok(Self { dir, names, logs: KeptLogs::default(), archives, by_name, scribe, _owned: owned })
    }

    /// The topics of earlier brokers, by name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn stored_topics(&self) -> Result<Vec<TopicName>, KeepError> {
        if self.dir.as_os_str().is_empty() {
            return Ok(Vec::new());
        }
        let failed = |source| KeepError::File { path: self.dir.clone(), source };
        let mut topics = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if !path.is_dir() {
                continue;
            }
            match read_name(&path) {
                Ok(Some(topic)) => topics.push(topic),
                Ok(None) => {}
                Err(error) => warn!("a topic is not available: {error}"),
            }
        }
        topics.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        Ok(topics)
    }

    /// Opens or makes the folder of a topic.
    pub(crate) fn open(
        &self,
        topic: &TopicName,
        options: &StoreOptions,
    ) -> Result<(Store, Recovered), KeepError> {
        if self.dir.as_os_str().is_empty() {
            let reason = "broker.keep_dir is empty".to_owned();
            return Err(KeepError::Foreign { path: self.dir.clone(), reason });
        }
        have_room_for_kept_topic()?;
        let (mut store, recovered) = Store::open(&self.dir.join(folder(topic)), topic, options)?;
        store.tell(topic, self.logs.news());
        self.logs.0.lock().clocks.insert(topic.clone(), store.clock().clone());
        Ok((store, recovered))
    }

    /// A topic of the disk could not be opened.
    pub(crate) fn failed(&self, topic: &TopicName) {
        self.logs.0.lock().unavailable.insert(topic.clone());
    }

    /// Opens the log of a topic that this broker was given in a term, as far as the archive has it.
    pub(crate) fn open_taken(
        &self,
        topic: &TopicName,
        options: &StoreOptions,
        term: u64,
        taken: Taken,
    ) -> Result<(Store, Recovered, Option<Trail>), KeepError> {
        self.archives.why_no_room().map_or(Ok(()), |reason| Err(KeepError::Archive(reason)))?;
        let Taken { epoch, archived, limit } = taken;
        let (store, recovered) = self.open(topic, &StoreOptions { is_shared: true, ..*options })?;
        if recovered.epoch != epoch {
            let (path, reason) = (self.dir.join(folder(topic)), "its log has another name".to_owned());
            return Err(KeepError::Foreign { path, reason });
        }
        let trail = store.trail(term, archived, limit);
        Ok((store, recovered, trail))
    }

    /// A topic has a buffer. `archived`: bytes that the disk removes are kept in the archive; `trail`: another broker may go on there.
    pub(crate) fn opened(
        &mut self,
        topic: &TopicName,
        bid: Bid,
        reader: seglog::Reader,
        archived: bool,
        trail: Option<Trail>,
    ) {
        if archived {
            let file = self.dir.join(folder(topic)).join(copied::FILE);
            self.archives.add(topic, bid, reader.clone(), &file, trail);
        }
        self.names.insert(bid, topic.clone());
        let mut logs = self.logs.0.lock();
        logs.open.insert(bid, reader);
        logs.by_name.insert(topic.clone(), bid);
        logs.unavailable.remove(topic);
        drop(logs);
        self.by_name.insert(topic.clone(), bid);
    }

    /// The buffer of a topic is removed.
    pub(crate) fn closed(&mut self, bid: Bid) {
        if let Some(topic) = self.names.remove(&bid) {
            self.by_name.remove(&topic);
            let mut logs = self.logs.0.lock();
            logs.open.remove(&bid);
            logs.by_name.remove(&topic);
            logs.clocks.remove(&topic);
            drop(logs);
            self.archives.remove(bid);
        }
    }

    /// Whether a topic is open.
    pub(crate) fn is_kept(&self, topic: &TopicName) -> bool {
        self.by_name.contains_key(topic)
    }

    /// The log on disk of a buffer.
    pub(crate) fn reader(&self, bid: Bid) -> Option<seglog::Reader> {
        self.logs.get(bid)
    }

    /// The archive of a buffer, and how long a subscriber waits for it. None if it has none.
    pub(crate) fn archived(&self, bid: Bid) -> Option<(Arc<Archived>, Duration)> {
        Some((self.archives.get(bid)?, self.archives.replay_wait()))
    }

    /// The logs, for other threads.
    pub(crate) fn logs(&self) -> KeptLogs {
        self.logs.clone()
    }

    pub(crate) fn scribe(&self) -> &Scribe {
        &self.scribe
    }
}

/// Makes the folder, and locks it.
fn lock(dir: &Path) -> Result<FileLock, KeepError> {
    private_files::create_durable_folder(dir).map_err(KeepError::file(dir))?;
    let path = dir.join("lock");
    let file = private_files::to_write().append(true).open(&path).map_err(KeepError::file(&path))?;
    let lock = FileLock::try_exclusive(file).map_err(KeepError::file(&path))?;
    lock.ok_or_else(|| KeepError::Locked(dir.to_owned()))
}
