//! A publisher of a round: its input, and the confirmations that it prints.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use testkit::{Outcome, Process};

use super::output::Lines;
use super::shape::Shape;
use crate::common::{client, piped};

pub struct Publisher {
    process: Process,
    pub confirmed: Lines,
    /// Has the last line published.
    last: SyncSender<()>,
    fed: Arc<AtomicBool>,
    feeder: JoinHandle<()>,
}

impl Publisher {
    pub fn start(index: usize, addr: &str, shape: Shape) -> Self {
        let Shape { level, ring, .. } = shape;
        let args = format!(
            "-q t/x --wait-subscribers 2 --confirm {level} --confirm-each --json --timeout 60 --ring-bytes {ring}"
        );
        let mut command = piped(client("pub", addr, &args));
        command.env("ROCKETBUFS_TRANSPORT", shape.transport);
        let mut process = Process::start(command);
        let confirmed = Lines::of(process.stdout());
        let (last, wait) = sync_channel(1);
        let fed = Arc::<AtomicBool>::default();
        let (mut stdin, all_fed) = (process.stdin(), fed.clone());
        let feeder = std::thread::spawn(move || {
            let line = |n: u64| shape.line(index, n) + "\n";
            let most: String = (0..shape.lines() - 1).map(line).collect();
            // The publisher may be killed during the write.
            let written = stdin.write_all(most.as_bytes());
            all_fed.store(true, Ordering::SeqCst);
            if written.is_ok() && wait.recv().is_ok() {
                let _ = stdin.write_all(line(shape.lines() - 1).as_bytes());
            }
        });
        Self { process, confirmed, last, fed, feeder }
    }

    /// Whether it lives and there is more for it than its last line.
    pub fn flows(&mut self) -> bool {
        self.process.is_running() && !self.fed.load(Ordering::SeqCst)
    }

    /// Whether something of it is confirmed.
    pub fn has_begun(&self) -> bool {
        !self.confirmed.now().is_empty()
    }

    /// Kills the publisher. Returns the confirmations that it had printed.
    pub fn kill(self) -> Vec<String> {
        self.process.signal("KILL");
        self.end().1
    }

    /// Feeds it with its last line.
    pub fn feed_last(&self) {
        // If the publisher has failed, `end` reports that.
        let _ = self.last.send(());
    }

    /// Waits until the publisher ends by itself.
    pub fn end(self) -> (Outcome, Vec<String>) {
        let outcome = self.process.finish();
        drop(self.last);
        self.feeder.join().expect("a feeder");
        (outcome, self.confirmed.all())
    }
}
