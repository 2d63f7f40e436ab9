//! The handshake between a thread that asks to be notified and a thread that publishes, without a lock on the publisher's side.
//!
//! ```text
//!   asks, seldom                          publishes, often
//!   flag = armed                          publish (a head, a cursor, a command)
//!   ── barrier ──                         ── barrier ──
//!   is it published already? → disarm     is the flag armed? → take it, notify
//! ```
//!
//! Each side writes, makes a barrier, and reads what the other side wrote (Dekker's way). So at least one of the two sees the
//! other: a notification is not lost. Without the barriers both reads could be done before the writes are seen elsewhere.
//! Both sides can see each other; then the asker is notified although it no longer needs it. The same shape is
//! `need_wakeup` in io_uring, and an event count in Folly.
//!
//! | handshake | asks | publishes |
//! |---|---|---|
//! | [`NotifyFlag`] | any thread | any thread: one of them takes the flag |
//! | [`EventCount`] | threads that sleep | any thread: all sleeping threads are woken |
//! | [`Waker`](crate::Waker), [`ReactorToken`](crate::ReactorToken) | a worker that sleeps | any thread: one system call for each sleep |
//! | [`PendingSet`](crate::PendingSet) | a worker, by a clear bit | any thread, by setting the bit |
//! | [`LazyCursor`](crate::LazyCursor) | any thread | the owner of a position |
//! | [`sleep_word`](crate::sleep_word) | a reader in another process | writers, which cannot write the flag |
//!
//! All of them take their barriers from [`barrier`](crate::barrier), and all run as they are under loom.

use std::marker::PhantomData;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::barrier::{Barrier, Full};
use crate::sync::{AtomicU32, Condvar, Mutex, Ordering, lock};

/// The state of a [`NotifyFlag`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Armed {
    /// The flag is not armed.
    No,
    /// The flag is armed.
    Yes,
    /// The flag was armed, and a publisher took it.
    Taken,
}

/// A request to be notified once. `B` is the publishers' barrier: [`Full`], or [`Light`](crate::barrier::Light) where they
/// publish with every message.
///
/// ```
/// use rocketring::{NotifyFlag, barrier};
///
/// let flag = NotifyFlag::new(false);
/// assert!(!flag.take(barrier::full()), "no request");
/// flag.arm(); // The asker looks at its condition after this.
/// assert!(flag.take(barrier::full()), "the thread that takes it notifies");
/// assert!(!flag.take(barrier::full()), "once");
/// ```
#[derive(Debug)]
pub struct NotifyFlag<B = Full> {
    state: AtomicU32,
    publishers: PhantomData<fn(B)>,
}

impl<B: Barrier> NotifyFlag<B> {
    /// A flag that is armed or not. With a flag that is armed from the start, the asker need not check its condition.
    pub fn new(armed: bool) -> Self {
        let state = if armed { Armed::Yes } else { Armed::No };
        Self { state: AtomicU32::new(state as u32), publishers: PhantomData }
    }

    /// Asks to be notified of values that are published from now on. Earlier values are visible to the caller after this
    /// call, and the caller must check for them now.
    pub fn arm(&self) -> Full {
        // Release pairs with the Acquire in `take`: the notifying thread sees the asker's earlier writes.
        self.state.store(Armed::Yes as u32, Ordering::Release);
        // Meets the barrier that publishers hand to `is_armed` and `take`.
        B::meet()
    }

    /// Whether the asker must be notified of the values that were published before the barrier.
    #[inline]
    pub fn is_armed(&self, _after: B) -> bool {
        self.peek()
    }

    /// As [`NotifyFlag::is_armed`], without a barrier: for callers that hold the lock under which the flag is armed, or that
    /// can use an old answer.
    #[inline]
    pub fn peek(&self) -> bool {
        self.state.load(Ordering::Relaxed) == Armed::Yes as u32
    }

    /// As [`NotifyFlag::is_armed`], and takes the request. True for one caller, which must notify.
    #[inline]
    pub fn take(&self, after: B) -> bool {
        self.is_armed(after) && self.take_armed()
    }

    #[cold]
    fn take_armed(&self) -> bool {
        let (armed, taken) = (Armed::Yes as u32, Armed::Taken as u32);
        self.state.compare_exchange(armed, taken, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Withdraws the request, by the asker. Returns the state before.
    pub fn disarm(&self) -> Armed {
        // Acquire pairs with the Release in `take_armed`: the asker sees the publisher's earlier writes.
        match self.state.swap(Armed::No as u32, Ordering::AcqRel) {
            state if state == Armed::Yes as u32 => Armed::Yes,
            state if state == Armed::Taken as u32 => Armed::Taken,
            _ => Armed::No,
        }
    }
}

impl<B: Barrier> Default for NotifyFlag<B> {
    fn default() -> Self {
        Self::new(false)
    }
}

/// Threads that sleep until a condition holds. The threads that make it hold take no lock, and pay a load while no thread
/// sleeps.
///
/// ```text
///   sleeps                                publishes
///   waiters += 1                          publish
///   ── full ──                            ── full ──
///   (lock) holds? else sleep, again       waiters > 0? → (lock) notify all
/// ```
#[derive(Debug, Default)]
pub struct EventCount {
    waiters: AtomicU32,
    lock: Mutex<()>,
    published: Condvar,
}

impl EventCount {
    /// Sleeps until `done`, at most for `timeout`. False if the time ran out. `done` is called under a lock that
    /// [`EventCount::notify_all`] takes too.
    pub fn wait_until(&self, timeout: Duration, done: impl Fn() -> bool) -> bool {
        const EVER: Duration = Duration::from_secs(3600);
        let deadline = Instant::now().checked_add(timeout);
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // Pairs with the publisher's barrier: either `done` sees the published value, or the publisher sees a waiter.
        crate::barrier::full();
        let mut guard = lock(&self.lock);
        let reached = loop {
            if done() {
                break true;
            }
            let left = deadline.map_or(EVER, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break false;
            }
            guard = self.published.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(guard);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        reached
    }

    /// Wakes all sleeping threads. The caller has published before the barrier.
    #[inline]
    pub fn notify_all(&self, _after: Full) {
        if self.waiters.load(Ordering::Relaxed) > 0 {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        // A waiter that has found its condition unmet is asleep once this thread has the lock.
        drop(lock(&self.lock));
        self.published.notify_all();
    }
}
