//! A message of a group.

use std::sync::Arc;
use std::time::Duration;

use super::link::{Marks, millis};
use crate::wire::{AttributesBuf, Mark, MarkKind};

/// A message that this worker has, until it says that it is done or its time is over. Dropping it says that the worker has stopped, and not how
/// it ended: then others get it after the group's time. Until a word is said the message counts for the [credit](super::GroupBuilder::credit) of
/// its worker, also if its time is over.
pub struct GroupMessage {
    /// The content.
    pub bytes: Vec<u8>,
    /// What the record says about its content; empty without attributes.
    pub attributes: AttributesBuf,
    /// Where the message is in the log of the topic: its name among the messages of the group.
    pub position: u64,
    /// 1, or more if earlier attempts have failed.
    pub attempt: u16,
    pub(super) word: Word,
}

/// What is to be said of a message, once.
pub(super) struct Word {
    pub(super) marks: Arc<Marks>,
    pub(super) position: u64,
    pub(super) attempt: u16,
    /// The generation of the group.
    pub(super) generation: u64,
    /// The connection over which the message came.
    pub(super) number: u64,
    pub(super) is_said: bool,
}

impl Word {
    fn tell(&self, kind: MarkKind, ms: u32) {
        let Self { position, attempt, .. } = *self;
        self.marks.mark(Mark { kind, position, attempt, ms }, self.generation, self.number);
    }

    fn say(&mut self, kind: MarkKind, ms: u32) {
        self.is_said = true;
        self.tell(kind, ms);
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if !self.is_said {
            self.tell(MarkKind::Drop, 0);
        }
    }
}

impl GroupMessage {
    /// The message is done, and does not come again. Returns at once; [`GroupWorker::flush`](super::GroupWorker::flush) waits until the
    /// broker's journal has it, and says if it does not count any more.
    pub fn ack(mut self) {
        self.word.say(MarkKind::Ack, 0);
    }

    /// The message is not done: an attempt has failed. Others, or this worker, get it after `delay`, at most 12 hours.
    pub fn nack(mut self, delay: Duration) {
        self.word.say(MarkKind::Nack, millis(delay));
    }

    /// The worker gets `time` from now on, at most 12 hours. Without effect if its time was over already.
    pub fn extend(&self, time: Duration) {
        self.word.tell(MarkKind::Extend, millis(time));
    }

    /// The worker has not begun with the message and gives it back. That is no failed attempt.
    pub fn release(mut self) {
        self.word.say(MarkKind::Release, 0);
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
