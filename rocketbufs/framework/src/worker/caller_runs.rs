//! An application thread that would only wait for a worker does the worker's work.
//!
//! ```text
//!   recv                  nothing received ─▶ take the token: poll, read, … until there is ─▶ leave it
//!   worker's own thread   parked, checks now and then for returning callers; without them it works itself
//! ```
//!
//! The thread that wants the data then reads it, into its own core's cache, and no thread is woken. Only one
//! waiting thread can do this; with a second one the worker's own thread works for both. Callbacks run on the
//! working thread, so this requires an application without callbacks, or one that allowed it
//! ([`Context::allow_callbacks_in_calls`](crate::Context::allow_callbacks_in_calls)). The mode also requires a
//! context that never had a subscription with another policy than `block`: between two calls nothing reads
//! for some milliseconds, for any of the worker's connections. A writer that waits for much room does the
//! same: it sends what it wrote, and reads the credit for which it waits. A writer of little does not: with
//! many small deliveries, writing keeps one core busy and sending another.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rocketring::{Position, Ring};

use crate::ground::lock::lock;
use crate::ground::types::Nanos;
use crate::state::{
    Borrow, BorrowedReactor, Buffer, ContextInner, RInShared, WaitingThread, WorkerShared, after, as_worker,
    nanos_since,
};

/// How long the worker's own thread leaves an unused token alone.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(4);

/// A writer of smaller deliveries is busy with writing while the worker's own thread sends on another core.
const LARGE_BYTES: u64 = 16 << 10;

/// How long a writer waits for room before it asks its subscribers for their positions.
const UNASKED: Duration = Duration::from_millis(1);

/// Turns that a thread runs after its condition holds, while work is left.
const TURNS_MORE: u32 = 2;

impl Buffer {
    /// Waits until the writer has room up to `until`, or for `limit`. If a single worker sends the buffer and
    /// there is much to write, this thread does the worker's work meanwhile: the thread that needs the credit
    /// reads it.
    pub(crate) fn wait_for_room(&self, ring: &Ring, until: Position, limit: Duration) {
        let large = until.saturating_sub(ring.head()) >= LARGE_BYTES;
        // A waiting thread is registered, so that the thread that does the worker's work returns the token to
        // the worker.
        let waiting = self.only_worker().filter(|_| large && self.inner.callers_may_run());
        let waiting = waiting.map(|worker| Waiting::new(&self.inner, worker));
        if let Some(waiting) = waiting.as_ref().filter(|waiting| waiting.is_alone())
            && waiting.run_for_room(self, ring, until, limit)
        {
            return;
        }
        self.notify();
        ring.wait_grant(until, Some(limit));
    }
}

/// The registration of a thread that waits for a worker.
pub(crate) struct Waiting<'a> {
    context: &'a ContextInner,
    worker: &'a WorkerShared,
    /// No other thread waits for the worker, so this thread may do its work.
    alone: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(context: &'a ContextInner, worker: &'a WorkerShared) -> Self {
        let alone = worker.waiters.count.fetch_add(1, Ordering::Relaxed) == 0;
        Self { context, worker, alone }
    }

    /// Returns whether this thread may do the worker's work.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns the worker's bit. A context has at most 64 workers.
    pub(crate) fn bit(&self) -> u64 {
        1 << self.worker.index
    }

    /// Does the worker's work on this thread until `done` or for `limit`. The thread must be alone. Returns
    /// false if another thread does the work.
    pub(crate) fn run(&self, limit: Duration, done: &dyn Fn() -> bool) -> bool {
        debug_assert!(self.alone, "with another thread that waits the worker's own does the work");
        let Some((reactor, borrow)) = self.worker.borrowed() else { return false };
        if !self.worker.token.take() {
            return false;
        }
        let mut token = Taken { worker: self.worker, next: None };
        token.next = self.turns(&*reactor, borrow, limit, done);
        token.next.is_some()
    }

    /// Like [`Waiting::run`], for a writer. Subscribers usually report in time by themselves; a request
    /// makes them report smaller steps.
    fn run_for_room(&self, buffer: &Buffer, ring: &Ring, until: Position, limit: Duration) -> bool {
        let is_only = || buffer.only_worker().is_some_and(|only| only.index == self.worker.index);
        let done = || buffer.ended() || !is_only() || ring.request(until) >= until;
        if !self.run(limit.min(UNASKED), &done) {
            return false;
        }
        if limit <= UNASKED || done() {
            return true;
        }
        self.worker.mark_for_later(buffer.slot);
        self.run(limit - UNASKED, &done)
    }

    /// Returns when the worker next has work because of time alone. `None` ends this thread's part: the
    /// worker has ended, has more to do than this thread waits for, or must not run here any more.
    fn turns(
        &self,
        reactor: &Mutex<dyn BorrowedReactor>,
        borrow: &Borrow,
        limit: Duration,
        done: &dyn Fn() -> bool,
    ) -> Option<Nanos> {
        let until = Instant::now().checked_add(limit);
        let waker = self.worker.token.waker();
        let mut more = TURNS_MORE;
        let mut first = true;
        while self.context.callers_may_run() {
            let mut locked = lock(reactor);
            let now = nanos_since(borrow.started);
            // If only the kernel has news, sleeping is the way to ask it: the sleep ends at once if there are
            // any.
            let asks_by_sleeping = std::mem::take(&mut first) && locked.arrivals_wake_worker();
            if !asks_by_sleeping && !as_worker(|| locked.turn_now(now)) {
                return None;
            }
            let now = nanos_since(borrow.started);
            if !done() && until.is_none_or(|until| Instant::now() < until) && locked.busy_polls(now) {
                continue;
            }
            let wait = locked.may_wait(now, !(done() && self.comes_back_soon()));
            // Prepared before the reactor is released: a thread that borrows it and leaves work wakes this one.
            waker.prepare();
            drop(locked);
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            let over = left.is_zero() || done();
            if !over && !wait.is_zero() && !self.worker.has_work() && self.context.callers_may_run() {
                borrow.sleeps_on.wait(wait.min(left));
            }
            waker.woken();
            if over {
                if more == 0 || !wait.is_zero() {
                    return (!wait.is_zero()).then(|| after(now, wait));
                }
                more -= 1;
            }
        }
        None
    }

    /// Returns whether followed rings need not wake a thread: this thread polls them without pause when it
    /// returns, and the worker's own parked thread does so after a while if it does not.
    fn comes_back_soon(&self) -> bool {
        self.context.config.shm.busy_poll_us > 0 && self.worker.token.is_parked()
    }

    /// Registers a thread that sleeps until it is notified, also when the worker's own thread releases the
    /// token.
    pub(crate) fn want(&self, rin: &Arc<RInShared>) {
        // The caller has the lock of the rIn, which the last owner of a reactor takes: so this thread must not become that owner.
        if self.context.callers_may_run() && self.worker.may_be_borrowed() {
            let thread = Arc::downgrade(rin) as Weak<dyn WaitingThread>;
            *lock(&self.worker.waiters.who) = Some(thread);
            self.worker.waiters.wants.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.worker.waiters.want() && self.alone {
            self.worker.waiters.wants.store(false, Ordering::Relaxed);
            *lock(&self.worker.waiters.who) = None;
        }
        self.worker.waiters.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The token while this thread has it. Dropping always leaves it: a panic ends the application's call, and
/// the worker's own thread continues.
struct Taken<'a> {
    worker: &'a WorkerShared,
    /// When the worker's own thread must act at the latest; `None`: now.
    next: Option<Nanos>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let worker = self.worker;
        // The worker's own thread looks every few milliseconds, and so finds a thread that comes later.
        let others = || worker.waiters.count.load(Ordering::Relaxed) > 1;
        // The own thread may have gone to sleep before there was this deadline. A thread that has just woken
        // looks by itself.
        let oversleeps = |next| next < worker.asleep_until.load(Ordering::Relaxed);
        worker.token.leave(|| self.next.is_none_or(oversleeps) || worker.has_work() || others());
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::state::Sent;
    use crate::state::{Worker, is_worker};
    use crate::{Config, Context};

    /// A reactor that does nothing, or panics.
    struct Fake {
        panics: bool,
        wait: Duration,
    }

    impl BorrowedReactor for Fake {
        fn send_now(&mut self, _: u32, _: &dyn Fn() -> Nanos) -> Sent {
            Sent::Not
        }

        fn turn_now(&mut self, _: Nanos) -> bool {
            assert!(!self.panics, "on purpose");
            true
        }

        fn arrivals_wake_worker(&self) -> bool {
            false
        }

        fn busy_polls(&self, _: Nanos) -> bool {
            false
        }

        fn attend(&mut self, _: usize) -> bool {
            false
        }

        fn may_wait(&self, _: Nanos, _: bool) -> Duration {
            self.wait
        }
    }

    /// Creates a worker without a thread, as if its own thread were asleep.
    fn worker(fake: Fake) -> (Worker, Arc<Mutex<dyn BorrowedReactor>>) {
        let reactor: Arc<Mutex<dyn BorrowedReactor>> = Arc::new(Mutex::new(fake));
        let worker = Worker::new(0, 1).unwrap();
        let fd = worker.token.waker().fd().try_clone_to_owned().unwrap();
        worker.lend(Arc::downgrade(&reactor), Instant::now(), Arc::new(fd));
        worker.token.sleep((), || true, || {});
        (worker, reactor)
    }

    fn was_woken(worker: &WorkerShared) -> bool {
        let fd = worker.token.waker().fd();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    }

    /// The own thread sleeps for an hour, and work on this thread creates an earlier deadline.
    #[test]
    fn the_own_thread_does_not_oversleep_new_work() {
        const HOUR: Duration = Duration::from_secs(3600);
        let context = Context::new(Config::default()).unwrap();
        for (wait, sooner) in [(HOUR / 2, true), (2 * HOUR, false)] {
            let (worker, _core) = worker(Fake { panics: false, wait });
            worker.asleep_until.store(after(0, HOUR), Ordering::Relaxed);
            assert!(Waiting::new(context.inner(), &worker).run(HOUR, &|| true));
            assert_eq!(was_woken(&worker), sooner);
        }
    }

    #[test]
    fn a_panic_leaves_the_token_to_the_own_thread() {
        let context = Context::new(Config::default()).unwrap();
        let (worker, _core) = worker(Fake { panics: true, wait: Duration::MAX });
        let waiting = Waiting::new(context.inner(), &worker);
        let driven = catch_unwind(AssertUnwindSafe(|| waiting.run(Duration::MAX, &|| true)));
        assert!(driven.is_err() && !is_worker() && was_woken(&worker));
        assert!(worker.token.take(), "nobody is in it");
    }
}
