//! The threads that take topics: they ask the archive, and the broker's thread goes on meanwhile.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use locks::{Condvar, Mutex};
use rbmq_wire::TopicName;
use rbmq_wire::connect::random;
use rocketbufs::Epoch;
use tracing::warn;

use super::archive::{Archive, ArchiveError};
use super::archived::RETRY;
use super::takeover::{Taken, Taker, Wanted};

/// An owner that is gone may have had many topics, and an archive takes its time for each question.
const THREADS: usize = 4;

/// The most topics that wait. More are asked for again.
const MAX_WANTED: usize = 10_000;

/// Says in which term this broker has a topic. None: it has not.
type Term = dyn Fn(&TopicName) -> Option<u64> + Send + Sync;

/// The questions of the threads.
pub(crate) struct TakeOverHooks {
    /// The term in which this broker has a topic.
    pub(crate) term: Box<Term>,
    /// A topic was taken.
    pub(crate) taken: Box<dyn Fn(Wanted, Taken) + Send + Sync>,
}

/// Takes topics. The threads end when this is dropped, each after the call that it is in.
pub(crate) struct TakeOvers {
    desk: Arc<Desk>,
    threads: Vec<JoinHandle<()>>,
}

struct Desk {
    archive: Arc<dyn Archive>,
    cluster: String,
    dir: PathBuf,
    hooks: TakeOverHooks,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// When each is asked for.
    queue: VecDeque<(Instant, Wanted)>,
    /// The terms in which topics are wanted, and why that has failed.
    wanted: HashMap<TopicName, (u64, String)>,
    is_stopped: bool,
}

impl TakeOvers {
    /// Takes the topics of a cluster from an archive to a folder.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start(
        archive: Arc<dyn Archive>,
        cluster: &str,
        dir: &Path,
        hooks: TakeOverHooks,
    ) -> std::io::Result<Self> {
        let (cluster, dir) = (cluster.to_owned(), dir.to_owned());
        let (state, changed) = (Mutex::default(), Condvar::new());
        let desk = Arc::new(Desk { archive, cluster, dir, hooks, state, changed });
        let mut takeovers = Self { desk, threads: Vec::new() };
        for _ in 0..THREADS {
            let desk = takeovers.desk.clone();
            takeovers.threads.push(threads::spawn("rbmq-takeover", move || desk.run())?);
        }
        Ok(takeovers)
    }

    /// This broker has a topic, in this term, and wants its log.
    pub(crate) fn want(&self, topic: &TopicName, term: u64) {
        self.want_at(Instant::now(), topic, term);
    }

    /// The same, after a while: its folder could not be used.
    pub(crate) fn want_later(&self, topic: &TopicName, term: u64) {
        self.want_at(Instant::now() + RETRY, topic, term);
    }

    fn want_at(&self, at: Instant, topic: &TopicName, term: u64) {
        let mut state = self.desk.state.lock();
        let is_known = state.wanted.get(topic).is_some_and(|(wanted, _)| *wanted == term);
        if is_known || state.wanted.len() >= MAX_WANTED {
            return;
        }
        state.wanted.insert(topic.clone(), (term, String::new()));
        state.queue.push_back((at, Wanted { topic: topic.clone(), term }));
        self.desk.changed.notify_all();
    }
}

impl Desk {
    fn run(&self) {
        while let Some(wanted) = self.next() {
            let is_owner =
                || (self.hooks.term)(&wanted.topic) == Some(wanted.term) && !self.state.lock().is_stopped;
            let taken = random().map_err(|error| ArchiveError::Down(error.to_string())).and_then(|new| {
                let taker = Taker {
                    archive: &*self.archive,
                    cluster: &self.cluster,
                    dir: &self.dir,
                    new: Epoch(new),
                };
                taker.take(&wanted, &is_owner)
            });
            match taken {
                Ok(taken) => {
                    self.forget(&wanted);
                    (self.hooks.taken)(wanted, taken);
                }
                Err(error) if is_owner() => self.failed(wanted, &error),
                Err(_) => self.forget(&wanted),
            }
        }
    }

    /// Waits for the next one whose time has come. None: the threads end.
    fn next(&self) -> Option<Wanted> {
        let mut state = self.state.lock();
        while !state.is_stopped {
            let now = Instant::now();
            let due = state.queue.iter().position(|(at, _)| *at <= now);
            if let Some((_, wanted)) = due.and_then(|due| state.queue.remove(due)) {
                return Some(wanted);
            }
            self.changed.wait_for(&mut state, RETRY);
        }
        None
    }

    fn forget(&self, wanted: &Wanted) {
        let mut state = self.state.lock();
        if state.wanted.get(&wanted.topic).is_some_and(|(term, _)| *term == wanted.term) {
            state.wanted.remove(&wanted.topic);
        }
    }

    fn failed(&self, wanted: Wanted, error: &ArchiveError) {
        let (mut state, reason) = (self.state.lock(), error.to_string());
        let Some((term, known)) = state.wanted.get_mut(&wanted.topic) else { return };
        // It is wanted in another term by now.
        if *term != wanted.term {
            return;
        }
        if *known != reason {
            warn!("topic '{}' waits for its archive: {reason}", wanted.topic);
            *known = reason;
        }
        state.queue.push_back((Instant::now() + RETRY, wanted));
    }
}

impl Drop for TakeOvers {
    fn drop(&mut self) {
        self.desk.state.lock().is_stopped = true;
        self.desk.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}
