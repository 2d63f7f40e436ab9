//! Handles of the buffers of an rOut.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{BufferError, DeliverError, SegmentError, WaitError};
use crate::limits::SubscriptionLimits;
use crate::lock::lock;
use crate::rout::ROut;
use crate::segment::{self, OutSegment, OutWriter};
use crate::state::{Buffer, Confirmed, Progress, is_worker};
use crate::types::{Bid, ConfirmLevel, NO_LIMIT, Position};

/// A buffer of an [`ROut`]. [`ROut::create_buffer`] and [`ROut::buffer`] give one. Cloning gives another handle of the same
/// buffer; no call looks the buffer up.
///
/// Dropping a handle ends nothing: the buffer lives until [`OutBuffer::destroy`], or until the rOut is gone. A handle keeps
/// its rOut alive. After the end of the buffer, calls that would write fail with `Closed`.
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Config, ConfirmLevel, Context, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ctx = Context::new(Config::default())?;
/// let out = ROut::new(&ctx);
/// let buffer = out.create_buffer(7, 1 << 20)?;
///
/// let mut segment = buffer.segment(5, Some(Duration::ZERO))?;
/// segment.bytes_mut().copy_from_slice(b"hello");
/// let end = buffer.deliver(segment, 5, None)?;
/// buffer.wait(ConfirmLevel::Consumed, end, None)?; // There are no subscribers to wait for.
/// buffer.destroy();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OutBuffer {
    pub(crate) out: ROut,
    pub(crate) buffer: Arc<Buffer>,
}

impl OutBuffer {
    /// The id of the buffer.
    pub fn bid(&self) -> Bid {
        self.buffer.bid
    }

    /// A free segment of exactly `size` bytes, to be filled and delivered. Waits for room at most `timeout` (`None`: no
    /// limit; zero: does not wait).
    ///
    /// # Errors
    /// [`SegmentError::Full`] if there is no room and the time-out is zero, [`SegmentError::TimedOut`] if there was none in
    /// time.
    pub fn segment(&self, size: u64, timeout: Option<Duration>) -> Result<OutSegment, SegmentError> {
        let buffer = &self.buffer;
        segment::with_room(buffer, size, timeout, |size| {
            if buffer.ended() {
                return Err(SegmentError::Closed);
            }
            let mut writer = lock(&buffer.writer);
            let writer = writer.as_mut().ok_or(match buffer.source {
                Some(_) => SegmentError::Spliced(buffer.bid),
                None => SegmentError::WriterTaken(buffer.bid),
            })?;
            writer.claim(size).map_err(segment::claim_error)
        })
    }

    /// Makes the first `size` bytes of a segment one delivery; size 0 gives the segment back. `context` comes back in
    /// [`ROut::set_data_out_cb`] when the delivery has landed with every subscriber. Returns the end of the delivery.
    /// Never waits.
    ///
    /// # Errors
    /// [`DeliverError`]: the segment comes back where it can be delivered otherwise.
    pub fn deliver(
        &self,
        segment: OutSegment,
        size: u64,
        context: Option<u64>,
    ) -> Result<Position, DeliverError> {
        let mut writer = lock(&self.buffer.writer);
        match writer.as_mut() {
            Some(writer) => segment::deliver(&self.buffer, writer, segment, size, context),
            None => Err(DeliverError::Foreign(segment)),
        }
    }

    /// Takes the right to write, which only one [`OutWriter`] has: without a lock for each message. Until the writer is
    /// dropped, [`OutBuffer::segment`] and [`ROut::get_output_segment`] of this buffer fail.
    ///
    /// # Errors
    /// The buffer is spliced or destroyed, or its writer is taken.
    pub fn writer(&self) -> Result<OutWriter, BufferError> {
        let bid = self.buffer.bid;
        if self.buffer.ended() {
            return Err(BufferError::Closed(bid));
        }
        let writer = lock(&self.buffer.writer).take();
        match (writer, &self.buffer.source) {
            (Some(writer), _) => Ok(OutWriter::new(writer, self.clone())),
            (None, Some(_)) => Err(BufferError::Spliced(bid)),
            (None, None) => Err(BufferError::WriterTaken(bid)),
        }
    }

    /// Sets what subscriptions may ask for from now on; existing subscriptions go on as they are. A policy that is not
    /// allowed is refused with those that are, other wishes are lowered. To be set before a receiver can know of the
    /// buffer.
    pub fn set_limits(&self, limits: SubscriptionLimits) {
        *lock(&self.buffer.terms) = limits;
    }

    /// How far the buffer is confirmed, and for which receivers. Without subscriptions everything written counts as
    /// confirmed: see [`Confirmed::subscriptions`] where somebody should be there.
    pub fn confirmed(&self) -> Confirmed {
        self.buffer.confirmed()
    }

    /// Waits until everything below `position` is confirmed at `level` by every subscriber present, at most `timeout` (`None`:
    /// no limit; zero: only looks).
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far the buffer is confirmed.
    pub fn wait(
        &self,
        level: ConfirmLevel,
        position: Position,
        timeout: Option<Duration>,
    ) -> Result<(), WaitError> {
        if is_worker() {
            return Err(WaitError::CalledFromWorker);
        }
        let (buffer, timeout) = (&self.buffer, timeout.unwrap_or(NO_LIMIT));
        if buffer.wait_until((level, position), timeout, |buffer| buffer.confirmed().at(level) >= position) {
            return Ok(());
        }
        Err(WaitError::TimedOut { confirmed: buffer.confirmed().at(level) })
    }

    /// Asks the subscribers to report as soon as `position` is confirmed at `level`, without waiting for it. The reports come
    /// by [`ROut::set_subscriber_progress_cb`]. Of several such positions the smallest and the largest are remembered; after
    /// the smallest was reported, ask for the next.
    pub fn request_confirm(&self, level: ConfirmLevel, position: Position) {
        let mut wanted = [0; 3];
        wanted[level as usize] = position;
        self.buffer.want(wanted);
    }

    /// Reports [`OutEvent::Progress`](crate::OutEvent::Progress) once, on a worker thread, when `what` holds, also if it holds
    /// already, or when the buffer has ended. For writers that must not wait, such as callbacks. Each buffer has one such
    /// request: the last call counts. An event that was under way before is reported besides.
    pub fn notify_progress(&self, what: Progress) {
        self.buffer.watch_progress(what);
    }

    /// Waits until every subscriber present has everything that was delivered and, of a destroyed buffer, has heard that this
    /// was all; at most `timeout` (`None`: no limit). Without a subscriber it returns at once.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far the buffer is confirmed.
    pub fn drain(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        if is_worker() {
            return Err(WaitError::CalledFromWorker);
        }
        let boundary = self.boundary();
        let done = |buffer: &Buffer| match buffer.ended() {
            true => buffer.everybody_heard_the_end(),
            false => buffer.min_landed() >= boundary,
        };
        let timeout = timeout.unwrap_or(NO_LIMIT);
        if self.buffer.wait_until((ConfirmLevel::Landed, boundary), timeout, done) {
            return Ok(());
        }
        Err(WaitError::TimedOut { confirmed: self.buffer.min_landed() })
    }

    /// The end of the last complete delivery.
    pub(crate) fn boundary(&self) -> Position {
        self.buffer.log().map_or(0, |log| log.ring.boundary())
    }

    /// Ends the buffer: its subscribers get what is there and then CLOSED. Returns the end of its log. The id is free again
    /// when the last subscriber has gone or taken everything; the id of a spliced buffer is free at once. A second call
    /// changes nothing.
    pub fn destroy(&self) -> Position {
        let shared = &self.out.shared;
        // Between two deliveries of `deliver`; an `OutWriter` does not ask for this lock, and looks at the end itself.
        let writer = lock(&self.buffer.writer);
        let end = self.buffer.close();
        drop(writer);
        if self.buffer.source.is_some() {
            shared.remove(&self.buffer);
        } else {
            shared.reap(&self.buffer);
        }
        end
    }
}

impl std::fmt::Debug for OutBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutBuffer").field("bid", &self.buffer.bid).finish()
    }
}
