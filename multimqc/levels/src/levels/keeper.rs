//! A thread that does its work at intervals, until its handle is dropped.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use locks::{Condvar, Mutex};

/// The thread.
pub(super) struct Keeper {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it.
    pub fn start(name: &str, interval: Duration, work: impl Fn() + Send + 'static) -> io::Result<Keeper> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let (asked, wake) = &*stopped;
            let mut guard = asked.lock();
            while !*guard {
                wake.wait_while_for(&mut guard, |asked| !*asked, interval);
                if !*guard {
                    drop(guard);
                    work();
                    guard = asked.lock();
                }
            }
        };
        let thread = Some(threads::spawn(name.to_owned(), run)?);
        Ok(Keeper { stop, thread })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}
