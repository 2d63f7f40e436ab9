//! The thread that copies kept topics to their archive.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::Mutex;
use rbmq_wire::TopicName;
use rocketbufs::Bid;
use seglog::Reader;
use tracing::warn;

use super::super::cluster::Cluster;
use super::super::config::ArchiveOptions;
use super::super::descriptors::have_room_for_kept_topic;
use super::archive::Archive;
use super::archived::{ArchiveLoad, Archived, Hurry, RETRY, Turn};
use super::trail::Trail;

/// How often it is looked whether a broker that stops has archived all.
const FLUSH_LOOK: Duration = Duration::from_millis(5);

/// The topics with an archive, by their buffers. Clones share the table.
#[derive(Clone)]
pub(crate) struct Archives(Arc<Shared>);

struct Shared {
    archive: Option<Arc<dyn Archive>>,
    options: ArchiveOptions,
    topics: Mutex<HashMap<Bid, Arc<Archived>>>,
    hurry: Arc<Hurry>,
    /// The map of the cluster, which says which broker may write which positions of a log that may go on elsewhere.
    map: Option<Arc<dyn Cluster>>,
}

/// The thread ends when this is dropped, after the call that it is in.
pub(crate) struct ArchiveThread {
    archives: Archives,
    thread: Option<JoinHandle<()>>,
}

impl Archives {
    /// The table of a broker; without an archive it stays empty.
    pub(crate) fn new(
        archive: Option<Arc<dyn Archive>>,
        options: ArchiveOptions,
        map: Option<Arc<dyn Cluster>>,
    ) -> Self {
        Self(Arc::new(Shared { archive, options, topics: Mutex::default(), hurry: Arc::default(), map }))
    }

    /// Whether there is an archive.
    pub(crate) fn is_there(&self) -> bool {
        self.0.archive.is_some()
    }

    /// Why no more topic may have the archive. None: it may.
    pub(crate) fn why_no_room(&self) -> Option<String> {
        let (open, ArchiveOptions { max_topics, section, .. }) = (self.0.topics.lock().len(), self.0.options);
        if open >= max_topics {
            return Some(format!("{open} topics have an archive, the limit ({section}.max_topics)"));
        }
        have_room_for_kept_topic().err().map(|error| error.to_string())
    }

    /// How long a subscriber waits for the archive.
    pub(crate) fn replay_wait(&self) -> Duration {
        self.0.options.replay_wait
    }

    /// A topic that is to have an archive is open. `copied`: the file that says how far it was copied.
    /// `trail`: the publishers, for a broker that may go on there.
    pub(super) fn add(&self, topic: &TopicName, bid: Bid, disk: Reader, copied: &Path, trail: Option<Trail>) {
        let (mut topics, most) = (self.0.topics.lock(), self.0.options.max_topics);
        if !self.is_there() {
            warn!("topic '{topic}' is on disk only: the broker was started without an archive");
        } else if topics.len() >= most {
            warn!(
                "topic '{topic}' is on disk only: {most} topics have an archive, the limit ({}.max_topics)",
                self.0.options.section
            );
        } else {
            let (batch_bytes, hurry) = (self.0.options.batch_bytes, self.0.hurry.clone());
            let goes_on = trail.is_some();
            let archived = Archived::new(topic, disk, copied, batch_bytes, hurry, trail);
            let archived = Arc::new(archived.with_map(self.0.map.clone()));
            if goes_on {
                // Another broker may want to go on at any time.
                archived.hurry();
            }
            topics.insert(bid, archived);
        }
    }

    /// The topics that are open.
    pub(crate) fn open_topics(&self) -> Vec<TopicName> {
        self.0.topics.lock().values().map(|archived| archived.topic().clone()).collect()
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

    /// Waits until the archive has what the disk has, where another broker may go on there, and not for an archive that fails.
    pub(crate) fn flush(&self, deadline: Instant) {
        loop {
            let topics: Vec<_> = self.0.topics.lock().values().cloned().collect();
            let behind =
                topics.iter().filter(|topic| topic.is_behind()).inspect(|topic| topic.hurry()).count();
            if behind == 0 || Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(FLUSH_LOOK);
        }
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
        let mut tick = Instant::now() + self.0.options.batch_age;
        loop {
            // An archive that failed is asked again for those who wait.
            let wait = tick.saturating_duration_since(Instant::now()).min(RETRY);
            let mut hurry = self.0.hurry.state.lock();
            self.0.hurry.changed.wait_while_for(&mut hurry, |hurry| !hurry.stopped && !hurry.topics, wait);
            if hurry.stopped {
                return;
            }
            hurry.topics = false;
            drop(hurry);
            loop {
                let is_tick = Instant::now() >= tick;
                let more = self.round(&**archive, is_tick);
                if is_tick {
                    tick = Instant::now() + self.0.options.batch_age;
                }
                if !more {
                    break;
                }
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.0.hurry.state.lock().stopped
    }

    /// Gives a turn to the topics that are hurried, and to each topic if it is their time. Returns whether a topic has more to copy.
    fn round(&self, archive: &dyn Archive, all: bool) -> bool {
        let topics: Vec<_> = self.0.topics.lock().values().cloned().collect();
        let mut more = self.hurry(archive, &topics);
        for topic in topics.iter().filter(|_| all) {
            more |= self.copy(archive, topic, false);
            // Who waits does not wait for the turns of all others.
            more |= self.hurry(archive, &topics);
        }
        more && !self.is_stopped()
    }

    fn hurry(&self, archive: &dyn Archive, topics: &[Arc<Archived>]) -> bool {
        let mut more = false;
        for topic in topics.iter().filter(|topic| topic.take_hurry()) {
            more |= self.copy(archive, topic, true);
        }
        more
    }

    /// Gives a topic a turn. One that has more to copy is hurried until it has none, and so is one that was and whose archive fails.
    fn copy(&self, archive: &dyn Archive, topic: &Archived, is_hurried: bool) -> bool {
        let has_more = topic.copy(archive, || self.is_stopped()) == Turn::Again;
        if has_more || is_hurried && topic.is_failing() {
            topic.keep_hurry();
        }
        has_more
    }
}

impl Drop for ArchiveThread {
    fn drop(&mut self) {
        self.archives.0.hurry.state.lock().stopped = true;
        self.archives.0.hurry.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use rocketbufs::Position;
    use seglog::{Log, Options, SyncPolicy};

    use super::super::archive::{ArchiveError, ArchiveLog, ArchiveRead, ArchivedLog};
    use super::*;

    /// An archive of two topics. That of the busy one gets more with each batch.
    struct Busy {
        ends: [Mutex<Position>; 2],
        busy: Mutex<Log>,
    }

    struct End(Arc<Busy>, usize);

    impl Archive for Arc<Busy> {
        fn open(&self, log: &ArchivedLog, _: &dyn Fn() -> bool) -> Result<Arc<dyn ArchiveLog>, ArchiveError> {
            Ok(Arc::new(End(self.clone(), usize::from(log.topic.as_str() == "quiet"))))
        }
    }

    impl ArchiveLog for End {
        fn kept(&self) -> Range<Position> {
            0..*self.0.ends[self.1].lock()
        }

        fn append(&self, position: Position, bytes: &[u8]) -> Result<(), ArchiveError> {
            *self.0.ends[self.1].lock() = position + bytes.len() as u64;
            let mut busy = self.0.busy.lock();
            busy.append(&[7; 100]).unwrap();
            busy.sync().unwrap();
            Ok(())
        }

        fn read(&self, _: Position, _: &mut [u8]) -> Result<ArchiveRead, ArchiveError> {
            Ok(ArchiveRead::End)
        }
    }

    /// A topic whose publishers wait for the archive again and again leaves the others their turns.
    #[test]
    fn a_busy_topic_does_not_keep_others_from_the_archive() {
        let dir = tempfile::tempdir().unwrap();
        let log = |name: &str| {
            let mut log =
                Log::open(dir.path().join(name), Options::default().sync(SyncPolicy::Never)).unwrap();
            log.append(&[7; 100]).unwrap();
            log.sync().unwrap();
            log
        };
        let (busy, quiet) = (log("busy"), log("quiet"));
        let readers = [busy.reader(), quiet.reader()];
        let archive = Arc::new(Busy { ends: Default::default(), busy: Mutex::new(busy) });
        let options = ArchiveOptions {
            batch_bytes: 1_000,
            batch_age: Duration::from_millis(20),
            replay_wait: Duration::ZERO,
            max_topics: 2,
            section: "archive",
        };
        let archives = Archives::new(Some(Arc::new(archive.clone())), options, None);
        for (bid, (name, reader)) in ["busy", "quiet"].into_iter().zip(readers).enumerate() {
            archives.add(
                &name.parse().unwrap(),
                bid as Bid,
                reader,
                &dir.path().join(format!("{name}.archive")),
                None,
            );
        }
        archives.get(0).unwrap().hurry();
        let thread = archives.start().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while *archive.ends[1].lock() < 100 {
            assert!(Instant::now() < deadline, "the quiet topic has no turn");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(thread);
    }
}
