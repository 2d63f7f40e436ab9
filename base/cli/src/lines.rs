//! A queue of lines for a log or for standard output, whose reader may be slow or gone. Writers never wait for the reader.
//!
//! ```text
//!   any thread ── write ──▶ queue, bounded in bytes ──▶ one thread ── write ──▶ standard error
//!                              └─ full: lines are dropped, counted, and reported later
//! ```
//!
//! The writer of `tracing-appender` limits the number of lines and not their bytes. If its reader takes nothing at the end, it
//! writes a message to a standard stream, and would wait there.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use locks::{Condvar, Mutex};

/// The most bytes that wait for the reader.
pub const MAX_BYTES: usize = 1 << 20;

/// The cost of a line in the queue besides its bytes.
const LINE_COST: usize = 64;

/// How long a flush waits for a reader that reads nothing.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes lines. Each write is one line. Cloning copies a pointer.
#[derive(Clone)]
pub struct Lines(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    /// Notified when a line waits for the writing thread, and when that has written one.
    changed: Condvar,
    max_bytes: usize,
    dropped: Arc<AtomicU64>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// The cost of all lines, including the one that is being written.
    bytes: usize,
    /// The number of written lines.
    written: u64,
    /// The number of dropped lines that are not reported yet.
    unreported: u64,
}

impl Lines {
    /// Starts the thread that writes to `to`. The thread calls `report` with the number of dropped lines.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start(
        name: &str,
        mut to: impl Write + Send + 'static,
        max_bytes: usize,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, changed, dropped) = Default::default();
        let lines = Self(Arc::new(Shared { queue, changed, max_bytes, dropped }));
        let shared = lines.0.clone();
        threads::spawn(name, move || shared.write_all(&mut to, &report))?;
        Ok(lines)
    }

    /// The number of lines that were dropped so far.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        self.0.dropped.clone()
    }

    /// Queues a line, or drops it.
    pub fn push(&self, line: Vec<u8>) {
        let mut queue = self.0.queue.lock();
        let bytes = queue.bytes + line.len() + LINE_COST;
        if bytes > self.0.max_bytes {
            queue.unreported += 1;
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.bytes = bytes;
        queue.lines.push_back(line);
        drop(queue);
        self.0.changed.notify_all();
    }

    /// Waits until all lines are written. False if the reader takes nothing for a second.
    pub fn flush(&self) -> bool {
        self.flush_within(FLUSH_TIMEOUT)
    }

    fn flush_within(&self, patience: Duration) -> bool {
        let mut queue = self.0.queue.lock();
        while queue.bytes > 0 {
            let before = queue.written;
            let still = |queue: &mut Queue| queue.written == before;
            self.0.changed.wait_while_for(&mut queue, still, patience);
            if queue.written == before {
                return false;
            }
        }
        true
    }
}

impl Write for Lines {
    /// Queues or drops the whole line. Never fails and never waits.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Writes lines as long as the process lives.
    fn write_all(&self, to: &mut impl Write, report: &impl Fn(u64)) {
        loop {
            let mut queue = self.queue.lock();
            self.changed.wait_while(&mut queue, |queue| queue.lines.is_empty());
            let Some(line) = queue.lines.pop_front() else { continue };
            drop(queue);
            // A failure means that the reader is gone.
            let _ = to.write_all(&line);
            let mut queue = self.queue.lock();
            queue.bytes -= line.len() + LINE_COST;
            queue.written += 1;
            // The report follows the lines before it, when the queue has room for it.
            let unreported = if queue.lines.is_empty() { std::mem::take(&mut queue.unreported) } else { 0 };
            drop(queue);
            if unreported > 0 {
                report(unreported);
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

    /// A reader that takes a line when the test allows it.
    struct Slow {
        may: Receiver<()>,
        has: SyncSender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // After the test has dropped its end, the reader takes everything.
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
    fn writers_do_not_wait_and_dropped_lines_are_reported() {
        let (to, go, taken) = slow();
        let (told, drops) = sync_channel(10);
        let mut lines =
            Lines::start("log", to, 10 * (LINE_COST + 2), move |n| told.send(n).unwrap()).unwrap();
        for n in 0..1000 {
            lines.write_all(format!("{:02}", n % 100).as_bytes()).unwrap();
        }
        assert_eq!(lines.dropped().load(Ordering::Relaxed), 990);
        // The reader takes nothing, and the flush ends all the same.
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
    fn a_flush_waits_until_all_lines_are_written() {
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
