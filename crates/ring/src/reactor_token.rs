//! Who does a worker's work: its own thread, or a thread of the application's that would otherwise only wait for it.
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
//! A hand-over from thread to thread costs more than what there is to do for a small message. So a thread that waits
//! takes the token and does the work itself. Between two such calls the token stays free, and the worker's own thread, which
//! is parked, only looks now and then whether anybody still comes; who publishes work while the token is free calls it.
//!
//! Whoever has the token has the [`Waker`] too: `prepare` and `woken` are his. As there, a wake-up is not lost because of two
//! hand-shakes ([`crate::NotifyFlag`]): publish against leaving or releasing, and leaving against parking.
//!
//! What the work is done with lies in a mutex beside the token. Whoever sleeps lets go of it before ([`ReactorToken::sleep`]), so
//! that a thread that has published can do the one thing that there is to do, and call nobody ([`ReactorToken::run_or_wake`]).

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use crate::sync::{Arc, AtomicBool, AtomicU32, CachePadded, Condvar, Mutex, MutexGuard, Ordering, lock};
use crate::{Waker, barrier};

/// Its own thread works.
const WORKING: u32 = 0;
/// Its own thread sleeps on what wakes whoever has the token.
const ASLEEP: u32 = 1;
/// Another thread has it.
const TAKEN: u32 = 2;
/// Nobody has it; its own thread is parked, or about to be.
const FREE: u32 = 3;

/// After so many looks at a token that somebody sits in all the time the own thread looks no more.
const LOOKS: u32 = 16;

/// Where somebody comes again and again, looks are up to so many periods apart: each is a wake-up for nothing.
const PERIODS: u32 = 4;

/// The right to do a worker's work. See the module's text.
#[derive(Debug)]
pub struct ReactorToken {
    state: CachePadded<AtomicU32>,
    waker: Arc<Waker>,
    /// Counts how often it was left, so that the parked thread sees whether anybody still comes.
    left: AtomicU32,
    /// The own thread sleeps until it is called, not on the waker's descriptor.
    parked: AtomicBool,
    /// It sleeps until it is called, however long that takes.
    deep: AtomicBool,
    called: Mutex<bool>,
    calls: Condvar,
}

impl ReactorToken {
    /// A token that the own thread has, awake.
    ///
    /// # Errors
    /// The system gave no eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: CachePadded(AtomicU32::new(WORKING)),
            waker: Arc::new(Waker::new()?),
            left: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            deep: AtomicBool::new(false),
            called: Mutex::new(false),
            calls: Condvar::new(),
        })
    }

    /// What whoever has the token sleeps on.
    pub fn waker(&self) -> &Arc<Waker> {
        &self.waker
    }

    /// There is work, published before this call: wakes whoever has the token if he sleeps, and the own thread if nobody
    /// has it. Costs a fence and two loads while somebody works.
    #[inline]
    pub fn wake(&self) {
        // Its fence pairs with those in `leave` and `release` as well.
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

    /// As [`ReactorToken::wake`], from a thread that can do the work itself, `with` what the worker does it with: where nobody has that,
    /// it is done here. `work` says whether all of it was. Whoever has it is awake, and looks for work before it sleeps.
    #[inline]
    pub fn run_or_wake<T: ?Sized>(&self, with: &Mutex<T>, work: impl FnOnce(&mut T) -> bool) {
        let done = with.try_lock().is_ok_and(|mut with| work(&mut with));
        if !done {
            self.wake();
        }
    }

    /// The own thread lets go of what it works with, whose lock it has, and calls `sleep`, which sleeps on the waker's
    /// descriptor, if there is no work then. It must call [`ReactorToken::woken`] after this.
    pub fn sleep<G>(&self, with: G, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        // First: who locks it from here on, and leaves something to do, wakes us.
        self.fall_asleep();
        drop(with);
        if !has_work() {
            sleep();
        }
    }

    fn fall_asleep(&self) {
        self.waker.prepare();
        // Release: what the next one finds is what was left here. Pairs with the Acquire in `take`.
        self.state.store(ASLEEP, Ordering::Release);
    }

    /// The own thread is awake again. False if the token was taken meanwhile: then it must [`ReactorToken::park`].
    #[must_use]
    pub fn woken(&self) -> bool {
        let mine = self.state.compare_exchange(ASLEEP, WORKING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if mine {
            self.waker.woken();
        }
        mine
    }

    /// The own thread lets others have it, and must [`ReactorToken::park`] then. `has_work` is asked when others can see that: with
    /// work that was published before it takes the token back at once, unless somebody else has.
    pub fn release(&self, has_work: impl FnOnce() -> bool) {
        self.parked.store(true, Ordering::Relaxed);
        self.state.store(FREE, Ordering::Release);
        // Meets the one in `wake`: who publishes sees the token free, or we see what he published.
        barrier::full();
        if has_work() {
            self.call();
        }
    }

    /// The own thread waits until it has the token again: because it was called, or because nobody used the token from one
    /// look to the next, `period` later, or up to four times that where it has been used all along.
    pub fn park(&self, period: Duration) {
        let mut called = lock(&self.called);
        self.parked.store(true, Ordering::Relaxed);
        // Meets the one in `leave`: who leaves sees us parked, or we see the token as he left it.
        barrier::full();
        let (mut before, mut unchanged, mut periods) = (None, 0, 1);
        loop {
            let now = self.left.load(Ordering::Relaxed);
            unchanged = if before == Some(now) { unchanged + 1 } else { 0 };
            periods = if before.is_some() && unchanged == 0 { (2 * periods).min(PERIODS) } else { 1 };
            let slept = self.state.load(Ordering::Relaxed) == ASLEEP;
            if (std::mem::take(&mut *called) || unchanged > 0 || slept) && self.take_back() {
                self.parked.store(false, Ordering::Relaxed);
                return;
            }
            before = Some(now);
            called =
                if unchanged < LOOKS { self.wait(called, period * periods) } else { self.wait_deep(called) };
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

    /// Somebody has been there for long: he says when he leaves, and looks go on.
    fn wait_deep<'a>(&self, mut called: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
        self.deep.store(true, Ordering::Relaxed);
        // Meets the one in `leave`.
        barrier::full();
        if self.state.load(Ordering::Relaxed) == TAKEN {
            called = self.calls.wait(called).unwrap_or_else(PoisonError::into_inner);
        }
        self.deep.store(false, Ordering::Relaxed);
        called
    }

    /// Another thread takes the token, unless the own thread works or somebody else has it. True: it is awake in it, and
    /// must [`ReactorToken::leave`].
    #[must_use]
    pub fn take(&self) -> bool {
        let from = |state| self.state.compare_exchange(state, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        let mine = from(FREE).or_else(|_| from(ASLEEP)).is_ok();
        if mine {
            self.waker.woken();
        }
        mine
    }

    /// Somebody came by who would have taken it if there had been work: as good as a use of it for the parked thread.
    pub fn note_visit(&self) {
        // Who counts at the same time may get lost: it is about whether it changes.
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether the own thread sleeps until it is called, and looks now and then.
    pub fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed) && !self.deep.load(Ordering::Relaxed)
    }

    /// Whoever took the token gives it back. `has_work` is asked when others can see that: work published before is seen
    /// by it, and whoever publishes later wakes somebody.
    pub fn leave(&self, has_work: impl FnOnce() -> bool) {
        self.left.fetch_add(1, Ordering::Relaxed);
        let parked = self.parked.load(Ordering::Relaxed);
        if parked {
            self.state.store(FREE, Ordering::Release);
        } else {
            // The own thread has not noticed that the token was taken, and sleeps as it did.
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
