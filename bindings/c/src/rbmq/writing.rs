//! Writers of which a batch may be open.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::time::Duration;

use rbmq::{PublishError, SpaceBatch, SpaceWriter, TopicWriter, WriteBatch};

use crate::raw::timeout;
use crate::status::rb_status::{RB_ERR_ARGUMENT, RB_ERR_BUSY};
use crate::status::{Failure, Outcome};

/// A writer that makes batches, which borrow it.
pub(crate) trait Batching: Send + 'static {
    /// A delivery that is being filled.
    type Batch<'w>;
    /// The name of the writer's target, in error texts.
    const WHAT: &'static str;

    /// Begins a delivery.
    fn begin(&mut self, bytes: u64, timeout: Option<Duration>) -> Result<Self::Batch<'_>, PublishError>;

    /// Publishes a delivery. After [`PublishError::TimedOut`] it is there as before.
    fn deliver(batch: &mut Self::Batch<'_>) -> Result<u64, PublishError>;
}

impl Batching for TopicWriter {
    type Batch<'w> = WriteBatch<'w>;
    const WHAT: &'static str = "topic";

    fn begin(&mut self, bytes: u64, timeout: Option<Duration>) -> Result<WriteBatch<'_>, PublishError> {
        self.batch_timeout(bytes, timeout)
    }

    fn deliver(batch: &mut WriteBatch<'_>) -> Result<u64, PublishError> {
        batch.try_deliver()
    }
}

impl Batching for SpaceWriter {
    type Batch<'w> = SpaceBatch<'w>;
    const WHAT: &'static str = "space";

    fn begin(&mut self, bytes: u64, timeout: Option<Duration>) -> Result<SpaceBatch<'_>, PublishError> {
        self.batch(bytes, timeout)
    }

    fn deliver(batch: &mut SpaceBatch<'_>) -> Result<u64, PublishError> {
        batch.try_deliver()
    }
}

/// A writer, and the batch of it that is open.
pub(crate) struct Writing<W: Batching> {
    /// Borrows what `writer` points at: it is dropped before, and while it is there nothing else uses the writer.
    batch: Option<W::Batch<'static>>,
    /// Owned.
    writer: NonNull<W>,
}

// SAFETY: the writer is owned, and is Send; the batch borrows it.
unsafe impl<W: Batching> Send for Writing<W> {}

impl<W: Batching> Writing<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { batch: None, writer: NonNull::from(Box::leak(Box::new(writer))) }
    }

    /// The writer, while no batch is open.
    #[inline]
    pub(crate) fn writer(&mut self) -> Result<&mut W, Failure> {
        if self.batch.is_some() {
            return Err(is_open(W::WHAT));
        }
        // SAFETY: owned, and no batch borrows it.
        Ok(unsafe { self.writer.as_mut() })
    }

    pub(crate) fn begin(&mut self, bytes: u64, timeout_ns: i64) -> Outcome {
        self.writer()?;
        // SAFETY: owned, and no batch borrows it. The batch is dropped before the writer, which `Drop` and `into_writer`
        // make sure of.
        let writer: &'static mut W = unsafe { self.writer.as_mut() };
        self.batch = Some(writer.begin(bytes, timeout(timeout_ns))?);
        Ok(())
    }

    pub(crate) fn batch(&mut self) -> Result<&mut W::Batch<'static>, Failure> {
        self.batch.as_mut().ok_or_else(|| none_is_open(W::WHAT))
    }

    /// Publishes the open batch, which stays open if there is no room.
    pub(crate) fn deliver(&mut self) -> Result<u64, Failure> {
        let delivered = W::deliver(self.batch()?);
        if !matches!(delivered, Err(PublishError::TimedOut { .. })) {
            self.batch = None;
        }
        Ok(delivered?)
    }

    /// Drops the open batch, if there is one.
    pub(crate) fn cancel(&mut self) {
        self.batch = None;
    }

    /// The writer. A batch that is open publishes nothing.
    pub(crate) fn into_writer(mut self) -> W {
        self.batch = None;
        // Nothing is left to drop but the writer.
        let writer = ManuallyDrop::new(self).writer;
        // SAFETY: made by `new` from a box, and `self` is not dropped.
        *unsafe { Box::from_raw(writer.as_ptr()) }
    }
}

#[cold]
fn is_open(what: &str) -> Failure {
    Failure::of(RB_ERR_BUSY, format!("a batch of the {what} is open; deliver or cancel it first"))
}

#[cold]
fn none_is_open(what: &str) -> Failure {
    Failure::of(RB_ERR_ARGUMENT, format!("no batch of the {what} is open"))
}

impl<W: Batching> Drop for Writing<W> {
    fn drop(&mut self) {
        self.batch = None;
        // SAFETY: made by `new` from a box, and the batch that borrowed it is gone.
        drop(unsafe { Box::from_raw(self.writer.as_ptr()) });
    }
}
