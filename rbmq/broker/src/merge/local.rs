//! A publisher in the broker's own process: it has no connection and no ring, but a slot for one batch.
//!
//! ```text
//!   its thread: batch ─▶ slot ─▶ log      the same thread merges, if no other does
//!                          └───▶ log      the one that does, or the one that makes room in the log
//! ```
//!
//! Into a log on disk the log's own thread merges, and this thread waits for no disk.
//!
//! A batch in the slot is in the queue of the merger as the data of all publishers is, so nobody is served before others. Until it is merged the
//! slot takes no other one: that is this publisher's flow control.

use std::mem;
use std::sync::{Arc, mpsc};

use locks::Mutex;
use rbmq_wire::TopicName;
use rocketbufs::{Epoch, Position};

/// An empty slot keeps memory for so many bytes, if the publisher says nothing else.
const KEPT_BYTES: usize = 256 << 10;

/// Publishes into the log of a merged topic or of a space from a thread of this process. A batch that is not merged when it is dropped still will be.
pub struct LocalPublisher {
    slot: Slot,
    merging: Box<dyn Merging + Send>,
    max_bytes: usize,
    /// The position behind what was taken.
    end: Position,
}

/// What is called when there is room again.
pub(super) type Wake = Box<dyn Fn() + Send + Sync>;

/// The merged topic, as a publisher of this process tells it of its slot.
pub(super) trait Merging {
    /// There is a batch. The calling thread merges it, if no other one has the topic, and what it finds of others in one turn.
    fn arrived(&self);
    /// The publisher is gone, and perhaps has left a batch.
    fn left(&self);
}

/// A request for a publisher.
pub(crate) struct LocalAsk {
    log: TopicName,
    wake: Wake,
    grows: bool,
    reply: mpsc::SyncSender<Option<LocalPublisher>>,
}

impl LocalAsk {
    /// For a publisher into a log. The answer follows, or the end of its channel.
    pub(crate) fn new(
        log: TopicName,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> (Self, mpsc::Receiver<Option<LocalPublisher>>) {
        let (reply, answer) = mpsc::sync_channel(1);
        (Self { log, wake: Box::new(wake), grows: false, reply }, answer)
    }

    /// Lets the log grow for the messages of this publisher. The growth counts in no quota: it is for messages of the broker itself.
    pub(crate) fn with_growth(self) -> Self {
        Self { grows: true, ..self }
    }

    /// Answers with what is made. If nobody waits any more, that is dropped.
    pub(crate) fn answer(self, make: impl FnOnce(&TopicName, bool, Wake) -> Option<LocalPublisher>) {
        let _ = self.reply.try_send(make(&self.log, self.grows, self.wake));
    }
}

/// Why [`LocalPublisher::publish`] has not taken a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTaken {
    /// The last one is not merged. `wake` is called when it is.
    Full,
    /// It is larger than a delivery of the log: this many bytes at most.
    TooLarge(usize),
    /// The log has ended, and the last batch with it, if that was not merged.
    Ended,
}

/// The slot, shared with the merger.
#[derive(Clone)]
pub(super) struct Slot(Arc<Shared>);

struct Shared {
    epoch: Epoch,
    content: Mutex<Content>,
    wake: Wake,
}

struct Content {
    /// Empty while the slot is, and while the merger has the batch.
    batch: Vec<u8>,
    /// The size of the batch, also while the merger has it. 0: the slot is empty.
    taken: usize,
    /// An empty slot keeps memory for so many bytes.
    kept_bytes: usize,
    /// The position behind the batch, or behind the last one.
    end: Position,
    has_ended: bool,
    /// The publisher waits for the slot.
    is_awaited: bool,
}

/// The merger's end of a slot.
pub(super) struct LocalRing(Slot);

/// The batch of a slot. Dropping it puts the batch back.
pub(super) struct Batch {
    slot: Slot,
    bytes: Vec<u8>,
    end: Position,
}

impl LocalPublisher {
    /// A publisher that finds its topic with what `join` makes of its ring. `wake` is called, from any thread, when there is room again and
    /// the publisher has waited for it. Nobody else has, or can guess, the name of its log.
    pub(super) fn new<M: Merging + Send + 'static>(
        max_bytes: usize,
        epoch: Epoch,
        wake: Wake,
        join: impl FnOnce(LocalRing) -> M,
    ) -> Self {
        let (batch, kept_bytes) = (Vec::new(), KEPT_BYTES);
        let content = Content { batch, taken: 0, kept_bytes, end: 0, has_ended: false, is_awaited: false };
        let slot = Slot(Arc::new(Shared { epoch, content: Mutex::new(content), wake }));
        let merging = Box::new(join(LocalRing(slot.clone())));
        Self { slot, merging, max_bytes, end: 0 }
    }

    /// Keeps memory for so many bytes while nothing is published.
    pub fn keep_bytes(&self, bytes: usize) {
        self.slot.0.content.lock().kept_bytes = bytes;
    }

    /// The name of the log that its batches are, one behind the other. Of a kept topic it tells what is stored
    /// ([`KeptTopics::follow_publisher`](crate::KeptTopics::follow_publisher)).
    pub fn epoch(&self) -> Epoch {
        self.slot.0.epoch
    }

    /// The largest batch that is taken, in bytes.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// The position behind the last batch that was taken.
    pub fn position(&self) -> Position {
        self.end
    }

    /// Takes a batch of whole records, one delivery at most, and leaves an empty one with memory for the next. It is published before anything
    /// that a later call takes; mostly at once, and otherwise when the log has room.
    ///
    /// # Errors
    /// The batch was not taken.
    pub fn publish(&mut self, batch: &mut Vec<u8>) -> Result<(), NotTaken> {
        if batch.len() > self.max_bytes {
            return Err(NotTaken::TooLarge(self.max_bytes));
        }
        let mut content = self.slot.0.content.lock();
        if content.has_ended && (content.taken > 0 || !batch.is_empty()) {
            content.taken = 0;
            return Err(NotTaken::Ended);
        }
        if batch.is_empty() {
            return Ok(());
        }
        if content.taken > 0 {
            content.is_awaited = true;
            return Err(NotTaken::Full);
        }
        mem::swap(&mut content.batch, batch);
        content.taken = content.batch.len();
        self.end += content.taken as Position;
        content.end = self.end;
        drop(content);
        self.merging.arrived();
        Ok(())
    }

    /// Whether everything that was taken is merged, or never will be. Otherwise `wake` is called when it is.
    pub fn is_merged(&self) -> bool {
        let mut content = self.slot.0.content.lock();
        if content.has_ended {
            return true;
        }
        content.is_awaited = content.taken > 0;
        content.taken == 0
    }

    /// Whether the log has ended. What is merged and not stored then never will be.
    pub(crate) fn has_ended(&self) -> bool {
        self.slot.0.content.lock().has_ended
    }

    /// The bytes that were taken and are not merged.
    pub fn unmerged(&self) -> usize {
        let content = self.slot.0.content.lock();
        if content.has_ended { 0 } else { content.taken }
    }
}

impl Drop for LocalPublisher {
    fn drop(&mut self) {
        self.merging.left();
    }
}

impl std::fmt::Debug for LocalPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPublisher").finish_non_exhaustive()
    }
}

impl LocalRing {
    /// The name of the publisher's log.
    pub(super) fn epoch(&self) -> Epoch {
        self.0.0.epoch
    }

    /// The batch in the slot.
    pub(super) fn complete(&self) -> Option<Batch> {
        let mut content = self.0.0.content.lock();
        let bytes = mem::take(&mut content.batch);
        (!bytes.is_empty()).then(|| Batch { slot: self.0.clone(), bytes, end: content.end })
    }
}

impl Drop for LocalRing {
    fn drop(&mut self) {
        let mut content = self.0.0.content.lock();
        content.has_ended = true;
        drop(content);
        (self.0.0.wake)();
    }
}

impl Batch {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The position behind the batch, in what the publisher has published.
    pub(super) fn end(&self) -> Position {
        self.end
    }

    /// The batch is merged.
    pub(super) fn release(mut self) {
        let mut empty = mem::take(&mut self.bytes);
        empty.clear();
        let mut content = self.slot.0.content.lock();
        empty.shrink_to(content.kept_bytes);
        content.batch = empty;
        content.taken = 0;
        let is_awaited = mem::take(&mut content.is_awaited);
        drop(content);
        if is_awaited {
            (self.slot.0.wake)();
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            self.slot.0.content.lock().batch = mem::take(&mut self.bytes);
        }
    }
}

#[cfg(test)]
impl LocalPublisher {
    /// A publisher into a log that takes nothing, and ends when the second value is dropped.
    pub(crate) fn of_nobody(epoch: Epoch) -> (Self, Box<dyn std::any::Any>) {
        let mut ring = None;
        let join = |own| {
            ring = Some(own);
            tests::Nobody
        };
        let local = Self::new(1 << 20, epoch, Box::new(|| ()), join);
        (local, Box::new(ring))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    pub(super) struct Nobody;

    impl Merging for Nobody {
        fn arrived(&self) {}
        fn left(&self) {}
    }

    #[test]
    fn an_empty_slot_keeps_as_much_memory_as_its_publisher_says() {
        let ring = Cell::new(None);
        let join = |own| {
            ring.set(Some(own));
            Nobody
        };
        let mut local = LocalPublisher::new(1 << 20, Epoch(7), Box::new(|| ()), join);
        let ring = ring.take().expect("it has joined");
        for most in [KEPT_BYTES, 1000] {
            local.publish(&mut vec![0; 1 << 20]).expect("the slot is empty");
            assert_eq!(local.unmerged(), 1 << 20);
            ring.complete().expect("a batch").release();
            assert_eq!(local.unmerged(), 0);
            let kept = local.slot.0.content.lock().batch.capacity();
            assert!(kept <= most, "{kept}");
            local.keep_bytes(1000);
        }
    }
}
