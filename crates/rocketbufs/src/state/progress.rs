//! Telling the application once that a buffer's subscribers have moved on far enough: for a writer that must not wait.
//!
//! ```text
//!   writer                              worker
//!   append → Full (the ring says so)    a subscriber's positions move, the ring grants
//!   what = Room, armed                  ── full ──
//!   ── full ──                          armed? (lock) reached? → disarm, tell Progress
//!   (lock) reached already? → the same
//! ```

use std::sync::{Arc, Mutex};

use rocketring::NotifyFlag;
use rocketring::barrier::Full;

use crate::lock::lock;
use crate::state::{Buffer, Command};
use crate::types::Position;

/// What [`OutBuffer::notify_progress`](crate::OutBuffer::notify_progress) waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Room for what was refused last with [`SegmentError::Full`](crate::SegmentError::Full).
    Room,
    /// Every subscriber present has given back everything below this position.
    Consumed(Position),
}

/// Whether somebody is to be told, and of what.
#[derive(Debug, Default)]
pub(crate) struct ProgressWatch {
    /// Whether there is something, for those who only look. Written under the lock.
    armed: NotifyFlag,
    what: Mutex<Option<Progress>>,
}

impl Buffer {
    /// Tells [`OutEvent::Progress`](crate::OutEvent::Progress) once `what` is so, now or later. The last word counts.
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

    /// Somebody moved on: tells whoever waits for that, on a worker.
    pub(crate) fn tell_progress(self: &Arc<Self>, after: Full) {
        if !self.watched.armed.is_armed(after) {
            return;
        }
        // DurableCursor until it is disarmed: what is asked for meanwhile is neither taken for this nor forgotten with it.
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
