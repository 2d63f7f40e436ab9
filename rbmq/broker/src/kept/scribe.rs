//! The thread that writes kept topics to the disk. A disk that is slow or full makes the publishers of kept topics wait, and nobody
//! else.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::{Condvar, Mutex};

/// How often topics are looked at without being asked: a failed disk is tried again, and old data is removed.
const TICK: Duration = Duration::from_secs(1);

/// A topic that the thread works for.
pub(crate) trait Written: Send + Sync {
    /// Writes the deliveries that have arrived.
    fn write(&self);
    /// Called once for each tick.
    fn tick(&self);
}

/// The queue of the thread. A topic is in it at most twice, for its events and for a sync, which the topic sees to.
#[derive(Default)]
struct Queue {
    topics: VecDeque<Weak<dyn Written>>,
    all: Vec<Weak<dyn Written>>,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Since when the thread works. None: it waits.
    works_since: Mutex<Option<Instant>>,
}

/// The way to the thread. Clones lead to the same one.
#[derive(Clone, Default)]
pub(crate) struct Scribe(Arc<Shared>);

/// The thread of a scribe. The thread ends when this handle is dropped.
pub(crate) struct ScribeThread {
    scribe: Scribe,
    thread: Option<JoinHandle<()>>,
}

impl Scribe {
    /// Has the topic written.
    pub(crate) fn schedule(&self, topic: Weak<dyn Written>) {
        self.0.queue.lock().topics.push_back(topic);
        self.0.changed.notify_one();
    }

    /// Has the topic ticked from now on.
    pub(crate) fn add(&self, topic: Weak<dyn Written>) {
        self.0.queue.lock().all.push(topic);
    }

    /// How long the disk has kept the thread.
    pub(crate) fn works_for(&self) -> Duration {
        self.0.works_since.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn run(&self) {
        let mut tick = Instant::now() + TICK;
        loop {
            let wait = tick.saturating_duration_since(Instant::now());
            let idle = |queue: &mut Queue| queue.topics.is_empty() && !queue.stopped;
            let mut queue = self.0.queue.lock();
            self.0.changed.wait_while_for(&mut queue, idle, wait);
            if queue.stopped {
                return;
            }
            let next = queue.topics.pop_front();
            let all = if Instant::now() >= tick {
                tick = Instant::now() + TICK;
                queue.all.retain(|topic| topic.strong_count() > 0);
                queue.all.clone()
            } else {
                Vec::new()
            };
            drop(queue);
            if let Some(topic) = next.and_then(|topic| topic.upgrade()) {
                self.work(|| topic.write());
            }
            all.iter().filter_map(Weak::upgrade).for_each(|topic| self.work(|| topic.tick()));
        }
    }
}

impl Scribe {
    fn work(&self, work: impl FnOnce()) {
        *self.0.works_since.lock() = Some(Instant::now());
        work();
        *self.0.works_since.lock() = None;
    }
}

impl ScribeThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn start(scribe: &Scribe) -> std::io::Result<Self> {
        let run = scribe.clone();
        let thread = threads::spawn("rbmq-disk", move || run.run())?;
        Ok(Self { scribe: scribe.clone(), thread: Some(thread) })
    }
}

impl Drop for ScribeThread {
    fn drop(&mut self) {
        self.scribe.0.queue.lock().stopped = true;
        self.scribe.0.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}
