//! The thread that syncs in intervals.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::shared::Shared;

#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// A thread that syncs until the ticker is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(shared: Arc<Shared>, interval: Duration) -> io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("seglog-sync".to_owned()).spawn(move || {
            let mut stopped = seen.stopped.lock();
            while !*stopped {
                seen.changed.wait_for(&mut stopped, interval);
                // A failure is kept in the state: waiting threads learn of it, and the writer repairs it.
                parking_lot::MutexGuard::unlocked(&mut stopped, || drop(shared.sync()));
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}
