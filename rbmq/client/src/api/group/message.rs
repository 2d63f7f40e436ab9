//! A message of a group.

use std::sync::Arc;
use std::time::Duration;

use super::link::{Marks, millis};
use crate::wire::{AttributesBuf, Mark, MarkKind};

/// A message that this worker has, until it says that it is done or its time is over. Dropping it says nothing: then others get it after
/// the group's time.
pub struct GroupMessage {
    /// The content.
    pub bytes: Vec<u8>,
    /// What the record says about its content; empty without attributes.
    pub attributes: AttributesBuf,
    /// Where the message is in the log of the topic: its name among the messages of the group.
    pub position: u64,
    /// 1, or more if earlier attempts have failed.
    pub attempt: u16,
    pub(super) marks: Arc<Marks>,
    /// The connection over which it came.
    pub(super) number: u64,
}

impl GroupMessage {
    /// The message is done, and does not come again. Returns at once; [`GroupWorker::flush`](super::GroupWorker::flush) waits until the
    /// broker's journal has it.
    pub fn ack(self) {
        self.mark(MarkKind::Ack, 0);
    }

    /// The message is not done: an attempt has failed. Others, or this worker, get it after `delay`.
    pub fn nack(self, delay: Duration) {
        self.mark(MarkKind::Nack, millis(delay));
    }

    /// The worker gets `time` from now on, at most 12 hours. Without effect if others have the message already.
    pub fn extend(&self, time: Duration) {
        self.mark(MarkKind::Extend, millis(time));
    }

    /// The worker has not begun with the message and gives it back. That is no failed attempt.
    pub fn release(self) {
        self.mark(MarkKind::Release, 0);
    }

    fn mark(&self, kind: MarkKind, ms: u32) {
        self.marks.mark(Mark { kind, position: self.position, ms }, self.number);
    }
}

impl std::fmt::Debug for GroupMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes, position, attempt, .. } = self;
        f.debug_struct("GroupMessage")
            .field("position", position)
            .field("attempt", attempt)
            .field("bytes", &bytes.len())
            .finish_non_exhaustive()
    }
}
