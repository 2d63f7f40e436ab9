//! The thread that copies kept topics to their archive.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use locks::{Condvar, Mutex};
use rbmq_wire::TopicName;
use rocketbufs::Bid;
use seglog::Reader;
use tracing::warn;

use super::super::config::ArchiveOptions;
use super::archive::Archive;
use super::archived::{ArchiveLoad, Archived, Turn};

/// The topics with an archive, by their buffers. Clones share the table.
#[derive(Clone)]
pub(crate) struct Archives(Arc<Shared>);

struct Shared {
    archive: Option<Arc<dyn Archive>>,
    options: ArchiveOptions,
    topics: Mutex<HashMap<Bid, Arc<Archived>>>,
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// The thread ends when this is dropped, after the call that it is in.
pub(crate) struct ArchiveThread {
    archives: Archives,
    thread: Option<JoinHandle<()>>,
}

impl Archives {
    /// The table of a broker; without an archive it stays empty.
    pub(crate) fn new(archive: Option<Arc<dyn Archive>>, options: ArchiveOptions) -> Self {
        let (topics, stopped, changed) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { archive, options, topics, stopped, changed }))
    }

    /// Whether there is an archive.
    pub(crate) fn is_there(&self) -> bool {
        self.0.archive.is_some()
    }

    /// How long a subscriber waits for the archive.
    pub(crate) fn replay_wait(&self) -> Duration {
        self.0.options.replay_wait
    }

    /// A topic that is to have an archive is open. `copied`: the file that says how far it was copied.
    pub(super) fn add(&self, topic: &TopicName, bid: Bid, disk: Reader, copied: &Path) {
        let (mut topics, most) = (self.0.topics.lock(), self.0.options.max_topics);
        if !self.is_there() {
            warn!("topic '{topic}' is on disk only: the broker was started without an archive");
        } else if topics.len() >= most {
            warn!(
                "topic '{topic}' is on disk only: {most} topics have an archive, the limit ({}.max_topics)",
                self.0.options.section
            );
        } else {
            topics.insert(bid, Arc::new(Archived::new(topic, disk, copied, self.0.options.batch_bytes)));
        }
    }

    pub(super) fn remove(&self, bid: Bid) {
        self.0.topics.lock().remove(&bid);
    }

    /// The topic of a buffer. None if it has no archive.
    pub(crate) fn get(&self, bid: Bid) -> Option<Arc<Archived>> {
        self.0.topics.lock().get(&bid).cloned()
    }

    /// The counters of a buffer. None if it has no archive.
    pub(crate) fn load(&self, bid: Bid) -> Option<ArchiveLoad> {
        self.get(bid).map(|topic| topic.load())
    }

    /// Starts the thread. None without an archive.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start(&self) -> std::io::Result<Option<ArchiveThread>> {
        if !self.is_there() {
            return Ok(None);
        }
        let archives = self.clone();
        let thread = threads::spawn("rbmq-archive", move || archives.run())?;
        Ok(Some(ArchiveThread { archives: self.clone(), thread: Some(thread) }))
    }

    fn run(&self) {
        let Some(archive) = &self.0.archive else { return };
        loop {
            let mut stopped = self.0.stopped.lock();
            self.0.changed.wait_while_for(&mut stopped, |stopped| !*stopped, self.0.options.batch_age);
            if *stopped {
                return;
            }
            drop(stopped);
            while self.round(&**archive) {}
        }
    }

    fn is_stopped(&self) -> bool {
        *self.0.stopped.lock()
    }

    /// Gives each topic a turn. Returns whether a topic has more to copy.
    fn round(&self, archive: &dyn Archive) -> bool {
        let topics: Vec<_> = self.0.topics.lock().values().cloned().collect();
        let mut more = false;
        for topic in topics {
            if self.is_stopped() {
                return false;
            }
            more |= topic.copy(archive, || self.is_stopped()) == Turn::Again;
        }
        more
    }
}

impl Drop for ArchiveThread {
    fn drop(&mut self) {
        *self.archives.0.stopped.lock() = true;
        self.archives.0.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}
