//! What others see of a worker: where to leave work, how to wake it, and how to do its work instead.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rocketnet::Pollable;
use rocketring::barrier::{self, Full};
use rocketring::{Mailbox, PendingSet, ReactorToken};

use super::{Command, Looks, RInShared};
use crate::error::RecvError;
use crate::lock::lock;
use crate::types::Nanos;

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a worker: it runs callbacks and must never wait for itself.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// Whether a call that receives may wait: not in a callback, unless it only looks.
pub(crate) fn may_wait(timeout: Option<Duration>) -> Result<(), RecvError> {
    match is_worker() && timeout != Some(Duration::ZERO) {
        true => Err(RecvError::CalledFromWorker),
        false => Ok(()),
    }
}

/// From here on the calling thread is a worker.
pub(crate) fn become_worker() {
    IS_WORKER.set(true);
}

/// Does something as the worker does it: callbacks that it runs must not wait.
pub(crate) fn as_worker<R>(work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_WORKER.set(self.0);
        }
    }
    // Also if it panics: the thread is the application's.
    let _before = Before(IS_WORKER.replace(true));
    work()
}

/// What others see of a worker: where to leave work, and how to wake it.
pub(crate) struct WorkerShared {
    pub(crate) index: usize,
    /// Who does its work, and how to wake him.
    pub(crate) token: ReactorToken,
    pub(crate) waiters: Waiters,
    /// Until when its own thread sleeps on its descriptor, in its time; 0 if it does not. Written by that thread before it
    /// lets others have the token, and after.
    pub(crate) asleep_until: AtomicU64,
    pub(crate) pending: PendingSet,
    /// Whether others may look at what it follows.
    pub(crate) looks: Looks,
    mailbox: Mailbox<Command>,
    /// The core, where other threads may send with it while the worker sleeps, or do all of its work.
    borrow: OnceLock<Borrow>,
}

/// A core that can be borrowed, and the clock of its worker.
pub(crate) struct Borrow {
    pub(crate) core: Weak<Mutex<dyn Inline>>,
    pub(crate) started: Instant,
    pub(crate) sleeps_on: Arc<dyn Pollable>,
}

impl WorkerShared {
    pub(crate) fn new(index: usize, slots: usize) -> io::Result<Self> {
        Ok(Self {
            index,
            token: ReactorToken::new()?,
            waiters: Waiters::default(),
            asleep_until: AtomicU64::new(0),
            pending: PendingSet::new(slots),
            looks: Looks::default(),
            mailbox: Mailbox::default(),
            borrow: OnceLock::new(),
        })
    }

    /// Leaves a command; the worker takes them in order. Without a worker it is dropped: what it holds would never
    /// be let go of, and who waits for its answer would wait for ever.
    pub(crate) fn send(&self, command: Command) {
        match self.mailbox.push(command) {
            Ok(()) => self.token.wake(),
            Err(command) => command.refuse(),
        }
    }

    /// Says that a slot has something to do. Costs a fence and a load while it is already said.
    pub(crate) fn mark(&self, slot: u32) {
        self.mark_fenced(slot, barrier::full());
    }

    /// As [`WorkerShared::mark`], from a caller that made the fence.
    pub(crate) fn mark_fenced(&self, slot: u32, after: Full) {
        if self.pending.mark_fenced(slot, after) {
            self.token.wake();
        }
    }

    /// As [`WorkerShared::mark`], from a thread that comes back to wait for the worker, and does its work then.
    pub(crate) fn mark_for_later(&self, slot: u32) {
        if self.pending.mark(slot) {
            self.token.waker().wake();
        }
    }

    /// Lets the core be borrowed, as long as it lives.
    pub(crate) fn lend(&self, core: Weak<Mutex<dyn Inline>>, started: Instant, sleeps_on: Arc<dyn Pollable>) {
        let _ = self.borrow.set(Borrow { core, started, sleeps_on });
    }

    /// The core, and what is needed to work with it; none where it cannot be borrowed.
    pub(crate) fn borrowed(&self) -> Option<(Arc<Mutex<dyn Inline>>, &Borrow)> {
        let borrow = self.borrow.get()?;
        Some((borrow.core.upgrade()?, borrow))
    }

    /// As [`WorkerShared::mark`], from the thread that has just delivered and made a fence since: if the worker sleeps, this
    /// thread sends.
    #[inline]
    pub(crate) fn mark_or_send(&self, slot: u32, after: Full) {
        if self.pending.mark_fenced(slot, after) {
            self.send_or_wake(slot);
        }
    }

    fn send_or_wake(&self, slot: u32) {
        let Some((core, borrow)) = self.borrowed() else { return self.token.wake() };
        // Taken: the worker is awake and looks for news before it sleeps, or another thread sends.
        let clock = || nanos_since(borrow.started);
        self.token.run_or_wake(&*core, |core| core.send_now(slot, &clock) == Sent::All);
    }

    pub(crate) fn has_work(&self) -> bool {
        self.mailbox.has_mail() || !self.pending.is_empty()
    }

    pub(crate) fn take_mail(&self) -> VecDeque<Command> {
        self.mailbox.take()
    }

    /// The worker is gone. What it was still to do is dropped, outside the lock: that may send again.
    pub(crate) fn close(&self) {
        self.mailbox.close().into_iter().for_each(Command::refuse);
    }
}

pub(crate) fn nanos_since(started: Instant) -> Nanos {
    started.elapsed().as_nanos() as Nanos
}

/// When `wait` is over that begins at `now`.
pub(crate) fn after(now: Nanos, wait: Duration) -> Nanos {
    now.saturating_add(Nanos::try_from(wait.as_nanos()).unwrap_or(Nanos::MAX))
}

/// What an application's thread may do with a worker's core.
pub(crate) trait Inline: Send {
    /// Sends what is pending in a buffer, if that is a matter of one system call. False: it is the worker's.
    fn send_now(&mut self, slot: u32, clock: &dyn Fn() -> Nanos) -> Sent;

    /// A turn that waits for nothing, as the worker's own. False when the worker is done.
    fn turn_now(&mut self, now: Nanos) -> bool;

    /// Whether nothing comes that only a turn would find: no ring is followed.
    fn hears_all_asleep(&self) -> bool;

    /// Whether to go on looking instead of sleeping, as something came less than `shm.busy_poll_us` ago. Looks for a moment
    /// at what others write.
    fn busy_polls(&self, now: Nanos) -> bool;

    /// How long whoever does the worker's work may sleep now; `sleeps`: does.
    fn may_wait(&self, now: Nanos, sleeps: bool) -> Duration;
}

/// What came of sending from the application's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything that was pending left.
    All,
    /// The worker must be woken: nothing was sent, or not everything.
    Not,
}

/// Who waits for what a worker does.
#[derive(Default)]
pub(crate) struct Waiters {
    /// The number of threads that wait. A hint: the token decides which thread works.
    pub(crate) count: AtomicU32,
    pub(crate) wants: AtomicBool,
    /// What the only one receives from, if it would do the work.
    pub(crate) who: Mutex<Weak<RInShared>>,
}

impl Waiters {
    /// Whether the worker's own thread should hand over the token.
    pub(crate) fn want(&self) -> bool {
        self.wants.load(Ordering::Relaxed)
    }

    /// The token is free: has the thread that wants it look again.
    pub(crate) fn tell(&self) {
        self.wants.store(false, Ordering::Relaxed);
        let who = std::mem::take(&mut *lock(&self.who));
        if let Some(rin) = who.upgrade() {
            rin.look_again();
        }
    }
}
