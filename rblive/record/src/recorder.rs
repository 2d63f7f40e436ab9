//! The recorder: a thread that writes the chunks to which its queue refers.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::{Mutex, RwLock};
use rblive::{ChunkRef, RsId, StreamEvent};

use crate::counters::RecordCounters;
use crate::queue::{Job, Queue};
use crate::retention::Shelf;
use crate::settings::{RecordRule, SettingsError};
use crate::store::Store;
use crate::stream::Stream;

/// The time between two checks for streams that ended and recordings that are too old.
const TEND: Duration = Duration::from_secs(1);

/// Why a recorder cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The rules are wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A folder cannot be used.
    #[error("streams cannot be kept in {}: {source}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused a thread.
    #[error("the system gives no thread: {0}")]
    Thread(io::Error),
}

/// A running recorder. The callbacks of a manager pass chunks and events to it. Dropping it writes the waiting chunks.
///
/// ```
/// use std::sync::Arc;
/// use rblive::{Config, RsManager};
/// use rblive_record::{RecordRule, Recorder};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let rule = RecordRule { streams: "*".into(), folder: folder.path().into(), ..RecordRule::default() };
/// let recorder = Arc::new(Recorder::start(vec![rule])?);
/// let rs = RsManager::new(Config::default())?;
/// let (chunks, events) = (recorder.clone(), recorder.clone());
/// rs.inbound_callback(move |chunk| chunks.take(&chunk));
/// rs.stream_callback(move |id, event| events.event(id, &event));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Recorder {
    queue: Arc<Queue>,
    counters: Arc<RecordCounters>,
    rules: Vec<RecordRule>,
    /// The streams of the rules.
    wanted: RwLock<HashSet<RsId>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Starts a recorder with these rules.
    ///
    /// # Errors
    /// [`RecordError`]: the rules are wrong, or a folder is another process's or cannot be used.
    pub fn start(rules: Vec<RecordRule>) -> Result<Self, RecordError> {
        RecordRule::check(&rules)?;
        let counters = Arc::<RecordCounters>::default();
        let shelves = rules.iter().map(|rule| {
            let refused = |source| RecordError::Folder { folder: rule.folder.clone(), source };
            Shelf::open(rule.clone(), counters.clone()).map_err(refused)
        });
        let shelves = shelves.collect::<Result<Vec<_>, _>>()?;
        let queue = Arc::<Queue>::default();
        let writer = Writer { shelves, streams: HashMap::new(), names: HashMap::new() };
        let (jobs, counts) = (queue.clone(), counters.clone());
        let thread = threads::spawn("rblive-record", move || writer.run(&jobs, &counts));
        let thread = thread.map_err(RecordError::Thread)?;
        Ok(Self { queue, counters, rules, wanted: RwLock::default(), thread: Mutex::new(Some(thread)) })
    }

    /// Adds a reference to a chunk to the queue. Never waits.
    pub fn take(&self, chunk: &ChunkRef) {
        let wanted = self.wanted.read().contains(&chunk.stream());
        if wanted && !self.queue.put(Job::Chunk(chunk.clone())) {
            RecordCounters::add(&self.counters.overtaken, 1);
        }
    }

    /// Handles an event of a stream.
    pub fn event(&self, id: RsId, event: &StreamEvent) {
        let mut wanted = self.wanted.write();
        match event {
            StreamEvent::Began { name } if self.rules.iter().any(|rule| rule.keeps(name)) => {
                wanted.insert(id);
                self.queue.put(Job::Began(id, name.to_string()));
            }
            StreamEvent::Ended if wanted.remove(&id) => {
                self.queue.put(Job::Ended(id));
            }
            _ => {}
        }
    }

    /// The counters.
    pub fn counters(&self) -> &RecordCounters {
        RecordCounters::set(&self.counters.waiting, self.queue.waiting() as u64);
        &self.counters
    }

    /// The recordings of the folders of all rules.
    pub fn store(&self) -> Store {
        Store::new(self.rules.iter().map(|rule| rule.folder.clone()).collect())
    }
}

impl Recorder {
    /// Ends the recorder, after the waiting chunks are written. Later chunks are not kept.
    pub fn stop(&self) {
        self.queue.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The state of the thread.
struct Writer {
    /// The recordings of each rule.
    shelves: Vec<Shelf>,
    /// The streams, with their rules.
    streams: HashMap<String, (usize, Stream)>,
    names: HashMap<RsId, String>,
}

impl Writer {
    fn run(mut self, queue: &Queue, counters: &RecordCounters) {
        let mut tended = Instant::now();
        while let Some(jobs) = queue.take(TEND) {
            for job in jobs {
                self.job(job, counters);
                if tended.elapsed() >= TEND {
                    self.tend(counters);
                    tended = Instant::now();
                }
            }
            if tended.elapsed() >= TEND {
                self.tend(counters);
                tended = Instant::now();
            }
        }
        for (rule, mut stream) in self.streams.into_values() {
            stream.close(&mut self.shelves[rule]);
        }
    }

    fn job(&mut self, job: Job, counters: &RecordCounters) {
        match job {
            Job::Began(id, name) => {
                self.begin(id, name);
                RecordCounters::set(&counters.streams, self.streams.len() as u64);
            }
            Job::Chunk(chunk) => {
                let id = chunk.stream();
                let stream = self.names.get(&id).and_then(|name| self.streams.get_mut(name));
                if let Some((rule, stream)) = stream.filter(|(_, stream)| stream.id == id) {
                    stream.take(&chunk, &mut self.shelves[*rule]);
                }
            }
            Job::Ended(id) => {
                let stream = self.names.remove(&id).and_then(|name| self.streams.get_mut(&name));
                if let Some((rule, stream)) = stream.filter(|(_, stream)| stream.id == id) {
                    stream.end(&mut self.shelves[*rule]);
                }
            }
        }
    }

    /// Begins a stream of this source, or continues it with this source: the newest source of a name owns the stream.
    fn begin(&mut self, id: RsId, name: String) {
        let Some(rule) = self.shelves.iter().position(|shelf| shelf.rule.keeps(&name)) else { return };
        match self.streams.get_mut(&name) {
            Some((rule, stream)) => stream.replace(id, &mut self.shelves[*rule]),
            None => {
                self.streams.insert(name.clone(), (rule, Stream::new(&name, id)));
            }
        }
        self.names.insert(id, name);
    }

    fn tend(&mut self, counters: &RecordCounters) {
        let shelves = &mut self.shelves;
        self.streams.retain(|_, (rule, stream)| {
            let stays = stream.tend(&mut shelves[*rule]);
            if !stays {
                stream.close(&mut shelves[*rule]);
            }
            stays
        });
        shelves.iter_mut().for_each(Shelf::expire);
        RecordCounters::set(&counters.streams, self.streams.len() as u64);
    }
}
