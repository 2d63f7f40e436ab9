//! The shared part of a worker: where to leave work, how to wake the worker, and how to do its work instead.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rocketnet::Pollable;
use rocketring::barrier::{self, Full};
use rocketring::{Mailbox, PendingSet, ReactorToken};

use super::request::Request;
use crate::ground::lock::lock;
use crate::ground::types::Nanos;
use crate::state::BusyPollBudget;
use crate::state::error::RecvError;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread is a worker, which runs callbacks and must never wait for itself.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Returns whether a receiving call may wait. Inside a callback it may only poll.
pub(crate) fn may_wait(timeout: Option<Duration>) -> Result<(), RecvError> {
    match is_worker() && timeout != Some(Duration::ZERO) {
        true => Err(RecvError::CalledFromWorker),
        false => Ok(()),
    }
}

/// Marks the calling thread as a worker.
pub(crate) fn become_worker() {
    IS_WORKER.set(true);
}

/// Runs `work` as a worker would, so that callbacks in it must not wait.
pub(crate) fn as_worker<R>(work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_WORKER.set(self.0);
        }
    }
    // Restored on a panic too, since the thread is the application's.
    let _before = Before(IS_WORKER.replace(true));
    work()
}

/// The shared part of a worker: where to leave work, and how to wake the worker.
pub(crate) struct WorkerShared<M: ?Sized = dyn RequestQueue> {
    pub(crate) index: usize,
    /// The token of the thread that does the worker's work, and how to wake that thread.
    pub(crate) token: ReactorToken,
    pub(crate) waiters: Waiters,
    /// Until when the worker's own thread sleeps on its descriptor, in its time; 0 while it does not. The
    /// thread writes it before it lets others have the token, and afterwards.
    pub(crate) asleep_until: AtomicU64,
    pub(crate) pending: PendingSet,
    /// Whether others may poll the rings that the worker follows.
    pub(crate) busy_polls: BusyPollBudget,
    /// The reactor, if other threads may send with it while the worker sleeps, or do all of its work.
    borrow: OnceLock<Borrow>,
    /// Requests, and with a [`Mailbox`] the commands of the layer that has them.
    pub(crate) mailbox: M,
}

/// The mailbox of a worker, as everything sees it that only makes requests.
pub(crate) trait RequestQueue: Send + Sync {
    /// Adds a request. Returns false if the worker has ended.
    fn push_request(&self, request: Request) -> bool;

    /// Returns whether anything is queued.
    fn has_requests(&self) -> bool;
}

impl<C: From<Request> + Send> RequestQueue for Mailbox<C> {
    fn push_request(&self, request: Request) -> bool {
        self.push(request.into()).is_ok()
    }

    fn has_requests(&self) -> bool {
        self.has_mail()
    }
}

/// A reactor that can be borrowed, and the clock of its worker.
pub(crate) struct Borrow {
    pub(crate) reactor: Weak<Mutex<dyn BorrowedReactor>>,
    pub(crate) started: Instant,
    pub(crate) sleeps_on: Arc<dyn Pollable>,
}

impl<C> WorkerShared<Mailbox<C>> {
    pub(crate) fn new(index: usize, slots: usize) -> io::Result<Self> {
        Ok(Self {
            index,
            token: ReactorToken::new()?,
            waiters: Waiters::default(),
            asleep_until: AtomicU64::new(0),
            pending: PendingSet::new(slots),
            busy_polls: BusyPollBudget::default(),
            borrow: OnceLock::new(),
            mailbox: Mailbox::default(),
        })
    }

    pub(crate) fn take_mail(&self) -> VecDeque<C> {
        self.mailbox.take()
    }
}

impl<M: RequestQueue + ?Sized> WorkerShared<M> {
    /// Queues a request. A worker that has ended drops it.
    pub(crate) fn request(&self, request: Request) {
        if self.mailbox.push_request(request) {
            self.token.wake();
        }
    }

    /// Marks a slot as pending. Costs a fence and a load while the slot is already marked.
    pub(crate) fn mark(&self, slot: u32) {
        self.mark_fenced(slot, barrier::full());
    }

    /// Like [`WorkerShared::mark`], after a fence of the caller.
    pub(crate) fn mark_fenced(&self, slot: u32, after: Full) {
        if self.pending.mark_fenced(slot, after) {
            self.token.wake();
        }
    }

    /// Like [`WorkerShared::mark`], for a thread that will wait for the worker and do its work then.
    pub(crate) fn mark_for_later(&self, slot: u32) {
        if self.pending.mark(slot) {
            self.token.waker().wake();
        }
    }

    /// Allows the reactor to be borrowed while it exists.
    pub(crate) fn lend(
        &self,
        reactor: Weak<Mutex<dyn BorrowedReactor>>,
        started: Instant,
        sleeps_on: Arc<dyn Pollable>,
    ) {
        let _ = self.borrow.set(Borrow { reactor, started, sleeps_on });
    }

    /// Returns the reactor with everything that its work needs; `None` if it cannot be borrowed.
    pub(crate) fn borrowed(&self) -> Option<(Arc<Mutex<dyn BorrowedReactor>>, &Borrow)> {
        let borrow = self.borrow.get()?;
        Some((borrow.reactor.upgrade()?, borrow))
    }

    /// Whether [`WorkerShared::borrowed`] would find a reactor. This thread owns no part of it then.
    pub(crate) fn may_be_borrowed(&self) -> bool {
        self.borrow.get().is_some_and(|borrow| borrow.reactor.strong_count() > 0)
    }

    /// Like [`WorkerShared::mark`], for a thread that has just delivered and made a fence since. If the
    /// worker sleeps, this thread sends.
    #[inline]
    pub(crate) fn mark_or_send(&self, slot: u32, after: Full) {
        if self.pending.mark_fenced(slot, after) {
            self.send_or_wake(slot);
        }
    }

    fn send_or_wake(&self, slot: u32) {
        let Some((reactor, borrow)) = self.borrowed() else { return self.token.wake() };
        // If the reactor is taken, the worker is awake and looks for news before it sleeps, or another thread
        // sends.
        let clock = || nanos_since(borrow.started);
        self.token.run_or_wake(&*reactor, |reactor| reactor.send_now(slot, &clock) == Sent::All);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.mailbox.has_requests() || !self.pending.is_empty()
    }

    /// Returns whether an application thread may poll in the worker's place. The worker's own thread is then
    /// parked, and there is no other work that the application thread would have to do.
    pub(crate) fn may_be_polled_past(&self) -> bool {
        self.busy_polls.are_allowed() && self.token.is_parked() && !self.has_work()
    }
}

pub(crate) fn nanos_since(started: Instant) -> Nanos {
    started.elapsed().as_nanos() as Nanos
}

/// Returns the time at which `wait`, begun at `now`, is over.
pub(crate) fn after(now: Nanos, wait: Duration) -> Nanos {
    now.saturating_add(Nanos::try_from(wait.as_nanos()).unwrap_or(Nanos::MAX))
}

/// The operations of an application thread on a worker's reactor.
pub(crate) trait BorrowedReactor: Send {
    /// Sends the pending bytes of a buffer, if one system call can do it; otherwise the worker does.
    fn send_now(&mut self, slot: u32, clock: &dyn Fn() -> Nanos) -> Sent;

    /// Takes a turn without waiting, like the worker's own. Returns false when the worker is done.
    fn turn_now(&mut self, now: Nanos) -> bool;

    /// Returns whether no arrival needs a turn to be found: no ring is followed.
    fn arrivals_wake_worker(&self) -> bool;

    /// Returns whether to continue polling instead of sleeping, since something arrived less than
    /// `shm.busy_poll_us` ago. Polls the followed rings for a moment.
    fn busy_polls(&self, now: Nanos) -> bool;

    /// Has a thread of the application look at so many followed rings, until the next call. Returns whether they have new
    /// data that the worker must look for.
    fn attend(&mut self, rings: usize) -> bool;

    /// Returns how long the thread that does the worker's work may sleep now. `sleeps`: it does sleep.
    fn may_wait(&self, now: Nanos, sleeps: bool) -> Duration;
}

/// The result of sending from the application's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything that was pending has left.
    All,
    /// The worker must be woken: nothing was sent, or not everything.
    Not,
}

/// A thread that waits for data, and would rather do the worker's work.
pub(crate) trait WaitingThread: Send + Sync {
    /// Wakes the thread without news.
    fn look_again(&self);
}

/// The threads that wait for a worker.
#[derive(Default)]
pub(crate) struct Waiters {
    /// The number of threads that wait. A hint: the token decides which thread works.
    pub(crate) count: AtomicU32,
    pub(crate) wants: AtomicBool,
    /// The only waiting thread, if that thread would do the work.
    pub(crate) who: Mutex<Option<Weak<dyn WaitingThread>>>,
}

impl Waiters {
    /// Returns whether the worker's own thread should hand over the token.
    pub(crate) fn want(&self) -> bool {
        self.wants.load(Ordering::Relaxed)
    }

    /// Wakes the thread that wants the token, once it is free.
    pub(crate) fn call(&self) {
        self.wants.store(false, Ordering::Relaxed);
        let who = std::mem::take(&mut *lock(&self.who));
        if let Some(thread) = who.and_then(|who| who.upgrade()) {
            thread.look_again();
        }
    }
}
