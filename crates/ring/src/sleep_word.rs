//! Whether a reader in another process sleeps: one word that it writes, and that writers look at when they have published.
//!
//! ```text
//!   writer                          reader, about to sleep
//!   publish the boundary            word = odd: asleep
//!   ── light or full ──             ── heavy or full ──
//!   word odd, not rung for? ring    look at the boundaries once more; nothing new? sleep
//! ```
//!
//! As with [`Waker`](crate::Waker) at least one side sees the other. The writer cannot write the reader's word, so it
//! remembers which sleep it has rung for: the word counts them.

use crate::barrier::{self, Full, Light};
use crate::sync::{AtomicU64, Ordering};

/// What one writer knows of one reader's sleeps.
#[derive(Debug, Default)]
pub struct Rung(AtomicU64);

/// The reader is about to sleep: it must look for news once more after this, and sleep only if there are none.
pub fn fall_asleep(word: &AtomicU64) -> Full {
    let now = word.load(Ordering::Relaxed);
    if now & 1 == 0 {
        word.store(now.wrapping_add(1), Ordering::Relaxed);
    }
    // Meets the writer's, before `Rung::must_ring`: either the reader's next look sees the news, or the writer the sleep.
    barrier::full()
}

/// The reader is awake.
pub fn wake_up(word: &AtomicU64) {
    let now = word.load(Ordering::Relaxed);
    if now & 1 == 1 {
        word.store(now.wrapping_add(1), Ordering::Relaxed);
    }
}

impl Rung {
    /// Whether the reader with this word must be woken, for news published before the barrier: it sleeps, and was not rung for
    /// in this sleep. A light barrier will do only where the reader makes a heavy one for all.
    #[inline]
    pub fn must_ring(&self, word: &AtomicU64, _after: Light) -> bool {
        let now = word.load(Ordering::Relaxed);
        now & 1 == 1 && self.0.swap(now, Ordering::Relaxed) != now
    }
}
