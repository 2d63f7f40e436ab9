//! Notifying a worker of work, without a system call while the worker is busy.
//!
//! ```text
//!   producer                         worker
//!   publish (head, …)                loop: drain() → clear bit, fence, call f, which reads head, …
//!   mark(slot) ── true ─▶ wake()           nothing left: prepare(); is_empty()? sleep on fd(); woken()
//! ```
//!
//! Two handshakes ([`crate::NotifyFlag`]) keep a wake-up from being lost: publish/mark against clear/read, and mark/wake
//! against prepare/is_empty.

use std::io;
#[cfg(not(loom))]
use std::os::fd::BorrowedFd;

use crate::barrier::{self, Full};
use crate::event::Event;
use crate::handshake::{Armed, NotifyFlag};
use crate::planted;
use crate::sync::{AtomicU64, CachePadded, Ordering};

/// Wakes one worker that sleeps on a descriptor. A wake-up costs a system call only if the worker sleeps, and only the first of
/// several.
#[derive(Debug)]
pub struct Waker {
    /// Armed while the worker sleeps. A thread that takes it has written to the event or will do so at once.
    asleep: CachePadded<NotifyFlag>,
    /// Taken wake-ups whose write was not read from the event yet. Worker only.
    owed: AtomicU64,
    event: Event,
}

impl Waker {
    /// A waker whose worker is awake.
    ///
    /// # Errors
    /// The system gave no eventfd.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { asleep: CachePadded::default(), owed: AtomicU64::new(0), event: Event::new()? })
    }

    /// The descriptor to sleep on: readable once [`Waker::wake`] was called after [`Waker::prepare`]. The waker owns the descriptor.
    #[cfg(not(loom))]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.event.fd()
    }

    /// Sleeps as if on the descriptor; models only.
    #[cfg(loom)]
    pub fn sleep(&self) {
        self.event.sleep();
    }

    /// Says that the worker is about to sleep. The worker must check for work once more after this call, sleep only if
    /// there is none, and call [`Waker::woken`] in either case.
    pub fn prepare(&self) {
        self.asleep.arm();
    }

    /// The worker is awake again, for any reason. Empties the event if it was written.
    pub fn woken(&self) {
        let notified = self.asleep.disarm() == Armed::Taken;
        let owed = self.owed.load(Ordering::Relaxed) + u64::from(notified);
        if owed > 0 {
            // If the worker woke for another reason, the write may come later. A later wake-up then reads that write:
            // if none did, the descriptor would stay readable for good.
            self.owed.store(owed.saturating_sub(self.event.take()), Ordering::Relaxed);
        }
    }

    /// Says that there is work, published before this call. The call wakes the worker if it sleeps or is about to.
    #[inline]
    pub fn wake(&self) {
        if self.asleep.take(barrier::full()) {
            self.event.add();
        }
    }
}

const BITS: usize = u64::BITS as usize;

/// The set of slots, of a fixed number, that have work: one bit each, and one bit per 64 of them above, so that finding a few
/// among many thousands costs as much as the pending slots, and nothing for the others.
///
/// Marked from any thread, drained by one.
#[derive(Debug)]
pub struct PendingSet {
    words: Box<[AtomicU64]>,
    summary: Box<[AtomicU64]>,
}

impl PendingSet {
    /// A set of the slots `0..slots`, all clear. Costs a bit and a 64th of memory per slot.
    pub fn new(slots: usize) -> PendingSet {
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let words = slots.div_ceil(BITS);
        PendingSet { words: zeros(words), summary: zeros(words.div_ceil(BITS)) }
    }

    /// Slot `slot` has work, published before this call. `true` if its mark was clear: the caller must then wake the worker.
    /// A stream of marks of the same slot costs a fence and a load each.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    pub fn mark(&self, slot: u32) -> bool {
        // Pairs with the barrier in `drain`: if this thread sees a bit that is about to be cleared, the draining thread sees
        // the published value.
        self.mark_fenced(slot, barrier::full())
    }

    /// As [`PendingSet::mark`], for work that was published before a fence of the caller's: a stream of marks costs a load each.
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn mark_fenced(&self, slot: u32, _after: Full) -> bool {
        let (word, bit) = (slot as usize / BITS, 1 << (slot as usize % BITS));
        if self.words[word].load(Ordering::Relaxed) & bit != 0 {
            return false;
        }
        self.mark_clear(word, bit)
    }

    fn mark_clear(&self, word: usize, bit: u64) -> bool {
        let (top, top_bit) = (&self.summary[word / BITS], 1 << (word % BITS));
        if planted::is(6) && top.load(Ordering::Relaxed) & top_bit != 0 {
            return false;
        }
        // Release, and in this order: a thread that takes the summary's bit (Acquire) finds the word's.
        let before = self.words[word].fetch_or(bit, Ordering::Release);
        top.fetch_or(top_bit, Ordering::Release);
        before & bit == 0
    }

    /// Clears every mark and calls `f` with its slot. A slot that is marked during the call may be visited again now,
    /// or at the next drain. Only one thread may drain at a time.
    pub fn drain(&self, mut f: impl FnMut(u32)) {
        for (group, summary) in self.summary.iter().enumerate() {
            if summary.load(Ordering::Relaxed) == 0 {
                continue;
            }
            for word in ones(summary.swap(0, Ordering::Acquire)).map(|bit| group * BITS + bit) {
                let slots = self.words[word].swap(0, Ordering::Acquire);
                // Meets the one before `mark_fenced`.
                barrier::full();
                ones(slots).for_each(|bit| f((word * BITS + bit) as u32));
            }
        }
    }

    /// Clears the mark of one slot, as [`PendingSet::drain`] does before it calls `f`: for a thread that does the worker's work
    /// for this slot. Not during a drain.
    pub fn clear(&self, slot: u32) {
        let (word, bit) = (slot as usize / BITS, 1_u64 << (slot as usize % BITS));
        // The summary keeps its bit: a drain that finds nothing below it clears it.
        self.words[word].fetch_and(!bit, Ordering::Acquire);
        // Meets the one before `mark_fenced`.
        barrier::full();
    }

    /// Whether nothing is marked. A mark that is being set at this moment may be missed, but then its caller has
    /// not woken the worker yet.
    pub fn is_empty(&self) -> bool {
        self.summary.iter().all(|word| word.load(Ordering::Acquire) == 0)
    }
}

/// The numbers of the set bits, lowest first.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}
