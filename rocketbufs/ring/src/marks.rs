//! Consistency marks: they prove that a delivery in an overwritable ring is whole.
//!
//! ```text
//!   ┌── head, 16 bytes ──────┬───────────┬── tail, 16 bytes ─────────────────────┐
//!   │ u64 position │ u64 size│  payload  │ u64 position │ u32 crc32c │ u32 zero  │   little endian
//!   └────────────────────────┴───────────┴───────────────────────────────────────┘
//! ```
//!
//! `position` is where the head lies in the log, `size` the payload's length; the checksum covers head and
//! payload. A writer that laps a reader changes the position in at least one of the marks. A delivery that is torn in
//! another way fails the checksum.
//!
//! ```text
//!   a ring that                                     a delivery can be torn by              checked
//!   a transport fills from the network              a sender that is lapped while it sends  marks, checksum
//!   another process maps, and so fills              the same, before it came here           marks, checksum
//!   another process maps, and its application       the writer, who says so first           marks, horizon
//!   writes in place
//! ```
//!
//! In the last one no byte was moved since its writer made it, so the checksum would only compare memory with itself: reading all of
//! it was most of what a reader that serves nobody costs.

use crate::Position;
use crate::view::{Lapped, View};

/// Bytes before the payload.
pub const MARK_HEAD_BYTES: usize = 16;
/// Bytes after the payload.
pub const MARK_TAIL_BYTES: usize = 16;
const MARKS_BYTES: usize = MARK_HEAD_BYTES + MARK_TAIL_BYTES;
/// How much of a payload is checked at a time: a reader that is lapped meanwhile stops there.
const PIECE_BYTES: usize = 64 << 10;

/// The range of a verified delivery's payload within its view, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// Where it begins.
    pub offset: usize,
    /// Its length.
    pub len: usize,
    /// Length of the delivery with its marks; the next delivery begins there.
    pub total: usize,
}

/// Why a delivery was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The view ends before the delivery does: wait for more, unless the view ended at a boundary, in which
    /// case the delivery is damaged.
    #[error("the delivery needs {need} bytes, there are {have}")]
    Short {
        /// Bytes of the delivery, as far as they are known.
        need: u64,
        /// Bytes of the view.
        have: u64,
    },
    /// A mark does not belong to a delivery at this position: the delivery was overwritten, or its writer is at fault.
    #[error("no whole delivery at position {at}: its marks disagree")]
    Torn {
        /// Where the view begins.
        at: Position,
    },
    /// The marks are right, but the content is not the written content.
    #[error("the delivery at position {at} has another checksum than its writer gave it")]
    Checksum {
        /// Where the view begins.
        at: Position,
    },
    /// The delivery was being overwritten while it was read.
    #[error(transparent)]
    Lapped(#[from] Lapped),
}

/// Fills in the marks of a delivery that will lie at `at`. `buf` is the whole delivery, its payload is in place
/// between [`MARK_HEAD_BYTES`] and the last [`MARK_TAIL_BYTES`].
///
/// # Panics
/// If `buf` is too short for both marks.
pub fn write_marks(buf: &mut [u8], at: Position) {
    let payload = buf.len().checked_sub(MARKS_BYTES).expect("a delivery with marks is at least 32 bytes");
    buf[..8].copy_from_slice(&at.to_le_bytes());
    buf[8..16].copy_from_slice(&(payload as u64).to_le_bytes());
    let (content, tail) = buf.split_at_mut(MARK_HEAD_BYTES + payload);
    tail[..8].copy_from_slice(&at.to_le_bytes());
    tail[8..12].copy_from_slice(&crc32c::crc32c(content).to_le_bytes());
    tail[12..].fill(0);
}

/// Checks the delivery at the view's start, which may be any bytes, and returns the range of its payload. The view
/// may be longer than the delivery. The payload must still be copied out with [`View::copy_to`], which checks once more.
///
/// # Errors
/// [`MarkError`]; nothing of the delivery may be used then.
pub fn verify(view: &View) -> Result<Payload, MarkError> {
    let (at, have) = (view.from(), view.len() as u64);
    if have < MARKS_BYTES as u64 {
        return Err(MarkError::Short { need: MARKS_BYTES as u64, have });
    }
    let mut head = [0; MARK_HEAD_BYTES];
    view.copy_to(0, &mut head)?;
    let (position, size) = (u64_at(&head, 0), u64_at(&head, 8));
    if position != at {
        return Err(MarkError::Torn { at });
    }
    let need = size.checked_add(MARKS_BYTES as u64).ok_or(MarkError::Torn { at })?;
    if need > have {
        return Err(MarkError::Short { need, have });
    }
    let payload = Payload { offset: MARK_HEAD_BYTES, len: size as usize, total: need as usize };
    let mut tail = [0; MARK_TAIL_BYTES];
    view.copy_to(MARK_HEAD_BYTES + payload.len, &mut tail)?;
    // The checksum and the zero behind it, as one number.
    let (position, checksum) = (u64_at(&tail, 0), u64_at(&tail, 8));
    if position != at || checksum > u64::from(u32::MAX) {
        return Err(MarkError::Torn { at });
    }
    if view.ring().shared().origin().is_written_in_place_by_peer() {
        // After both marks were read. Later readers look at the horizon too.
        view.copy_to(0, &mut [])?;
    } else if u64::from(checksum_of(view, &head, &payload)?) != checksum {
        return Err(MarkError::Checksum { at });
    }
    Ok(payload)
}

fn checksum_of(view: &View, head: &[u8], payload: &Payload) -> Result<u32, Lapped> {
    let mut checksum = crc32c::crc32c(head);
    for from in (0..payload.len).step_by(PIECE_BYTES) {
        checksum = view.checksum(checksum, payload.offset + from, PIECE_BYTES.min(payload.len - from))?;
    }
    Ok(checksum)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
