//! The threads that check passwords, and the queue before them.
//!
//! A check takes about 50 ms and 19 MiB. So there are few threads, and a short queue that is fair to
//! addresses (`queue.rs`).

use std::sync::Arc;
use std::thread::JoinHandle;

use locks::{Condvar, Mutex};

use super::queue::FairQueue;
use crate::password_check::PasswordCheck;

struct State {
    queue: FairQueue<PasswordCheck>,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The threads. Dropping it ends them, after the checks that they are at.
pub(crate) struct Checks {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Checks {
    /// Starts the threads.
    pub(crate) fn start(threads: usize, max_waiting: usize) -> std::io::Result<Self> {
        let state = State { queue: FairQueue::new(max_waiting), stop: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut checks = Self { shared, threads: Vec::new() };
        for _ in 0..threads {
            let shared = checks.shared.clone();
            checks.threads.push(threads::spawn("rbmq-login", move || shared.run())?);
        }
        Ok(checks)
    }

    /// Allows another number of waiting passwords.
    pub(crate) fn set_max_waiting(&self, max: usize) {
        self.shared.state.lock().queue.set_max(max);
    }

    /// Queues a check. Whichever has no place in the queue is refused.
    pub(crate) fn submit(&self, check: PasswordCheck) {
        let without_place = self.shared.state.lock().queue.push(check.source, check);
        self.shared.changed.notify_one();
        without_place.into_iter().for_each(PasswordCheck::refuse);
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The panic of a thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some(check) = self.next() {
            check.run();
        }
    }

    /// Waits for the next password. None if the thread is to end.
    fn next(&self) -> Option<PasswordCheck> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(check) = state.queue.pop() {
                return Some(check);
            }
            self.changed.wait(&mut state);
        }
    }
}
