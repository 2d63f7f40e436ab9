//! Notifying the worker that trims a buffer's memory while the buffer rests (`crate::worker`, `idle`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketring::barrier::{Full, Light};

use super::Buffer;
use crate::state::{Activated, Request};

impl Buffer {
    /// Handles a delivery of the application.
    #[inline]
    pub(crate) fn mark_active(self: &Arc<Self>, delivered: Light) {
        if self.idle_state.written.take(delivered) {
            self.notify_activated(Activated::Written(self.slot));
        }
    }

    /// Handles a moved hold.
    pub(crate) fn on_hold_moved(self: &Arc<Self>, moved: Full) {
        if self.idle_state.hold_moved.take(moved) {
            self.notify_activated(Activated::HoldMoved(self.slot));
        }
    }

    /// Ends the rest of a buffer that is gone.
    pub(crate) fn end_rest(&self) {
        let place = self.idle_state.place.load(Ordering::Acquire);
        self.notify_activated(Activated::Gone { slot: self.slot, place });
    }

    /// Returns the worker that trims the buffer's memory.
    pub(crate) fn trimming_worker(&self) -> usize {
        self.slot as usize % self.inner.workers.len()
    }

    fn notify_activated(&self, activated: Activated) {
        self.inner.workers[self.trimming_worker()].request(Request::Activated(activated));
    }
}
