//! A subscription's or buffer's record of whether its ring moves (`crate::worker`, `idle`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rocketring::barrier::{Full, Light};
use rocketring::{Armed, NotifyFlag, Ring};

use super::{Buffer, Command};
use crate::types::Position;

/// Values of [`Rest::place`] for rings that do not rest. Those of rings at rest are greater.
pub(crate) const NOWHERE: u64 = 0;
pub(crate) const MOVING: u64 = 1;

/// The record of a subscription or buffer for its worker.
pub(crate) struct Rest {
    pub(crate) place: AtomicU64,
    /// Whether there is more memory to release once a hold moves.
    pub(crate) owed: NotifyFlag,
    /// For a buffer: whether its worker must learn when the buffer moves.
    still: NotifyFlag<Light>,
}

impl Default for Rest {
    fn default() -> Self {
        Self { place: AtomicU64::new(NOWHERE), owed: NotifyFlag::new(false), still: NotifyFlag::new(true) }
    }
}

impl Rest {
    /// Returns whether the worker checks the ring now and then.
    pub(crate) fn is_moving(&self) -> bool {
        self.place.load(Ordering::Relaxed) == MOVING
    }

    /// Returns whether the worker must learn of a moved hold, if it does not for other reasons. The hold's
    /// own barrier, one for each move, orders this load.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.peek()
    }

    /// Stops notifications for a ring whose memory does not go back.
    pub(crate) fn never(&self) {
        self.still.disarm();
    }

    /// Puts the ring to rest if its head is still at `head`. Returns false if it moved; the worker then
    /// continues to check it.
    pub(crate) fn begin(&self, ring: &Ring, head: Position) -> bool {
        self.still.arm();
        ring.head() == head || self.still.disarm() != Armed::Yes
    }
}

/// Why a buffer does not rest any more.
pub(crate) enum Activated {
    /// The application writes the buffer.
    Written(Arc<Buffer>),
    /// A hold moved, so that more memory can be released.
    LetGo(Arc<Buffer>),
    /// The buffer that rested at this place is gone.
    Gone(u64),
}

impl Buffer {
    /// Handles a delivery of the application.
    #[inline]
    pub(crate) fn mark_active(self: &Arc<Self>, delivered: Light) {
        if self.rest.still.take(delivered) {
            self.notify_activated(Activated::Written(self.clone()));
        }
    }

    /// Handles a moved hold.
    pub(crate) fn let_go(self: &Arc<Self>, moved: Full) {
        if self.rest.owed.take(moved) {
            self.notify_activated(Activated::LetGo(self.clone()));
        }
    }

    /// Ends the rest of a buffer that is gone.
    pub(crate) fn end_rest(&self) {
        let place = self.rest.place.load(Ordering::Acquire);
        if place > MOVING {
            self.notify_activated(Activated::Gone(place));
        }
    }

    fn notify_activated(&self, activated: Activated) {
        let workers = &self.inner.workers;
        workers[self.slot as usize % workers.len()].send(Command::Activated(activated));
    }
}
