//! Whether a reader in another process sleeps: one word that the reader writes, and that writers load after publishing.
//!
//! ```text
//!   writer                          reader, about to sleep
//!   publish the boundary            word = odd: asleep
//!   ── light or full ──             ── heavy or full ──
//!   word odd and new? wake          look at the boundaries once more; nothing new? sleep
//! ```
//!
//! As with [`Waker`](crate::Waker) at least one side sees the other. The writer cannot write the reader's word, so it
//! remembers for which sleep it has woken the reader: the word counts sleeps.

use crate::barrier::{self, Full, Light};
use crate::sync::{AtomicU64, Ordering};

/// The last sleep of a reader from which a writer woke it.
#[derive(Debug, Default)]
pub struct LastWake(AtomicU64);

/// The reader is about to sleep: it must look for new deliveries once more after this, and sleep only if there are none.
pub fn set_asleep(word: &AtomicU64) -> Full {
    let now = word.load(Ordering::Relaxed);
    if now & 1 == 0 {
        word.store(now.wrapping_add(1), Ordering::Relaxed);
    }
    // Meets the writer's, before `LastWake::must_wake`: either the reader sees the deliveries, or the writer sees the sleep.
    barrier::full()
}

/// The reader is awake.
pub fn set_awake(word: &AtomicU64) {
    let now = word.load(Ordering::Relaxed);
    if now & 1 == 1 {
        word.store(now.wrapping_add(1), Ordering::Relaxed);
    }
}

impl LastWake {
    /// Whether the reader with this word must be woken for deliveries before the barrier: it sleeps, and was not
    /// woken from this sleep yet. A light barrier is enough only where the reader makes a heavy one for all.
    #[inline]
    pub fn must_wake(&self, word: &AtomicU64, _after: Light) -> bool {
        let now = word.load(Ordering::Relaxed);
        now & 1 == 1 && self.0.swap(now, Ordering::Relaxed) != now
    }
}
