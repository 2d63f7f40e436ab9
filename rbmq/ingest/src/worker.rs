//! The thread of an interface.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use multimqc::Level;
use rbmq_broker::FeedError;
use tracing::warn;

use super::interface::{CHECK_INTERVAL, Interface};
use super::line::{Line, Turn};

/// How long a thread waits for room in a topic before it looks again.
const ROOM_INTERVAL: Duration = Duration::from_millis(2);

/// How long a stopping thread takes messages that have arrived.
const DRAIN: Duration = Duration::from_secs(1);

/// A running thread.
pub(crate) struct Worker {
    level: Arc<dyn Level>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Task {
    interface: Interface,
    lines: Vec<Line>,
    max_age: Duration,
    stop: Arc<AtomicBool>,
    checked: Instant,
}

impl Worker {
    pub fn start(
        name: &str,
        interface: Interface,
        lines: Vec<Line>,
        max_age: Duration,
    ) -> std::io::Result<Self> {
        let (level, stop) = (interface.level().clone(), Arc::new(AtomicBool::new(false)));
        let task = Task { interface, lines, max_age, stop: stop.clone(), checked: Instant::now() };
        // The system cuts names of threads at 15 bytes.
        let thread = Some(threads::spawn(format!("in-{name}"), move || task.run())?);
        Ok(Self { level, stop, thread })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.level.wake();
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Task {
    fn run(mut self) {
        let ended = self.serve().and_then(|()| self.drain());
        if let Err(error) = ended {
            warn!("ingest: {error}");
        }
        self.lines.iter().for_each(|line| line.counters().set_up(false));
    }

    fn serve(&mut self) -> Result<(), FeedError> {
        let level = self.interface.level().clone();
        // Acquire pairs with the Release in `drop`.
        while !self.stop.load(Ordering::Acquire) {
            match self.turn()? {
                Turn::More => {}
                Turn::Full => std::thread::sleep(ROOM_INTERVAL),
                Turn::Done => {
                    level.wait_batch(CHECK_INTERVAL);
                    // Messages that arrive together are one batch. A message that comes alone is not kept waiting by others before it.
                    self.wait_for_others();
                }
            }
            if self.checked.elapsed() >= CHECK_INTERVAL {
                self.check();
            }
        }
        Ok(())
    }

    /// Takes a message that has come alone, and lets those that follow wait for each other.
    fn wait_for_others(&mut self) {
        if !self.max_age.is_zero() && self.turn().is_ok_and(|turn| turn == Turn::Done) {
            std::thread::sleep(self.max_age);
        }
    }

    /// A turn of each topic.
    fn turn(&mut self) -> Result<Turn, FeedError> {
        let level = self.interface.level();
        let mut last = Turn::Done;
        for line in &mut self.lines {
            last = last.max(line.turn(level.as_ref())?);
        }
        Ok(last)
    }

    /// Looks at the interface, and at the counters.
    fn check(&mut self) {
        self.checked = Instant::now();
        let is_up = self.interface.check();
        let refused = self.interface.refused();
        let level = self.interface.level();
        for line in &mut self.lines {
            line.settle(level.as_ref());
            line.counters().set_up(is_up);
            line.counters().set_refused(refused);
        }
    }

    /// Takes the messages that have arrived before the end.
    fn drain(&mut self) -> Result<(), FeedError> {
        let deadline = Instant::now() + DRAIN;
        while Instant::now() < deadline {
            match self.turn()? {
                Turn::Done => return Ok(()),
                Turn::Full => std::thread::sleep(ROOM_INTERVAL),
                Turn::More => {}
            }
        }
        for line in &self.lines {
            let values = line.counters().values();
            if values.lag_bytes > 0 {
                let (topic, bytes) = (values.topic, values.lag_bytes);
                warn!(
                    "topic '{topic}': {bytes} bytes that have arrived stay behind: the topic had no room for them"
                );
            }
        }
        Ok(())
    }
}
