//! Segments of output buffers, and the exclusive writer of a buffer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketring::{Claim, ClaimError, Writer, write_marks};

use crate::error::{DeliverError, SegmentError};
use crate::lock::lock;
use crate::out_buffer::OutBuffer;
use crate::state::{Buffer, is_worker};
use crate::types::{Bid, Position};
use rocketring::{MARK_HEAD_BYTES, MARK_TAIL_BYTES};

/// Bytes of the markers around a delivery of an overwritable buffer.
const MARK_BYTES: u64 = (MARK_HEAD_BYTES + MARK_TAIL_BYTES) as u64;

/// A free piece of an output buffer: the application's until it is delivered (paper 1, Listing 1 and section 3.2).
/// Several may be open; they become visible in the order in which they were taken.
#[derive(Debug)]
pub struct OutSegment {
    pub(crate) claim: Claim,
    pub(crate) bid: Bid,
    marked: bool,
}

impl OutSegment {
    /// The bytes to fill. One piece: rings are mapped twice.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.claim.bytes();
        if self.marked {
            let end = bytes.len() - MARK_TAIL_BYTES;
            return &mut bytes[MARK_HEAD_BYTES..end];
        }
        bytes
    }

    /// The buffer.
    pub fn bid(&self) -> Bid {
        self.bid
    }

    /// Position of the first byte in the log.
    pub fn position(&self) -> Position {
        self.claim.from() + if self.marked { MARK_HEAD_BYTES as u64 } else { 0 }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.claim.len() - if self.marked { MARK_BYTES as usize } else { 0 }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

    fn writer(&mut self) -> Result<&mut Writer, SegmentError> {
        self.writer.as_mut().ok_or(SegmentError::Closed)
    }

    /// One delivery made of these parts, copied. Returns where it ends.
    ///
    /// # Errors
    /// [`SegmentError::Full`] if there is no room now: nothing was written.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Position, SegmentError> {
        let appended = self.try_append(parts);
        if matches!(appended, Err(SegmentError::Full)) {
            // A full buffer asks its subscribers how far they are.
            self.buffer.notify();
        }
        appended
    }

    /// As [`OutWriter::append`], for one who waits if it is full.
    #[inline]
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
                // It may have been ended meanwhile, without this one.
                if self.buffer.has_in_log(end) { Ok(end) } else { Err(SegmentError::Closed) }
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    #[cold]
    fn refused(&self, error: ClaimError) -> SegmentError {
        if self.buffer.ended() { SegmentError::Closed } else { claim_error(error) }
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
        let mut wait = Wait::new(timeout)?;
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
        let buffer = self.buffer.clone();
        with_room(&buffer, size, timeout, |size| match self.writer()?.claim(size) {
            Ok(claim) => Ok(claim),
            Err(error) => Err(self.refused(error)),
        })
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
        deliver(&self.buffer, writer, segment, size, context)
    }

    /// Notes the time: what is delivered later is what [`Start::Ago`](crate::Start::Ago) finds. Workers do so where
    /// there are subscribers; without any, whoever writes may. Costs a look at the clock.
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

    /// End of what was written.
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

/// Waiting for room, with one deadline over several attempts.
struct Wait {
    deadline: Option<Instant>,
}

impl Wait {
    fn new(timeout: Option<Duration>) -> Result<Self, SegmentError> {
        if is_worker() {
            return Err(SegmentError::CalledFromWorker);
        }
        Ok(Self { deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)) })
    }

    fn for_room(&mut self, buffer: &Buffer, size: u64) -> Result<(), SegmentError> {
        if buffer.ended() {
            return Err(SegmentError::Closed);
        }
        let left = match self.deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            // Woken when there is room or the buffer ends; the limit only bounds one sleep.
            None => Duration::from_secs(1),
        };
        if left.is_zero() {
            return Err(SegmentError::TimedOut);
        }
        let Some(log) = buffer.log() else { return Err(SegmentError::Closed) };
        let until = log.ring.head().saturating_add(size);
        buffer.wait_for_room(&log.ring, until, left);
        Ok(())
    }
}

/// Claims `size` bytes (and room for markers), waiting for room if asked.
pub(crate) fn with_room(
    buffer: &Buffer,
    size: u64,
    timeout: Option<Duration>,
    mut claim: impl FnMut(u64) -> Result<Claim, SegmentError>,
) -> Result<OutSegment, SegmentError> {
    let marked = buffer.log().is_some_and(|log| !log.ring.flow_control());
    let whole = if marked { size.saturating_add(MARK_BYTES) } else { size };
    let wrap = |claim| OutSegment { claim, bid: buffer.bid, marked };
    if timeout == Some(Duration::ZERO) {
        let claimed = claim(whole);
        if matches!(claimed, Err(SegmentError::Full)) {
            buffer.notify();
        }
        return claimed.map(wrap);
    }
    let mut wait = Wait::new(timeout)?;
    loop {
        match claim(whole) {
            Err(SegmentError::Full) => wait.for_room(buffer, whole)?,
            other => return other.map(wrap),
        }
    }
}

pub(crate) fn claim_error(error: ClaimError) -> SegmentError {
    match error {
        ClaimError::TooLarge { size, max_delivery } => SegmentError::TooLarge { size, max: max_delivery },
        ClaimError::TooManyClaims => SegmentError::TooManyOpen,
        ClaimError::ClaimLost { .. } => SegmentError::SegmentLost,
        ClaimError::Full => SegmentError::Full,
        // `Empty`; the enum is open, and whatever is added is the caller's mistake too.
        _ => SegmentError::Empty,
    }
}

/// Makes a segment a delivery, with its markers where the buffer is overwritable.
pub(crate) fn deliver(
    buffer: &Arc<Buffer>,
    writer: &mut Writer,
    mut segment: OutSegment,
    size: u64,
    context: Option<u64>,
) -> Result<Position, DeliverError> {
    if size > segment.len() as u64 {
        return Err(DeliverError::TooLong { size, segment });
    }
    if buffer.ended() && size > 0 {
        return Err(DeliverError::Closed);
    }
    let limit = buffer.inner.config.limits.max_pending_contexts;
    if context.is_some() && buffer.contexts.count() >= limit {
        return Err(DeliverError::TooManyContexts(limit));
    }
    let (bid, marked) = (segment.bid, segment.marked);
    let whole = if marked && size > 0 { size + MARK_BYTES } else { size };
    // A tail mark of a short delivery lies over bytes of the application's, which come back if it is refused.
    let mut under = [0; MARK_TAIL_BYTES];
    let tail = (whole as usize).saturating_sub(MARK_TAIL_BYTES)..whole as usize;
    if marked && size > 0 {
        let at = segment.claim.from();
        let bytes = segment.claim.bytes();
        under.copy_from_slice(&bytes[tail.clone()]);
        write_marks(&mut bytes[..whole as usize], at);
    }
    let delivered = writer.deliver(segment.claim, whole).map_err(|error| {
        refused(error, size, |mut claim| {
            if marked && size > 0 {
                claim.bytes()[tail].copy_from_slice(&under);
            }
            OutSegment { claim, bid, marked }
        })
    })?;
    if let Some(context) = context {
        buffer.push_context(delivered.to, context);
    }
    if delivered.published {
        buffer.notify_or_send();
    }
    // It may have been ended meanwhile, without this one.
    if size > 0 && !buffer.has_in_log(delivered.to) {
        buffer.drop_context(delivered.to);
        return Err(DeliverError::Closed);
    }
    buffer.confirm_visible();
    Ok(delivered.to)
}

/// Why a segment was not delivered; it goes `back` to the application.
#[cold]
fn refused(
    error: rocketring::DeliverError,
    size: u64,
    back: impl FnOnce(Claim) -> OutSegment,
) -> DeliverError {
    match error {
        rocketring::DeliverError::ShortDeliver(claim) => DeliverError::ShortDeliver(back(claim)),
        rocketring::DeliverError::TooLong(claim) => DeliverError::TooLong { size, segment: back(claim) },
        rocketring::DeliverError::Foreign(claim) => DeliverError::Foreign(back(claim)),
        _ => DeliverError::Closed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{Config, Context, ROut};

    /// The lock of the contexts is had by somebody else: whoever delivers without one does not wait for it, whether there are
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
