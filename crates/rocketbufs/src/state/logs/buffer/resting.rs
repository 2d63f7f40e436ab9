//! Notifying the worker that trims a buffer's memory while the buffer rests (`crate::worker`, `idle`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rocketring::barrier::{Full, Light};

use super::{Activated, Buffer};
use crate::state::{Command, MOVING};

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
