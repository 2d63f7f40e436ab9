//! Transfers from each level to the next, in batches.
//!
//! ```text
//!   lower level   ──────────────────────▶ head
//!                         │ batch │ rest     a batch moves when it is complete, the rest when it is `max_age` old
//!   upper level   ───────▶ head              the next offset to be transferred: nothing else is remembered
//! ```
//!
//! The upper level's head is the cursor, so after a restart the transfer continues where the upper level ends. If bytes of the lower
//! level were overwritten before they were transferred, the upper level gets a batch without bytes: a hole of the same size.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::Mutex;

use crate::level::{Level, LevelError, Stop};
use crate::log::{Batch, Offset};
use crate::stack::Stack;
use crate::topic::TopicId;

/// How long a transfer waits after a failure before it tries again.
const RETRY: Duration = Duration::from_millis(100);
/// The most batches of a topic that move before the next topic's turn.
const TURN: usize = 64;
/// How long the transfers of an ending stack wait for a level that does not answer.
const DRAIN: Duration = Duration::from_secs(5);

/// The settings of transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferConfig {
    /// Bytes of a batch; default 32 KiB, the paper's. Larger batches cost fewer writes of the next level, and must fit twice into
    /// the lower level.
    pub batch_bytes: usize,
    /// A batch that is not complete moves once its oldest byte has waited this long; default 50 ms. This bounds what a crash of
    /// the machine's process loses of a slow topic.
    pub max_age: Duration,
}

impl Default for TransferConfig {
    fn default() -> Self {
        TransferConfig { batch_bytes: 32 << 10, max_age: Duration::from_millis(50) }
    }
}

/// Moves the bytes of two neighbouring levels.
pub struct Mover {
    lower: Arc<dyn Level>,
    upper: Arc<dyn Level>,
    config: TransferConfig,
    buffer: Vec<u8>,
    /// For each topic with an incomplete batch, the time since which it waits.
    waiting: HashMap<TopicId, Instant>,
    progress: Arc<Progress>,
}

/// The progress of a mover.
#[derive(Debug, Default)]
pub struct Progress {
    batches: AtomicU64,
    holes: AtomicU64,
    hole_bytes: AtomicU64,
    failures: AtomicU64,
    longest_nanos: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// The values of a [`Progress`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgressReport {
    /// Batches that were transferred.
    pub batches: u64,
    /// Holes: the lower level was overwritten before it was transferred.
    pub holes: u64,
    /// Bytes in these holes.
    pub hole_bytes: u64,
    /// Writes that failed and were tried again.
    pub failures: u64,
    /// The longest time that the next level took for a batch. Equation 1 wants it below the acceptable latency.
    pub longest: Duration,
    /// The error of the last write, if it failed.
    pub last_error: Option<String>,
}

impl Progress {
    /// The values now.
    pub fn report(&self) -> ProgressReport {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ProgressReport {
            batches: get(&self.batches),
            holes: get(&self.holes),
            hole_bytes: get(&self.hole_bytes),
            failures: get(&self.failures),
            longest: Duration::from_nanos(get(&self.longest_nanos)),
            last_error: self.last_error.lock().clone(),
        }
    }

    fn wrote(&self, took: Duration, result: Result<(), &LevelError>) {
        self.longest_nanos.fetch_max(took.as_nanos().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        match result {
            Ok(()) => self.batches.fetch_add(1, Ordering::Relaxed),
            Err(_) => self.failures.fetch_add(1, Ordering::Relaxed),
        };
        let mut last = self.last_error.lock();
        match result {
            Ok(()) if last.is_none() => {}
            other => *last = other.err().map(LevelError::to_string),
        }
    }
}

impl Mover {
    /// A mover between two levels with the same open topics.
    pub fn new(lower: Arc<dyn Level>, upper: Arc<dyn Level>, config: TransferConfig) -> Mover {
        let buffer = vec![0; config.batch_bytes.max(1)];
        Mover { lower, upper, config, buffer, waiting: HashMap::new(), progress: Arc::default() }
    }

    /// The progress of this mover, for other threads.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Moves the complete batches of a topic, and the rest if it has waited long enough at `now`, or if `all` is set. Returns
    /// whether the topic's turn ended before it had no more of them.
    ///
    /// # Errors
    /// [`LevelError`]. A batch that was not moved stays in the lower level.
    pub fn step(&mut self, topic: TopicId, now: Instant, all: bool) -> Result<bool, LevelError> {
        let window = self.upper.window(topic).ok_or(LevelError::UnknownTopic(topic))?;
        let mut at = window.head;
        for _ in 0..TURN {
            let found = self.lower.transfer(topic, at, &mut self.buffer)?;
            let complete = found.bytes == self.buffer.len();
            if found.bytes > 0 && (complete || found.stop != Stop::Head || self.is_due(topic, now, all)) {
                at = self.write(topic, at, found.bytes)?;
                self.waiting.remove(&topic);
            } else if found.bytes > 0 {
                return Ok(false);
            }
            match found.stop {
                Stop::Filled => {}
                Stop::Head => return Ok(false),
                Stop::Hole(hole) => at = self.mark(topic, at, hole.to)?,
                Stop::Gone(first) => at = self.mark(topic, at, first)?,
            }
        }
        Ok(true)
    }

    /// Whether an incomplete batch has waited for `max_age`, or `all` is set.
    fn is_due(&mut self, topic: TopicId, now: Instant, all: bool) -> bool {
        let since = *self.waiting.entry(topic).or_insert(now);
        all || now.saturating_duration_since(since) >= self.config.max_age
    }

    fn write(&self, topic: TopicId, offset: Offset, bytes: usize) -> Result<Offset, LevelError> {
        let batch = Batch { offset, bytes: &self.buffer[..bytes] };
        let begin = Instant::now();
        let written = self.upper.write(topic, batch);
        self.progress.wrote(begin.elapsed(), written.as_ref().map(drop));
        written.map(|_| batch.end())
    }

    /// Writes a batch without bytes at `to`, so that the log of the upper level continues there, behind a hole.
    fn mark(&self, topic: TopicId, from: Offset, to: Offset) -> Result<Offset, LevelError> {
        let written = self.upper.write(topic, Batch { offset: to, bytes: &[] });
        if let Err(error) = &written {
            self.progress.wrote(Duration::ZERO, Err(error));
        }
        if written?.hole.is_some() {
            self.progress.holes.fetch_add(1, Ordering::Relaxed);
            self.progress.hole_bytes.fetch_add(to - from, Ordering::Relaxed);
        }
        Ok(to)
    }
}

/// The threads that transfer between the levels of a stack, one for each pair of neighbours. Dropping it ends them, after they
/// have moved everything.
pub struct Transfers {
    levels: Vec<Arc<dyn Level>>,
    pairs: Vec<Pair>,
}

/// A thread, and the state that it shares.
struct Pair {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    progress: Arc<Progress>,
}

impl Transfers {
    /// Starts the threads. Topics may be opened later.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn start(stack: &Arc<Stack>, config: &TransferConfig) -> std::io::Result<Transfers> {
        let mut transfers = Transfers { levels: stack.levels().to_vec(), pairs: Vec::new() };
        for pair in stack.levels().windows(2) {
            let mover = Mover::new(Arc::clone(&pair[0]), Arc::clone(&pair[1]), config.clone());
            let (progress, stop) = (mover.progress(), Arc::new(AtomicBool::new(false)));
            let (stack, stopped) = (Arc::clone(stack), Arc::clone(&stop));
            let name = format!("to-{}", pair[1].kind().name());
            let thread = threads::spawn(name, move || run(mover, &stack, &stopped))?;
            transfers.pairs.push(Pair { stop, thread, progress });
        }
        Ok(transfers)
    }

    /// The progress of each pair of neighbours, the first pair first.
    pub fn progress(&self) -> Vec<ProgressReport> {
        self.pairs.iter().map(|pair| pair.progress.report()).collect()
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        // In this order, since the next pair moves the last bytes that a level gets.
        for (level, pair) in self.levels.iter().zip(self.pairs.drain(..)) {
            pair.stop.store(true, Ordering::Release);
            level.wake();
            // A thread that panicked has nothing left to move.
            let _ = pair.thread.join();
        }
        for level in &self.levels {
            // A level counts by itself that it could not make its bytes durable.
            let _ = level.sync();
        }
    }
}

/// How a turn over all topics ended.
#[derive(Default)]
struct Turn {
    failed: bool,
    more: bool,
}

/// Transfers until `stop` is set and everything was moved.
fn run(mut mover: Mover, stack: &Stack, stop: &AtomicBool) {
    let mut turn = Turn::default();
    // Acquire pairs with the Release in `drop`: the heads at that time are seen.
    while !stop.load(Ordering::Acquire) {
        if turn.failed {
            std::thread::sleep(RETRY);
        } else if !turn.more {
            mover.lower.wait_batch(mover.config.max_age);
        }
        turn = move_all(&mut mover, stack, false);
    }
    let deadline = Instant::now() + DRAIN;
    loop {
        turn = move_all(&mut mover, stack, true);
        if !(turn.failed || turn.more) || Instant::now() >= deadline {
            return;
        }
        if turn.failed {
            std::thread::sleep(RETRY);
        }
    }
}

/// Moves the due batches of each topic.
fn move_all(mover: &mut Mover, stack: &Stack, all: bool) -> Turn {
    let (now, mut turn) = (Instant::now(), Turn::default());
    for topic in stack.topics() {
        match mover.step(topic, now, all) {
            Ok(more) => turn.more |= more,
            Err(_) => turn.failed = true,
        }
    }
    turn
}
