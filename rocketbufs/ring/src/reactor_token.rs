//! The right to run a worker: its own thread has it, or a thread of the application that would otherwise only wait.
//!
//! ```text
//!     ┌── sleep ──▶ ASLEEP ◀── leave (not parked yet) ──┐
//!     │              │   └──────────── take ──────────▶ │
//!   WORKING ◀─ woken ┘                                TAKEN
//!     │    ▲                   ┌────── take ──────────▶ │
//!     │    └── park returns ── FREE ◀─ leave ───────────┘
//!     └── release ────────────▶
//! ```
//!
//! A hand-over from thread to thread costs more than the work for a small message. So a waiting thread takes the token and
//! does the work itself. Between two such calls the token stays free. The worker's own thread, which is parked, only checks
//! now and then whether the token is still used; a thread that publishes work while the token is free calls it.
//!
//! The holder of the token has the [`Waker`] too, and alone calls `prepare` and `woken`. As in the waker, handshakes
//! ([`crate::NotifyFlag`]) keep a wake-up from being lost: publishing against leaving or releasing, and leaving against
//! parking.
//!
//! The worker's state lies in a mutex beside the token. A thread releases it before it sleeps ([`ReactorToken::sleep`]), so that
//! a publishing thread can do its one piece of work itself instead of waking a thread ([`ReactorToken::run_or_wake`]).

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{Arc, AtomicBool, AtomicU32, CachePadded, Condvar, Mutex, MutexGuard, Ordering, lock};
use crate::{Waker, barrier};

/// The own thread works.
const WORKING: u32 = 0;
/// The own thread sleeps on the waker's descriptor.
const ASLEEP: u32 = 1;
/// Another thread has the token.
const TAKEN: u32 = 2;
/// No thread has the token; the own thread is parked, or about to be.
const FREE: u32 = 3;

/// After this many checks of a token that one thread keeps, the own thread checks no more.
const CHECKS: u32 = 16;

/// While the token is used again and again, checks are up to this many periods apart: each is a wake-up without work.
const PERIODS: u32 = 4;

/// The right to run a worker. See the module's text.
#[derive(Debug)]
pub struct ReactorToken {
    state: CachePadded<AtomicU32>,
    waker: Arc<Waker>,
    /// Counts uses, so that the parked thread sees whether the token is still used.
    uses: AtomicU32,
    /// The own thread sleeps until it is called or checks the token, not on the waker's descriptor.
    parked: AtomicBool,
    /// The own thread sleeps until it is called, and makes no checks.
    deep: AtomicBool,
    called: Mutex<bool>,
    calls: Condvar,
}

impl ReactorToken {
    /// A token that the own thread has. The thread is awake.
    ///
    /// # Errors
    /// The system gave no eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: CachePadded(AtomicU32::new(WORKING)),
            waker: Arc::new(Waker::new()?),
            uses: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            deep: AtomicBool::new(false),
            called: Mutex::new(false),
            calls: Condvar::new(),
        })
    }

    /// The holder of the token sleeps on this waker's descriptor.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// Says that there is work, published before this call. The call wakes the holder of the token if it sleeps, and
    /// the own thread if the token is free. The call costs a fence and two loads while the holder works.
    #[inline]
    pub fn wake(&self) {
        // The waker's fence pairs with those in `leave` and `release` as well.
        self.waker.wake();
        if self.state.load(Ordering::Relaxed) == FREE {
            self.call();
        }
    }

    #[cold]
    fn call(&self) {
        *lock(&self.called) = true;
        self.calls.notify_one();
    }

    /// As [`ReactorToken::wake`], from a thread that can do the work itself with the worker's state `with`. If no other thread
    /// has locked that, `work` runs here, and returns whether it did everything. A thread that has locked it is awake, and
    /// checks for work before it sleeps.
    #[inline]
    pub fn run_or_wake<T: ?Sized>(&self, with: &Mutex<T>, work: impl FnOnce(&mut T) -> bool) {
        let done = with.try_lock().is_ok_and(|mut with| work(&mut with));
        if !done {
            self.wake();
        }
    }

    /// The own thread releases the lock `with` of the worker's state, and calls `sleep`, which sleeps on the waker's
    /// descriptor, if there is no work then. The own thread must call [`ReactorToken::woken`] after this.
    pub fn sleep<G>(&self, with: G, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        // First: a thread that locks the state from here on, and leaves work, wakes this one.
        self.fall_asleep();
        drop(with);
        if !has_work() {
            sleep();
        }
    }

    fn fall_asleep(&self) {
        self.waker.prepare();
        // Release pairs with the Acquire in `take`: the next holder sees this thread's writes.
        self.state.store(ASLEEP, Ordering::Release);
    }

    /// The own thread is awake again. False if another thread took the token: the thread must then [`ReactorToken::park`].
    #[must_use]
    pub fn woken(&self) -> bool {
        let mine = self.state.compare_exchange(ASLEEP, WORKING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if mine {
            self.waker.woken();
        }
        mine
    }

    /// The own thread frees the token, and must then [`ReactorToken::park`]. `has_work` is called once the token is visibly
    /// free: with work that was published before, the thread takes the token back at once, unless another thread has it.
    pub fn release(&self, has_work: impl FnOnce() -> bool) {
        self.parked.store(true, Ordering::Relaxed);
        self.state.store(FREE, Ordering::Release);
        // Pairs with the barrier in `wake`: the publisher sees the token free, or this thread sees the published work.
        barrier::full();
        if has_work() {
            self.call();
        }
    }

    /// The own thread waits until it has the token again: because it was called, or because the token was not used between
    /// two checks. Checks are `period` apart, up to four times that while the token is used all the time.
    pub fn park(&self, period: Duration) {
        let mut called = lock(&self.called);
        self.parked.store(true, Ordering::Relaxed);
        // Pairs with the barrier in `leave`: the leaving thread sees this thread parked, or this thread sees the token free.
        barrier::full();
        let (mut before, mut unchanged, mut periods) = (None, 0, 1);
        loop {
            let now = self.uses.load(Ordering::Relaxed);
            unchanged = if before == Some(now) { unchanged + 1 } else { 0 };
            periods = if before.is_some() && unchanged == 0 { (2 * periods).min(PERIODS) } else { 1 };
            let slept = self.state.load(Ordering::Relaxed) == ASLEEP;
            if (std::mem::take(&mut *called) || unchanged > 0 || slept) && self.take_back() {
                self.parked.store(false, Ordering::Relaxed);
                return;
            }
            before = Some(now);
            called =
                if unchanged < CHECKS { self.wait(called, period * periods) } else { self.wait_deep(called) };
        }
    }

    fn take_back(&self) -> bool {
        let from = |state| self.state.compare_exchange(state, WORKING, Ordering::Acquire, Ordering::Relaxed);
        let mine = from(FREE).or_else(|_| from(ASLEEP)).is_ok();
        if mine {
            self.waker.woken();
        }
        mine
    }

    fn wait<'a>(&self, called: MutexGuard<'a, bool>, period: Duration) -> MutexGuard<'a, bool> {
        self.calls.wait_timeout(called, period).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits without checks: a thread that has kept the token for long calls when it leaves.
    fn wait_deep<'a>(&self, mut called: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
        self.deep.store(true, Ordering::Relaxed);
        // Pairs with the barrier in `leave`.
        barrier::full();
        if self.state.load(Ordering::Relaxed) == TAKEN {
            called = self.calls.wait(called).unwrap_or_else(PoisonError::into_inner);
        }
        self.deep.store(false, Ordering::Relaxed);
        called
    }

    /// Another thread takes the token, unless the own thread works or a third thread has it. True: the caller holds the
    /// token, and must [`ReactorToken::leave`].
    #[must_use]
    pub fn take(&self) -> bool {
        let from = |state| self.state.compare_exchange(state, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        let mine = from(FREE).or_else(|_| from(ASLEEP)).is_ok();
        if mine {
            self.waker.woken();
        }
        mine
    }

    /// A thread was here that would have taken the token if there had been work. Counts as a use for the parked thread.
    pub fn note_visit(&self) {
        // Concurrent counts may get lost: only a change matters.
        let uses = self.uses.load(Ordering::Relaxed);
        self.uses.store(uses.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether the own thread is parked, and checks now and then.
    pub fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed) && !self.deep.load(Ordering::Relaxed)
    }

    /// Returns a taken token. `has_work` is called once that is visible: it sees the work published before, and a later
    /// publisher wakes a thread.
    pub fn leave(&self, has_work: impl FnOnce() -> bool) {
        self.uses.fetch_add(1, Ordering::Relaxed);
        let parked = self.parked.load(Ordering::Relaxed);
        if parked {
            self.state.store(FREE, Ordering::Release);
        } else {
            // The own thread has not noticed that the token was taken, and still sleeps on the waker.
            self.fall_asleep();
        }
        barrier::full();
        let work = has_work();
        if !parked && work {
            self.waker.wake();
        }
        let missed = parked != self.parked.load(Ordering::Relaxed);
        if missed || (parked && work) {
            self.call();
        } else if self.deep.load(Ordering::Relaxed) {
            drop(lock(&self.called));
            self.calls.notify_one();
        }
    }
}
