//! Lines for a reader that may be slow, or read no more, of a log or of standard output: who writes never waits for it.
//!
//! ```text
//!   any thread ── write ──▶ queue, at most so many bytes ──▶ one thread ── write ──▶ standard error
//!                              └─ full: dropped, counted, and told when there is room again
//! ```
//!
//! `tracing-appender` has such a writer. It bounds the number of lines and not their bytes, and says on a standard
//! stream when the reader keeps it from ending: that would be the wait that this is to avoid.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of lines that wait for the reader.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// What a line in the queue costs beside its bytes.
const LINE_COST: usize = 64;

/// How long the end waits for a reader that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Takes lines; each write is one. Cloning copies a pointer.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    /// Told when there is a line for the thread that writes, and when that has written one.
    changed: Condvar,
    max_bytes: usize,
    dropped: Arc<AtomicU64>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// What the lines take, also the one that is being written.
    bytes: usize,
    /// Lines that were written.
    written: u64,
    /// Lines that were dropped and not told yet.
    untold: u64,
}

impl Lines {
    /// Starts the thread that writes to `to`. What was dropped is told with `tell`, on that thread.
    pub(super) fn start(
        name: &str,
        mut to: impl Write + Send + 'static,
        max_bytes: usize,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, changed, dropped) = Default::default();
        let lines = Self(Arc::new(Shared { queue, changed, max_bytes, dropped }));
        let shared = lines.0.clone();
        std::thread::Builder::new().name(name.into()).spawn(move || shared.write_all(&mut to, &tell))?;
        Ok(lines)
    }

    /// How many lines were dropped so far.
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        self.0.dropped.clone()
    }

    /// Takes a line, or drops it.
    pub(super) fn push(&self, line: Vec<u8>) {
        let mut queue = self.0.lock();
        let bytes = queue.bytes + line.len() + LINE_COST;
        if bytes > self.0.max_bytes {
            queue.untold += 1;
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes = bytes;
        queue.lines.push_back(line);
        drop(queue);
        self.0.changed.notify_all();
    }

    /// Waits until all lines that came are written; false if the reader has taken nothing for a while.
    pub(super) fn flush(&self) -> bool {
        self.flush_within(PATIENCE)
    }

    fn flush_within(&self, patience: Duration) -> bool {
        let mut queue = self.0.lock();
        while queue.bytes > 0 {
            let before = queue.written;
            let still = |queue: &mut Queue| queue.written == before;
            let waited = self.0.changed.wait_timeout_while(queue, patience, still);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            if queue.written == before {
                return false;
            }
        }
        true
    }
}

impl Write for Lines {
    /// Takes the whole line or drops it; never an error, never waits.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes, as long as the process lives.
    fn write_all(&self, to: &mut impl Write, tell: &impl Fn(u64)) {
        loop {
            let wait = |queue: &mut Queue| queue.lines.is_empty();
            let waited = self.changed.wait_while(self.lock(), wait);
            let mut queue = waited.unwrap_or_else(PoisonError::into_inner);
            let Some(line) = queue.lines.pop_front() else { continue };
            drop(queue);
            // A reader that has gone needs nothing.
            let _ = to.write_all(&line);
            let mut queue = self.lock();
            queue.bytes -= line.len() + LINE_COST;
            queue.written += 1;
            // Behind those that came before, and where there is room for a line that says so.
            let untold = if queue.lines.is_empty() { std::mem::take(&mut queue.untold) } else { 0 };
            drop(queue);
            if untold > 0 {
                tell(untold);
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A reader that takes a line when it is told to.
    struct Slow {
        may: Receiver<()>,
        has: SyncSender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Where nobody tells it any more it takes everything.
            let _ = self.may.recv();
            let _ = self.has.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Slow, SyncSender<()>, Receiver<String>) {
        let ((go, may), (has, taken)) = (sync_channel(1), sync_channel(1000));
        (Slow { may, has }, go, taken)
    }

    #[test]
    fn nobody_waits_for_a_reader_and_what_is_dropped_is_told() {
        let (to, go, taken) = slow();
        let (told, drops) = sync_channel(10);
        let mut lines =
            Lines::start("log", to, 10 * (LINE_COST + 2), move |n| told.send(n).unwrap()).unwrap();
        for n in 0..1000 {
            lines.write_all(format!("{:02}", n % 100).as_bytes()).unwrap();
        }
        assert_eq!(lines.dropped().load(Ordering::Relaxed), 990);
        // It takes nothing, and still there is an end.
        assert!(!lines.flush());
        drop(go);
        for n in 0..10 {
            assert_eq!(taken.recv_timeout(LONG).unwrap(), format!("{n:02}"));
        }
        assert_eq!(drops.recv_timeout(LONG).unwrap(), 990);
        lines.write_all(b"on").unwrap();
        assert_eq!(taken.recv_timeout(LONG).unwrap(), "on");
        assert_eq!(lines.dropped().load(Ordering::Relaxed), 990);
    }

    #[test]
    fn what_was_logged_is_written_before_the_end() {
        let (to, go, taken) = slow();
        let mut lines = Lines::start("log", to, MAX_BYTES, |_| panic!("nothing is dropped")).unwrap();
        for n in 0..500 {
            lines.write_all(format!("{n}").as_bytes()).unwrap();
        }
        let reader = std::thread::spawn(move || (0..500).for_each(|_| go.send(()).unwrap()));
        assert!(lines.flush_within(LONG));
        assert_eq!(taken.try_iter().count(), 500);
        reader.join().unwrap();
    }
}
