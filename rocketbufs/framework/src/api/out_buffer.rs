//! Handles of the buffers of an rOut, and the right to write into a buffer.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Duration;

use rocketring::{GrowError, Writer};

use crate::api::context::Context;
use crate::api::segment;
use crate::ground::limits::SubscriptionLimits;
use crate::ground::lock::lock;
use crate::ground::out_segment::OutSegment;
use crate::ground::types::{Bid, NO_LIMIT, Position, ProgressLevel};
use crate::state::error::{BufferError, DeliverError, SegmentError, WaitError};
use crate::state::{Buffer, ConfirmedPositions, Progress, ROutShared, is_worker};

/// A buffer of an [`ROut`](crate::ROut). [`ROut::create_buffer`](crate::ROut::create_buffer) and [`ROut::buffer`](crate::ROut::buffer) give one. Cloning gives another handle of the same
/// buffer; no call looks the buffer up.
///
/// Dropping a handle ends nothing: the buffer lives until [`OutBuffer::destroy`], or until the rOut is gone. A handle keeps
/// its rOut alive. After the end of the buffer, calls that would write fail with `Closed`.
///
/// ```
/// use std::time::Duration;
/// use rocketbufs::{Config, ProgressLevel, Context, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ctx = Context::new(Config::default())?;
/// let out = ROut::new(&ctx);
/// let buffer = out.create_buffer(7, 1 << 20)?;
///
/// let mut segment = buffer.segment(5, Some(Duration::ZERO))?;
/// segment.bytes_mut().copy_from_slice(b"hello");
/// let end = buffer.deliver(segment, 5, None)?;
/// buffer.wait(ProgressLevel::Consumed, end, None)?; // There are no subscribers to wait for.
/// buffer.destroy();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OutBuffer {
    pub(crate) buffer: Arc<Buffer>,
    out: Arc<ROutShared>,
    /// Keeps the workers running.
    context: Context,
}

impl OutBuffer {
    pub(crate) fn new(buffer: Arc<Buffer>, out: &Arc<ROutShared>, context: &Context) -> Self {
        Self { buffer, out: out.clone(), context: context.clone() }
    }

    /// The context of the buffer's rOut.
    pub fn context(&self) -> &Context {
        &self.context
    }

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
    /// [`ROut::set_data_out_cb`](crate::ROut::set_data_out_cb) when the delivery has landed with every subscriber. Returns the end of the delivery.
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
    /// dropped, [`OutBuffer::segment`] and [`ROut::get_output_segment`](crate::ROut::get_output_segment) of this buffer fail.
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
        *lock(&self.buffer.limits) = limits;
    }

    /// How far the buffer is confirmed, and for which receivers. Without subscriptions everything written counts as
    /// confirmed: see [`ConfirmedPositions::subscriptions`] where somebody should be there.
    pub fn confirmed(&self) -> ConfirmedPositions {
        self.buffer.confirmed()
    }

    /// Waits until everything below `position` is confirmed at `level` by every subscriber present, at most `timeout` (`None`:
    /// no limit; zero: only looks).
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far the buffer is confirmed.
    pub fn wait(
        &self,
        level: ProgressLevel,
        position: Position,
        timeout: Option<Duration>,
    ) -> Result<(), WaitError> {
        if is_worker() {
            return Err(WaitError::CalledFromWorker);
        }
        let confirmed = || self.buffer.confirmed().at(level);
        let done = || confirmed() >= position;
        self.until(level, position, timeout, done).map_err(|error| error.at(confirmed()))
    }

    /// Waits until `done` is true once: what is so a moment later, when a subscriber has come, takes nothing back.
    fn until(
        &self,
        level: ProgressLevel,
        position: Position,
        timeout: Option<Duration>,
        done: impl Fn() -> bool,
    ) -> Result<(), NotDone> {
        let was_done = Cell::new(false);
        let ends = |buffer: &Buffer| {
            was_done.set(done());
            was_done.get() || buffer.inner.is_over()
        };
        match self.buffer.wait_until(level, position, timeout.unwrap_or(NO_LIMIT), ends) {
            true if was_done.get() => Ok(()),
            true => Err(NotDone::ShutDown),
            false => Err(NotDone::TimedOut),
        }
    }

    /// Asks the subscribers to report as soon as `position` is confirmed at `level`, without waiting for it. The reports come
    /// by [`ROut::set_subscriber_progress_cb`](crate::ROut::set_subscriber_progress_cb). Of several such positions the smallest and the largest are remembered; after
    /// the smallest was reported, ask for the next.
    pub fn request_confirm(&self, level: ProgressLevel, position: Position) {
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

    /// A future for a task whose segment was refused as [`SegmentError::Full`]: ready when the buffer may have room for that
    /// segment, or has ended. The task then tries again.
    pub fn room(&self) -> Room {
        Room { buffer: self.buffer.clone(), task: None }
    }

    /// As [`OutBuffer::segment`], for a task of any runtime: the task waits for room, no thread does. Dropping the future
    /// claims nothing.
    ///
    /// ```
    /// # use rocketbufs::{Config, Context, ROut};
    /// # async fn fill(out: &ROut) -> Result<(), Box<dyn std::error::Error>> {
    /// let buffer = out.create_buffer(7, 1 << 20)?;
    /// let mut segment = buffer.segment_async(5).await?;
    /// segment.bytes_mut().copy_from_slice(b"hello");
    /// buffer.deliver(segment, 5, None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`OutBuffer::segment`], but for the time-outs.
    pub async fn segment_async(&self, size: u64) -> Result<OutSegment, SegmentError> {
        loop {
            match self.segment(size, Some(Duration::ZERO)) {
                Err(SegmentError::Full) => self.room().await,
                other => return other,
            }
        }
    }

    /// Waits until every subscriber present has everything that was delivered and, of a destroyed buffer, has heard that this
    /// was all; at most `timeout` (`None`: no limit). Without a subscriber it returns at once.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] says how far the buffer is confirmed.
    pub fn drain(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.drain_until(timeout, Buffer::min_landed, Buffer::all_received_end)
    }

    /// Waits until `landed` is the end of what was delivered and, of a destroyed buffer, `has_end`.
    pub(crate) fn drain_until(
        &self,
        timeout: Option<Duration>,
        landed: impl Fn(&Buffer) -> Position,
        has_end: impl Fn(&Buffer) -> bool,
    ) -> Result<(), WaitError> {
        if is_worker() {
            return Err(WaitError::CalledFromWorker);
        }
        let boundary = self.boundary();
        let done = || match self.buffer.ended() {
            true => has_end(&self.buffer),
            false => landed(&self.buffer) >= boundary,
        };
        let waited = self.until(ProgressLevel::Landed, boundary, timeout, done);
        waited.map_err(|error| error.at(landed(&self.buffer)))
    }

    /// The end of the last complete delivery.
    pub(crate) fn boundary(&self) -> Position {
        self.buffer.log().map_or(0, |log| log.ring.boundary())
    }

    /// Ends the buffer: its subscribers get the rest and then CLOSED. Returns the end of its log. The id is free again
    /// when the last subscriber has gone or taken everything; the id of a spliced buffer is free at once. A second call
    /// changes nothing.
    pub fn destroy(&self) -> Position {
        let shared = &self.out;
        // Between two deliveries of `deliver`; an `OutWriter` does not ask for this lock, and looks at the end itself.
        let writer = lock(&self.buffer.writer);
        let end = self.buffer.close();
        drop(writer);
        if self.buffer.source.is_some() {
            shared.remove(&self.buffer);
        } else {
            self.buffer.reap();
        }
        end
    }
}

impl std::fmt::Debug for OutBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutBuffer").field("bid", &self.buffer.bid).finish()
    }
}

/// The right to write into a buffer, which one owner has alone: no lock for each message. Taken with [`OutBuffer::writer`];
/// dropping the writer gives the right back to the buffer.
///
/// ```
/// use rocketbufs::{Config, Context, ROut};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ctx = Context::new(Config::default())?;
/// let out = ROut::new(&ctx);
/// let buffer = out.create_buffer(1, 1 << 20)?;
/// let mut writer = buffer.writer()?;
/// let end = writer.append(&[b"two parts, ", b"one delivery"])?;
/// assert_eq!(end, buffer.info().unwrap().head);
/// # Ok(())
/// # }
/// ```
pub struct OutWriter {
    writer: Option<Writer>,
    buffer: Arc<Buffer>,
    handle: OutBuffer,
}

impl OutWriter {
    pub(crate) fn new(writer: Writer, handle: OutBuffer) -> Self {
        Self { writer: Some(writer), buffer: handle.buffer.clone(), handle }
    }

    /// The buffer.
    pub fn buffer(&self) -> &OutBuffer {
        &self.handle
    }

    /// One delivery made of these parts, copied. Returns where it ends.
    ///
    /// # Errors
    /// [`SegmentError::Full`] if there is no room now: nothing was written.
    #[inline(always)]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Position, SegmentError> {
        let appended = self.try_append(parts);
        if matches!(appended, Err(SegmentError::Full)) {
            // A full buffer asks its subscribers how far they are.
            self.buffer.notify();
        }
        appended
    }

    /// As [`OutWriter::append`], for a caller that waits if the ring is full.
    #[inline(always)]
    fn try_append(&mut self, parts: &[&[u8]]) -> Result<Position, SegmentError> {
        let Some(writer) = &mut self.writer else { return Err(SegmentError::Closed) };
        if self.buffer.ended() {
            return Err(SegmentError::Closed);
        }
        if !writer.ring().flow_control() {
            return self.append_marked(parts);
        }
        match writer.append(parts) {
            Ok(end) => {
                self.buffer.notify_or_send();
                // The log may have ended meanwhile, without this delivery.
                if self.buffer.has_in_log(end) { Ok(end) } else { Err(SegmentError::Closed) }
            }
            Err(error) => Err(segment::refused_claim(&self.buffer, error)),
        }
    }

    fn append_marked(&mut self, parts: &[&[u8]]) -> Result<Position, SegmentError> {
        let size = parts.iter().map(|part| part.len() as u64).sum();
        let mut segment = self.segment(size, Some(Duration::ZERO))?;
        let mut at = 0;
        for part in parts {
            segment.bytes_mut()[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.deliver(segment, size, None).map_err(|_| SegmentError::Closed)
    }

    /// Gives the ring memory for deliveries of up to `max_delivery` bytes: twice that, rounded up to a power of two. Everything stays
    /// in the ring, and positions go on. Subscribers are told before the first larger delivery, and their rings grow
    /// ([`SubscribeOptions::max_size_bytes`](crate::SubscribeOptions::max_size_bytes)); the subscription of one that cannot ends as refused.
    ///
    /// ```
    /// use rocketbufs::{Config, Context, ROut};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let ctx = Context::new(Config::default())?;
    /// let out = ROut::new(&ctx);
    /// let mut writer = out.create_buffer(1, 64 << 10)?.writer()?;
    /// assert!(writer.append(&[&[7; 100_000]]).is_err());
    /// writer.grow(100_000)?;
    /// writer.append(&[&[7; 100_000]])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Segments are open, there is no memory, or the ring is one that cannot grow: others map it (transport `shm`), an adapter knows
    /// it (`rdma`), or it has no flow control. It needs more memory, and three quarters of that for rings (`buffers.max_ring_bytes`) would be
    /// exceeded: the rest is for rings that do not grow. The ring is as it was.
    pub fn grow(&mut self, max_delivery: u64) -> Result<(), GrowError> {
        let pool = &self.buffer.inner.pool;
        match &mut self.writer {
            Some(writer) if max_delivery > writer.ring().max_delivery() => writer.grow(pool, max_delivery),
            Some(_) => Ok(()),
            None => Err(GrowError::Fixed),
        }
    }

    /// Bytes of memory that the ring takes to grow for deliveries of `max_delivery` bytes; 0 where it has the room.
    pub fn bytes_to_grow(&self, max_delivery: u64) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.ring().bytes_to_grow(max_delivery))
    }

    /// As [`OutWriter::append`], waiting for room at most `timeout` (`None`: no limit).
    ///
    /// # Errors
    /// [`SegmentError::TimedOut`], or from a callback, which must not wait.
    pub fn append_blocking(
        &mut self,
        parts: &[&[u8]],
        timeout: Option<Duration>,
    ) -> Result<Position, SegmentError> {
        match self.try_append(parts) {
            Err(SegmentError::Full) => {}
            other => return other,
        }
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut wait = segment::Wait::new(timeout)?;
        loop {
            wait.for_room(&self.buffer, size)?;
            match self.try_append(parts) {
                Err(SegmentError::Full) => {}
                other => return other,
            }
        }
    }

    /// A segment to fill; see [`OutBuffer::segment`].
    ///
    /// # Errors
    /// As [`OutBuffer::segment`].
    pub fn segment(&mut self, size: u64, timeout: Option<Duration>) -> Result<OutSegment, SegmentError> {
        let Self { writer, buffer, .. } = self;
        segment::with_room(buffer, size, timeout, |size| {
            let writer = writer.as_mut().ok_or(SegmentError::Closed)?;
            writer.claim(size).map_err(|error| segment::refused_claim(buffer, error))
        })
    }

    /// As [`OutWriter::append`], for a task of any runtime: the task waits for room, no thread does. Dropping the future
    /// writes nothing.
    ///
    /// # Errors
    /// As [`OutWriter::append`], but for [`SegmentError::Full`].
    pub async fn append_async(&mut self, parts: &[&[u8]]) -> Result<Position, SegmentError> {
        loop {
            match self.append(parts) {
                Err(SegmentError::Full) => self.handle.room().await,
                other => return other,
            }
        }
    }

    /// As [`OutWriter::segment`], for a task; see [`OutBuffer::segment_async`].
    ///
    /// # Errors
    /// As [`OutBuffer::segment_async`].
    pub async fn segment_async(&mut self, size: u64) -> Result<OutSegment, SegmentError> {
        loop {
            match self.segment(size, Some(Duration::ZERO)) {
                Err(SegmentError::Full) => self.handle.room().await,
                other => return other,
            }
        }
    }

    /// Makes the first `size` bytes of a segment a delivery; see [`OutBuffer::deliver`].
    ///
    /// # Errors
    /// As [`OutBuffer::deliver`].
    pub fn deliver(
        &mut self,
        segment: OutSegment,
        size: u64,
        context: Option<u64>,
    ) -> Result<Position, DeliverError> {
        let Some(writer) = &mut self.writer else { return Err(DeliverError::Closed) };
        segment::deliver(&self.buffer, writer, segment, size, context)
    }

    /// See `relay`.
    pub(crate) fn leave_hole(&mut self, to: Position) -> Result<(), SegmentError> {
        let Self { writer, buffer, .. } = self;
        let writer = writer.as_mut().filter(|_| !buffer.ended()).ok_or(SegmentError::Closed)?;
        let held = writer.ring().slowest_hold().is_some_and(|held| held < writer.head());
        if held && to > writer.head() {
            // The tail moves with the hole, and would take bytes that subscribers have not got yet. They are asked how far
            // they are.
            buffer.notify();
            return Err(SegmentError::Full);
        }
        writer.skip(to).map_err(|error| segment::refused_claim(buffer, error))?;
        buffer.notify();
        Ok(())
    }

    /// Notes the time, so that [`Start::Ago`](crate::Start::Ago) finds later deliveries. Workers note the time where there
    /// are subscribers; without any, the writing thread may. Costs a look at the clock.
    pub fn note_time(&self) {
        if let Some(writer) = &self.writer {
            self.buffer.times.note(self.buffer.inner.now(), writer.ring());
        }
    }

    /// How many bytes could be appended now without asking the subscribers.
    pub fn free_bytes(&self) -> u64 {
        let Some(writer) = &self.writer else { return 0 };
        writer.ring().grant().saturating_sub(writer.head())
    }

    /// End of the written bytes.
    pub fn head(&self) -> Position {
        self.writer.as_ref().map_or(0, Writer::head)
    }
}

impl Drop for OutWriter {
    fn drop(&mut self) {
        *lock(&self.buffer.writer) = self.writer.take();
    }
}

impl std::fmt::Debug for OutWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutWriter").field("bid", &self.buffer.bid).finish()
    }
}

/// Waits for room in a buffer, without a thread; see [`OutBuffer::room`]. Dropping the future forgets its task.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Room {
    buffer: Arc<Buffer>,
    task: Option<Waker>,
}

impl Future for Room {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<()> {
        if self.buffer.may_have_room() {
            return Poll::Ready(());
        }
        let earlier = self.task.replace(task.waker().clone());
        if let Some(earlier) = earlier.filter(|earlier| !earlier.will_wake(task.waker())) {
            self.buffer.forget_task(&earlier);
        }
        self.buffer.wake_on_room(task.waker());
        Poll::Pending
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            self.buffer.forget_task(task);
        }
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("bid", &self.buffer.bid).finish()
    }
}

/// Why a wait ended without what it waited for.
#[derive(Debug, PartialEq, Eq)]
enum NotDone {
    TimedOut,
    ShutDown,
}

impl NotDone {
    /// What a caller is told, who has `confirmed`.
    fn at(self, confirmed: Position) -> WaitError {
        match self {
            Self::TimedOut => WaitError::TimedOut { confirmed },
            Self::ShutDown => WaitError::ShutDown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Config, Context, ROut};

    /// A subscriber comes at the moment at which a wait has succeeded, and the position is not confirmed any more.
    #[test]
    fn who_subscribes_after_a_confirmation_takes_nothing_back() {
        let ctx = Context::new(Config::default()).unwrap();
        let buffer = ROut::new(&ctx).create_buffer(1, 1 << 16).unwrap();
        let asked = Cell::new(0);
        let done = || asked.replace(asked.get() + 1) == 0;
        assert_eq!(buffer.until(ProgressLevel::Landed, 1, None, done), Ok(()));
        assert!(!done(), "the subscriber has nothing yet");
    }

    /// Another thread has the lock of the contexts: a delivery without a context does not wait for it, whether there are
    /// contexts or not.
    #[test]
    fn a_delivery_without_a_context_takes_no_lock() {
        let ctx = Context::new(Config::default()).unwrap();
        let out = ROut::new(&ctx);
        let mut writer = out.create_buffer(1, 1 << 16).unwrap().writer().unwrap();
        let buffer = writer.buffer.clone();
        let locked = buffer.contexts.lock();
        let (done, delivered) = mpsc::sync_channel(1);
        let delivering = std::thread::spawn(move || {
            for _ in 0..3 {
                let segment = writer.segment(8, Some(Duration::ZERO)).unwrap();
                writer.deliver(segment, 8, None).unwrap();
            }
            done.send(writer.head()).unwrap();
        });
        assert_eq!(delivered.recv_timeout(Duration::from_secs(10)), Ok(24), "it waits for the lock");
        drop(locked);
        delivering.join().unwrap();
    }
}
