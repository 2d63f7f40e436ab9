//! Claiming and delivering segments of output buffers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rocketring::{Claim, ClaimError, MARK_TAIL_BYTES, Writer, write_marks};

use crate::ground::out_segment::{MARK_BYTES, OutSegment};
use crate::ground::types::Position;
use crate::state::error::{DeliverError, SegmentError};
use crate::state::{Buffer, is_worker};

/// Waiting for room, with one deadline over several attempts.
pub(crate) struct Wait {
    deadline: Option<Instant>,
}

impl Wait {
    pub(crate) fn new(timeout: Option<Duration>) -> Result<Self, SegmentError> {
        if is_worker() {
            return Err(SegmentError::CalledFromWorker);
        }
        Ok(Self { deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)) })
    }

    pub(crate) fn for_room(&mut self, buffer: &Buffer, size: u64) -> Result<(), SegmentError> {
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

/// Why a buffer's own writer claims nothing: a lost segment or a full ring no longer matters once the buffer has ended.
#[cold]
pub(crate) fn refused_claim(buffer: &Buffer, error: ClaimError) -> SegmentError {
    if buffer.ended() { SegmentError::Closed } else { claim_error(error) }
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
    // The log may have ended meanwhile, without this delivery.
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
