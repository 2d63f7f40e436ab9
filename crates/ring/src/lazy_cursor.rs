//! A position that is told only on demand.

use crate::Position;
use crate::barrier;
use crate::handshake::NotifyFlag;
use crate::sync::{AtomicU64, Ordering};

/// A position that its owner moves without a lock, and without telling anybody until it is asked to.
///
/// ```text
///   owner                          who wants to know
///   at = where it is now           asked = true
///   ── full ──                     ── full ──
///   asked? then it tells           at: as far as it is known to be
/// ```
///
/// One of the two sees the other: what the owner passes after [`LazyCursor::request`] it tells, and what it passed before is returned.
///
/// ```
/// use rocketring::LazyCursor;
///
/// let cursor = LazyCursor::new(0);
/// assert!(!cursor.advance_to(10), "nobody wants to know");
/// assert_eq!(cursor.request(), 10);
/// assert!(cursor.advance_to(20), "now the owner has something to tell");
/// ```
#[derive(Debug)]
pub struct LazyCursor {
    at: AtomicU64,
    asked: NotifyFlag,
}

impl LazyCursor {
    /// At `at`; nobody asks.
    pub fn new(at: Position) -> LazyCursor {
        LazyCursor { at: AtomicU64::new(at), asked: NotifyFlag::default() }
    }

    /// By the owner alone: moves it. True if somebody asked and was not answered yet.
    #[inline]
    pub fn advance_to(&self, at: Position) -> bool {
        // Pairs with the Acquire in `at`: what the owner did below this position is done.
        self.at.store(at, Ordering::Release);
        self.asked.is_armed(barrier::full())
    }

    /// Where it is, or was a moment ago.
    pub fn position(&self) -> Position {
        self.at.load(Ordering::Acquire)
    }

    /// From here on the owner tells; returns where it is.
    pub fn request(&self) -> Position {
        self.asked.arm();
        self.position()
    }

    /// Nobody waits for an answer any more. To be called where nobody can ask meanwhile.
    pub fn clear_request(&self) {
        self.asked.disarm();
    }
}
