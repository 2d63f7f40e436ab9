//! A position whose owner notifies others only on demand.

use crate::Position;
use crate::barrier;
use crate::handshake::NotifyFlag;
use crate::sync::{AtomicU64, Ordering};

/// A position that its owner moves without a lock, and without a notification until one is requested.
///
/// ```text
///   owner                          another thread
///   at = the new position          requested = true
///   ── full ──                     ── full ──
///   requested? → notify            read at
/// ```
///
/// At least one side sees the other: the owner notifies of positions that it passes after [`LazyCursor::request`], and
/// `request` returns the position from before.
///
/// ```
/// use rocketring::LazyCursor;
///
/// let cursor = LazyCursor::new(0);
/// assert!(!cursor.advance_to(10), "no request");
/// assert_eq!(cursor.request(), 10);
/// assert!(cursor.advance_to(20), "the owner must notify");
/// ```
#[derive(Debug)]
pub struct LazyCursor {
    at: AtomicU64,
    requested: NotifyFlag,
}

impl LazyCursor {
    /// A cursor at `at`, without a request.
    pub fn new(at: Position) -> LazyCursor {
        LazyCursor { at: AtomicU64::new(at), requested: NotifyFlag::default() }
    }

    /// Moves the cursor; by its owner alone. True if there is a request: the owner must notify.
    #[inline]
    pub fn advance_to(&self, at: Position) -> bool {
        // Release pairs with the Acquire in `position`: a reader of the position sees the owner's work below it.
        self.at.store(at, Ordering::Release);
        self.requested.is_armed(barrier::full())
    }

    /// The position, which may be a moment old.
    pub fn position(&self) -> Position {
        self.at.load(Ordering::Acquire)
    }

    /// Makes the owner notify from now on. Returns the position.
    pub fn request(&self) -> Position {
        self.requested.arm();
        self.position()
    }

    /// Clears the request. No other thread may request during the call.
    pub fn clear_request(&self) {
        self.requested.disarm();
    }
}
