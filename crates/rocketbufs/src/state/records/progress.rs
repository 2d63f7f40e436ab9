//! The conditions that a writer or a task waits for without blocking.

use std::sync::Mutex;
use std::task::Waker;

use rocketring::NotifyFlag;

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

/// The conditions that the application waits for, if any.
#[derive(Debug, Default)]
pub(crate) struct ProgressWatch {
    /// Lock-free mirror of `wanted.is_any()`. Written under the lock.
    pub(crate) armed: NotifyFlag,
    pub(crate) wanted: Mutex<Wanted>,
}

#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The condition for an event.
    pub(crate) event: Option<Progress>,
    /// Tasks that wait for room.
    pub(crate) room: Vec<Waker>,
}

impl Wanted {
    /// Returns whether anything is waited for.
    pub(crate) fn is_any(&self) -> bool {
        self.event.is_some() || !self.room.is_empty()
    }
}
