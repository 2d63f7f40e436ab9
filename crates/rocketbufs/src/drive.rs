//! A thread of the application's that would only wait for a worker does the worker's work.
//!
//! ```text
//!   recv                  nothing there ─▶ take the token: poll, read, … until there is ─▶ leave it
//!   worker's own thread   parked, looks now and then whether somebody still comes; else it works itself
//! ```
//!
//! What arrives is then read by the thread that wants it, into that core's cache, and nobody is woken. Only one thread that
//! waits can do it; with a second one the worker's own thread works for both. Callbacks run on whoever works, so it is
//! done only where the application has none, or allowed it
//! ([`Context::allow_callbacks_in_calls`](crate::Context::allow_callbacks_in_calls)). Nor is it done in a context that has
//! had a subscription that is dropped or cut off at a lag: between two calls nobody reads for a few milliseconds, for none
//! of a worker's connections. A writer that waits for room for much does the same: it sends what it wrote itself, and reads the
//! credit that lets it go on. For little it does not: writing many small deliveries is work for one core, sending for another.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use rocketring::{Position, Ring};

use crate::lock::lock;
use crate::state::{
    Borrow, Buffer, ContextInner, Inline, RInShared, WorkerShared, after, as_worker, nanos_since,
};
use crate::types::Nanos;

/// How long the worker's own thread leaves the token alone that nobody sits in.
pub(crate) const LOOK_PERIOD: Duration = Duration::from_millis(4);

/// Who writes less at a time is busy with that, while the worker's own thread sends on another core.
const LARGE_BYTES: u64 = 16 << 10;

/// How long a writer waits for room before its subscribers are asked how far they are.
const UNASKED: Duration = Duration::from_millis(1);

/// Turns that a thread does after it has what it waited for, as long as something is left to do.
const TURNS_MORE: u32 = 2;

impl Buffer {
    /// Waits until the writer has room up to `until`, or for `limit`. Where one worker sends the buffer, and there is much to
    /// write, this thread does its work meanwhile: what gives room is read by who needs it.
    pub(crate) fn wait_for_room(&self, ring: &Ring, until: Position, limit: Duration) {
        let large = until.saturating_sub(ring.head()) >= LARGE_BYTES;
        // As long as it waits: who does the worker's work leaves it to the own thread then.
        let waiting = self.only_worker().filter(|_| large && self.inner.may_drive());
        let waiting = waiting.map(|worker| Waiting::new(&self.inner, worker));
        if let Some(waiting) = waiting.as_ref().filter(|waiting| waiting.is_alone())
            && waiting.drive_for_room(self, (ring, until), limit)
        {
            return;
        }
        self.notify();
        ring.wait_grant(until, Some(limit));
    }
}

/// A thread that waits for a worker, as long as this lives.
pub(crate) struct Waiting<'a> {
    context: &'a ContextInner,
    worker: &'a WorkerShared,
    /// Nobody else waits for it: this thread may do the work.
    alone: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(context: &'a ContextInner, worker: &'a WorkerShared) -> Self {
        let alone = worker.waiters.count.fetch_add(1, Ordering::Relaxed) == 0;
        Self { context, worker, alone }
    }

    /// Whether this thread may do the work.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The worker's bit: there are 64 at most.
    pub(crate) fn bit(&self) -> u64 {
        1 << self.worker.index
    }

    /// Does the worker's work on this thread until `done` or for `limit`, for one who is alone. False if somebody else
    /// does it.
    pub(crate) fn drive(&self, limit: Duration, done: &dyn Fn() -> bool) -> bool {
        debug_assert!(self.alone, "with another thread that waits the worker's own does the work");
        let Some((core, borrow)) = self.worker.borrowed() else { return false };
        if !self.worker.token.take() {
            return false;
        }
        let mut token = Taken { worker: self.worker, next: None };
        token.next = self.turns((&*core, borrow), limit, done);
        token.next.is_some()
    }

    /// As [`Waiting::drive`], for a writer. What a subscriber tells by itself comes first, as a rule; who asks makes it tell
    /// less at a time.
    fn drive_for_room(&self, buffer: &Buffer, (ring, until): (&Ring, Position), limit: Duration) -> bool {
        let is_only = || buffer.only_worker().is_some_and(|only| only.index == self.worker.index);
        let done = || buffer.ended() || !is_only() || ring.request(until) >= until;
        if !self.drive(limit.min(UNASKED), &done) {
            return false;
        }
        if limit <= UNASKED || done() {
            return true;
        }
        self.worker.mark_for_later(buffer.slot);
        self.drive(limit - UNASKED, &done)
    }

    /// When the worker has something to do because of time alone. None if there is nothing to do here any more: the worker
    /// has ended, or has more to do than this thread waits for, or its work must not be done here any more.
    fn turns(
        &self,
        (core, borrow): (&Mutex<dyn Inline>, &Borrow),
        limit: Duration,
        done: &dyn Fn() -> bool,
    ) -> Option<Nanos> {
        let until = Instant::now().checked_add(limit);
        let waker = self.worker.token.waker();
        let mut more = TURNS_MORE;
        let mut first = true;
        while self.context.may_drive() {
            let mut locked = lock(core);
            let now = nanos_since(borrow.started);
            // Where the kernel alone has news, sleeping is how to ask it: it ends at once if there are any.
            let asks_asleep = std::mem::take(&mut first) && locked.hears_all_asleep();
            if !asks_asleep && !as_worker(|| locked.turn_now(now)) {
                return None;
            }
            let now = nanos_since(borrow.started);
            if !done() && until.is_none_or(|until| Instant::now() < until) && locked.busy_polls(now) {
                continue;
            }
            let wait = locked.may_wait(now, !(done() && self.comes_back_soon()));
            // Before the core is let go: whoever borrows it from here on and leaves something to do wakes us.
            waker.prepare();
            drop(locked);
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            let over = left.is_zero() || done();
            if !over && !wait.is_zero() && !self.worker.has_work() && self.context.may_drive() {
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

    /// Nobody sleeps where followed rings would wake him: this thread looks at them without end when it is back, and the
    /// worker's own, which is parked, after a while if it is not.
    fn comes_back_soon(&self) -> bool {
        self.context.config.shm.busy_poll_us > 0 && self.worker.token.is_parked()
    }

    /// This thread sleeps now until it is told: also when the worker's own thread lets go of the token.
    pub(crate) fn want(&self, rin: &Arc<RInShared>) {
        if self.context.may_drive() && self.worker.borrowed().is_some() {
            *lock(&self.worker.waiters.who) = Arc::downgrade(rin);
            self.worker.waiters.wants.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.worker.waiters.want() && self.alone {
            self.worker.waiters.wants.store(false, Ordering::Relaxed);
            *lock(&self.worker.waiters.who) = Weak::new();
        }
        self.worker.waiters.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The token, as long as this thread has it. It is left in any case: a panic in here ends the application's call, and the
/// worker's own thread goes on.
struct Taken<'a> {
    worker: &'a WorkerShared,
    /// When the worker's own thread is to do something, if nothing happens before; none: now.
    next: Option<Nanos>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let worker = self.worker;
        // A thread that comes later is found by the own thread, which looks every few milliseconds.
        let others = || worker.waiters.count.load(Ordering::Relaxed) > 1;
        // It may have gone to sleep before there was that to do. If it has just woken it looks by itself.
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
    use crate::state::is_worker;
    use crate::{Config, Context};

    /// A core that does nothing, or panics.
    struct Fake {
        panics: bool,
        wait: Duration,
    }

    impl Inline for Fake {
        fn send_now(&mut self, _: u32, _: &dyn Fn() -> Nanos) -> Sent {
            Sent::Not
        }

        fn turn_now(&mut self, _: Nanos) -> bool {
            assert!(!self.panics, "on purpose");
            true
        }

        fn hears_all_asleep(&self) -> bool {
            false
        }

        fn busy_polls(&self, _: Nanos) -> bool {
            false
        }

        fn may_wait(&self, _: Nanos, _: bool) -> Duration {
            self.wait
        }
    }

    /// A worker without a thread, whose own one is asleep.
    fn worker(fake: Fake) -> (WorkerShared, Arc<Mutex<dyn Inline>>) {
        let core: Arc<Mutex<dyn Inline>> = Arc::new(Mutex::new(fake));
        let worker = WorkerShared::new(0, 1).unwrap();
        let fd = worker.token.waker().fd().try_clone_to_owned().unwrap();
        worker.lend(Arc::downgrade(&core), Instant::now(), Arc::new(fd));
        worker.token.sleep((), || true, || {});
        (worker, core)
    }

    fn was_woken(worker: &WorkerShared) -> bool {
        let fd = worker.token.waker().fd();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
    }

    /// The own thread sleeps for an hour, and what was done here gave it something to do sooner.
    #[test]
    fn the_own_thread_does_not_oversleep_what_is_new() {
        const HOUR: Duration = Duration::from_secs(3600);
        let context = Context::new(Config::default()).unwrap();
        for (wait, sooner) in [(HOUR / 2, true), (2 * HOUR, false)] {
            let (worker, _core) = worker(Fake { panics: false, wait });
            worker.asleep_until.store(after(0, HOUR), Ordering::Relaxed);
            assert!(Waiting::new(context.inner(), &worker).drive(HOUR, &|| true));
            assert_eq!(was_woken(&worker), sooner);
        }
    }

    #[test]
    fn a_panic_leaves_the_token_to_the_own_thread() {
        let context = Context::new(Config::default()).unwrap();
        let (worker, _core) = worker(Fake { panics: true, wait: Duration::MAX });
        let waiting = Waiting::new(context.inner(), &worker);
        let driven = catch_unwind(AssertUnwindSafe(|| waiting.drive(Duration::MAX, &|| true)));
        assert!(driven.is_err() && !is_worker() && was_woken(&worker));
        assert!(worker.token.take(), "nobody is in it");
    }
}
