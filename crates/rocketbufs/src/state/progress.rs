//! Notifies the application once when a buffer's subscribers have progressed far enough, for a writer that
//! must not wait.
//!
//! ```text
//!   writer                              worker
//!   append → Full (the ring says so)    a subscriber's positions move, the ring grants
//!   what = Room, armed                  ── full ──
//!   ── full ──                          armed? (lock) reached? → disarm, report Progress
//!   (lock) reached already? → the same
//! ```

use std::sync::{Arc, Mutex};

use rocketring::NotifyFlag;
use rocketring::barrier::Full;

use crate::lock::lock;
use crate::state::{Buffer, Command};
use crate::types::Position;

/// The condition that [`OutBuffer::notify_progress`](crate::OutBuffer::notify_progress) waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Room for the segment that [`SegmentError::Full`](crate::SegmentError::Full) refused last.
    Room,
    /// Every present subscriber has released everything below this position.
    Consumed(Position),
}

/// The condition that the application waits for, if any.
#[derive(Debug, Default)]
pub(crate) struct ProgressWatch {
    /// Lock-free mirror of `what.is_some()`. Written under the lock.
    armed: NotifyFlag,
    what: Mutex<Option<Progress>>,
}

impl Buffer {
    /// Reports [`OutEvent::Progress`](crate::OutEvent::Progress) once `what` is true, now or later. A later
    /// call replaces an earlier one.
    pub(crate) fn watch_progress(self: &Arc<Self>, what: Progress) {
        let mut watched = lock(&self.watched.what);
        *watched = Some(what);
        let armed = self.watched.armed.arm();
        drop(watched);
        match what {
            Progress::Room => self.notify(),
            Progress::Consumed(position) => self.want([0, 0, position]),
        }
        self.tell_progress(armed);
    }

    /// Handles progress of a subscriber: reports a condition that has become true, on a worker.
    pub(crate) fn tell_progress(self: &Arc<Self>, after: Full) {
        if !self.watched.armed.is_armed(after) {
            return;
        }
        // The lock is held until the flag is disarmed: a concurrent request is neither taken for this one nor
        // lost with it.
        let mut watched = lock(&self.watched.what);
        let Some(what) = *watched else { return };
        let reached = self.ended()
            || match what {
                Progress::Room => self.log().is_none_or(|log| !log.ring.writer_waits()),
                Progress::Consumed(position) => self.confirmed().consumed >= position,
            };
        if reached {
            *watched = None;
            self.watched.armed.disarm();
            drop(watched);
            self.inner.workers[0].send(Command::Progress(self.clone()));
        }
    }
}
