//! Holds: cursors that keep the writer from overwriting.

use crate::Position;
use crate::control::Cursor;
use crate::ring::Ring;
use crate::sync::Ordering;

/// A cursor that holds the horizon: with flow control nothing at or above it is overwritten. Dropping releases it.
#[derive(Debug)]
pub struct Hold {
    ring: Ring,
    cursor: Cursor,
    slot: usize,
}

/// The requested position is no longer in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes there are gone: the ring begins at position {tail} now")]
pub struct Overwritten {
    /// The lowest position that can still be read.
    pub tail: Position,
}

impl Hold {
    /// Releases the bytes below `to`; a smaller `to` than before does nothing. Costs a fence, and the lock and a wake-up
    /// only if a writer waits.
    #[inline]
    pub fn advance(&self, to: Position) {
        // A maximum, because several threads may share a hold. Release pairs with the Acquire in
        // `Control::slowest_hold`. A writer in another process learns of it by its credit.
        if self.cursor.fetch_max(to, Ordering::Release) < to && !self.ring.is_peer_written() {
            self.ring.shared().after_advance();
        }
    }

    /// Where the cursor is.
    #[inline]
    pub fn position(&self) -> Position {
        self.cursor.load(Ordering::Acquire)
    }

    /// The ring of this hold.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let shared = self.ring.shared();
        let mut control = shared.control();
        let slowest = control.remove_hold(self.slot);
        if slowest && shared.waits.peek() {
            shared.grant(&mut control);
        }
    }
}

impl Ring {
    /// Registers a cursor at `at`, which may lie above the head. With flow control nothing at or above it is overwritten
    /// until the cursor moves or is dropped. Without flow control it is only a position that [`Ring::slowest_hold`] sees.
    ///
    /// # Errors
    /// [`Overwritten`] if that part of the log is gone. Nothing is registered then.
    pub fn hold(&self, at: Position) -> Result<Hold, Overwritten> {
        let mut control = self.shared().control();
        // Bytes that have not arrived yet are not gone.
        let tail = self.tail().min(self.head());
        if at < tail {
            return Err(Overwritten { tail });
        }
        let (slot, cursor) = control.add_hold(at);
        Ok(Hold { ring: self.clone(), cursor, slot })
    }

    /// The lowest cursor of all holds.
    pub fn slowest_hold(&self) -> Option<Position> {
        self.shared().control().slowest_hold()
    }
}
