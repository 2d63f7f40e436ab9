//! The threads that sync in intervals: a few for all logs of the process.
//!
//! A log is in the queue only while it has something to sync: the first append after a sync puts it there, with the time at which its
//! interval is over. The *leader*, an idle thread, sleeps until the first time in the queue; the others wait for their turn. A thread
//! that begins to sync leaves the lead to an idle one, or to a new one as long as there are fewer than [`THREADS`], so a log whose
//! disk hangs delays no other one until all threads hang. A log is synced by one thread at a time.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use locks::{Condvar, Mutex, MutexGuard};

use crate::shared::Shared;

/// The most threads. File systems put syncs that wait at the same time into one commit, so a few threads serve thousands of logs.
const THREADS: usize = 8;

/// The threads of this process, as long as a log needs them.
static PROCESS: Mutex<Weak<Pool>> = Mutex::new(Weak::new());

/// When something is due: the time, and the number of the log.
type Due = (Instant, u64);

#[derive(Debug, Default)]
struct Queue {
    due: BTreeMap<Due, Arc<Shared>>,
    /// Logs that a thread syncs, and whether they fell due meanwhile.
    busy: HashMap<u64, bool>,
    /// Logs that have a ticker.
    logs: usize,
    next_log: u64,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for their turn to lead.
    idle: usize,
    /// Whether a thread waits for the first time in the queue.
    led: bool,
    stopped: bool,
}

#[derive(Debug, Default)]
struct Work {
    queue: Mutex<Queue>,
    /// For the leader: there is an earlier time in the queue.
    earlier: Condvar,
    /// For idle threads: there is no leader.
    lead: Condvar,
    /// For tickers that end: a log is not busy any more.
    done: Condvar,
}

/// The threads. They end when the last ticker does.
#[derive(Debug)]
struct Pool(Arc<Work>);

/// The place of a log among those that are synced in intervals.
#[derive(Debug)]
pub(crate) struct Ticker {
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    interval: Duration,
    log: u64,
    /// The last time that was put into the queue.
    due: Option<Instant>,
}

impl Ticker {
    /// A ticker for a log.
    ///
    /// # Errors
    /// The first thread does not start.
    pub(crate) fn new(shared: Arc<Shared>, interval: Duration) -> io::Result<Self> {
        let pool = Pool::of_process()?;
        let mut queue = pool.0.queue.lock();
        queue.logs += 1;
        queue.next_log += 1;
        let log = queue.next_log;
        drop(queue);
        Ok(Self { pool, shared, interval, log, due: None })
    }

    /// Has the log synced when its interval is over. Called for the first append after [`Shared::sync_tick`] began.
    pub(crate) fn schedule(&mut self) {
        // A time that the clock cannot tell never comes.
        let Some(at) = Instant::now().checked_add(self.interval) else { return };
        let pool = Arc::clone(&self.pool);
        let mut queue = pool.0.queue.lock();
        // A sync that was hurried and did not begin yet includes the append.
        if !self.due.is_some_and(|due| queue.due.contains_key(&(due, self.log))) {
            self.put(&mut queue, at);
        }
    }

    /// Has the log synced now. If a thread syncs it at the moment, that sync began before, and another one follows it.
    pub(crate) fn hurry(&mut self) {
        let pool = Arc::clone(&self.pool);
        let mut queue = pool.0.queue.lock();
        if let Some(due) = self.due {
            queue.due.remove(&(due, self.log));
        }
        self.put(&mut queue, Instant::now());
    }

    fn put(&mut self, queue: &mut Queue, at: Instant) {
        let due = (at, self.log);
        self.due = Some(at);
        queue.due.insert(due, Arc::clone(&self.shared));
        if queue.due.first_key_value().is_some_and(|(first, _)| *first == due) {
            self.pool.0.earlier.notify_one();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        let work = &self.pool.0;
        let mut queue = work.queue.lock();
        queue.logs -= 1;
        loop {
            if let Some(at) = self.due {
                queue.due.remove(&(at, self.log));
            }
            match queue.busy.get_mut(&self.log) {
                None => break,
                Some(again) => *again = false,
            }
            work.done.wait(&mut queue);
        }
    }
}

impl Pool {
    fn of_process() -> io::Result<Arc<Self>> {
        let mut process = PROCESS.lock();
        if let Some(pool) = process.upgrade() {
            return Ok(pool);
        }
        let pool = Arc::new(Self(Arc::default()));
        pool.0.start(&mut pool.0.queue.lock())?;
        *process = Arc::downgrade(&pool);
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.stopped = true;
        let threads = std::mem::take(&mut queue.threads);
        drop(queue);
        self.0.earlier.notify_all();
        self.0.lead.notify_all();
        for thread in threads {
            // A panic of the thread was printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Work {
    fn start(self: &Arc<Self>, queue: &mut Queue) -> io::Result<()> {
        let work = Arc::clone(self);
        queue.threads.push(threads::spawn("seglog-sync", move || work.run())?);
        Ok(())
    }

    fn run(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        while !queue.stopped {
            let first = queue.due.first_key_value().map(|(due, _)| *due);
            match first.filter(|(at, _)| *at <= Instant::now()) {
                Some(due) => self.take(&mut queue, due),
                None if queue.led => {
                    queue.idle += 1;
                    self.lead.wait(&mut queue);
                    queue.idle -= 1;
                }
                None => self.lead_until(&mut queue, first),
            }
        }
    }

    /// Waits for the first time in the queue.
    fn lead_until(&self, queue: &mut MutexGuard<'_, Queue>, first: Option<Due>) {
        queue.led = true;
        match first {
            Some((at, _)) => drop(self.earlier.wait_until(queue, at)),
            None => self.earlier.wait(queue),
        }
        queue.led = false;
    }

    /// Syncs a log that is due.
    fn take(self: &Arc<Self>, queue: &mut MutexGuard<'_, Queue>, due: Due) {
        let (_, log) = due;
        let Some(shared) = queue.due.remove(&due) else { return };
        if let Some(again) = queue.busy.get_mut(&log) {
            *again = true;
            return;
        }
        queue.busy.insert(log, false);
        self.find_leader(queue);
        loop {
            // A failure is kept in the state of the log: threads that wait learn of it, and its writer repairs it. A panic of a storage
            // was printed, and is no reason to leave the other logs without syncs.
            let sync = AssertUnwindSafe(|| drop(shared.sync_tick()));
            MutexGuard::unlocked(queue, || drop(catch_unwind(sync)));
            if !queue.busy.get_mut(&log).is_some_and(std::mem::take) {
                break;
            }
        }
        queue.busy.remove(&log);
        self.done.notify_all();
    }

    /// Has another thread wait for the next time.
    fn find_leader(self: &Arc<Self>, queue: &mut Queue) {
        if queue.idle > 0 {
            self.lead.notify_one();
        } else if queue.threads.len() < THREADS && queue.busy.len() < queue.logs {
            // Without it the others go on, and are late if this log takes long.
            let _ = self.start(queue);
        }
    }
}
