//! The threads that check passwords, and the queue before them.
//!
//! A check takes about 50 ms and 19 MiB. So there are few threads, and a short queue that is fair to
//! addresses (`queue.rs`).

use std::sync::Arc;
use std::thread::JoinHandle;

use access::{Check, Refused, Source};
use locks::{Condvar, Mutex};
use rocketbufs::Conn;

use super::queue::FairQueue;
use crate::inbox::{Event, Sender};

/// A password that waits to be checked.
struct Job {
    conn: Conn,
    check: Check,
}

struct State {
    queue: FairQueue<Job>,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The threads. Dropping it ends them, after the checks that they are at.
pub(super) struct Checks {
    shared: Arc<Shared>,
    events: Sender,
    threads: Vec<JoinHandle<()>>,
}

impl Checks {
    /// Starts the threads. Each result is an [`Event::LoginChecked`].
    pub(super) fn start(threads: usize, max_waiting: usize, events: &Sender) -> std::io::Result<Self> {
        let state = State { queue: FairQueue::new(max_waiting), stop: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut checks = Self { shared, events: events.clone(), threads: Vec::new() };
        for _ in 0..threads {
            let (shared, events) = (checks.shared.clone(), events.clone());
            checks.threads.push(threads::spawn("rbmq-login", move || shared.run(&events))?);
        }
        Ok(checks)
    }

    /// Allows another number of waiting passwords.
    pub(super) fn set_max_waiting(&self, max: usize) {
        self.shared.state.lock().queue.set_max(max);
    }

    /// Queues a check. Whichever has no place in the queue is refused.
    pub(super) fn submit(&self, source: Source, conn: Conn, check: Check) {
        let without_place = self.shared.state.lock().queue.push(source, Job { conn, check });
        self.shared.changed.notify_one();
        if let Some(job) = without_place {
            self.events.event(Event::LoginChecked { conn: job.conn.id(), login: Err(Refused::Busy) });
        }
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
    fn run(&self, events: &Sender) {
        while let Some(Job { conn, check }) = self.next() {
            // The login of a client that has left costs no check.
            let login = if conn.down_reason().is_some() { Err(Refused::Left) } else { check.run() };
            events.event(Event::LoginChecked { conn: conn.id(), login });
        }
    }

    /// Waits for the next job. None if the thread is to end.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(job) = state.queue.pop() {
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }
}
