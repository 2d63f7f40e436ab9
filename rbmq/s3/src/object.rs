//! The form of an object: a header that says whose bytes it has, and the bytes. This module does no I/O.
//!
//! ```text
//!   "RBMQ-S3" 1 │ checksum of the rest of the header │ epoch │ writer │ term │ position │ begin │ length │ checksum of the bytes ║ bytes
//!   "RBMQ-S3" 2 │ the same, and at its end the length of the note, which the checksum of the bytes is for too ║ note ║ bytes
//! ```
//!
//! An object without a note has the first form, which earlier versions read.
//!
//! An object begins where the one before ends, and its name is that position. Where the log has a hole, its bytes begin later. So two
//! writers with the same end want the same name, whatever comes next.

use std::ops::Range;

use rocketbufs::fields::Reader;
use rocketbufs::{Epoch, Position};

/// What every object of the first form begins with.
const MAGIC: [u8; 8] = *b"RBMQ-S3\x01";

/// What every object with a note begins with.
const MAGIC_WITH_NOTE: [u8; 8] = *b"RBMQ-S3\x02";

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = MAGIC.len() + 4 + 16 + 16 + 8 + 8 + 8 + 8 + 4;

/// Bytes of the length of a note.
const NOTE_LENGTH_BYTES: usize = 4;

/// What an object says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The name of the log.
    pub(crate) epoch: Epoch,
    /// Who wrote it: a random number of its process.
    pub(crate) writer: u128,
    /// The term of its writer.
    pub(crate) term: u64,
    /// The end of the object before: the name of this one.
    pub(crate) position: Position,
    /// Where its bytes begin. Between is a hole.
    pub(crate) begin: Position,
}

/// An object that was read.
pub(crate) struct Object {
    pub(crate) header: Header,
    /// With its header.
    whole: Vec<u8>,
    /// Where its note and its bytes begin.
    note_at: usize,
    bytes_at: usize,
}

/// Why bytes are no object of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    #[error("it is no object of this form")]
    Foreign,
    #[error("it belongs to another log or position")]
    Misplaced,
    #[error("it has other bytes than were written, or lacks some")]
    Damaged,
}

/// Bytes of an object besides its bytes.
pub(crate) fn encoded_bytes(note: &[u8]) -> usize {
    HEADER_BYTES + if note.is_empty() { 0 } else { NOTE_LENGTH_BYTES + note.len() }
}

/// Writes an object.
pub(crate) fn encode(header: &Header, note: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(HEADER_BYTES + NOTE_LENGTH_BYTES + note.len() + bytes.len());
    object.extend_from_slice(if note.is_empty() { &MAGIC } else { &MAGIC_WITH_NOTE });
    object.extend_from_slice(&[0; 4]);
    object.extend_from_slice(&header.epoch.0.to_le_bytes());
    object.extend_from_slice(&header.writer.to_le_bytes());
    for number in [header.term, header.position, header.begin, bytes.len() as u64] {
        object.extend_from_slice(&number.to_le_bytes());
    }
    object.extend_from_slice(&crc32c::crc32c_append(crc32c::crc32c(note), bytes).to_le_bytes());
    if !note.is_empty() {
        object.extend_from_slice(&u32::try_from(note.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    let sum = crc32c::crc32c(&object[MAGIC.len() + 4..]);
    object[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&sum.to_le_bytes());
    object.extend_from_slice(note);
    object.extend_from_slice(bytes);
    object
}

/// Reads the object of a log at a position.
///
/// # Errors
/// It is another one, or not what was written.
pub(crate) fn decode(whole: Vec<u8>, epoch: Epoch, position: Position) -> Result<Object, Damage> {
    let has_note = whole.starts_with(&MAGIC_WITH_NOTE);
    if !has_note && !whole.starts_with(&MAGIC) {
        return Err(Damage::Foreign);
    }
    let note_at = HEADER_BYTES + if has_note { NOTE_LENGTH_BYTES } else { 0 };
    let (head, rest) = whole.split_at_checked(note_at).ok_or(Damage::Foreign)?;
    let mut r = Reader::new(&head[MAGIC.len()..]);
    let mut fields = || {
        let sum = r.u32().ok()?;
        let (epoch, writer) = (Epoch(r.u128().ok()?), r.u128().ok()?);
        let (term, position, begin) = (r.u64().ok()?, r.u64().ok()?, r.u64().ok()?);
        let (len, rest_sum) = (r.u64().ok()?, r.u32().ok()?);
        let note_len = if has_note { r.u32().ok()? } else { 0 };
        Some((sum, Header { epoch, writer, term, position, begin }, len, rest_sum, note_len))
    };
    let (sum, header, len, rest_sum, note_len) = fields().ok_or(Damage::Damaged)?;
    let is_whole = sum == crc32c::crc32c(&head[MAGIC.len() + 4..])
        && len.checked_add(note_len.into()) == Some(rest.len() as u64)
        && rest_sum == crc32c::crc32c(rest)
        && header.begin >= header.position
        && header.begin.checked_add(len).is_some();
    if !is_whole {
        return Err(Damage::Damaged);
    }
    if header.epoch != epoch || header.position != position {
        return Err(Damage::Misplaced);
    }
    Ok(Object { header, whole, note_at, bytes_at: note_at + note_len as usize })
}

impl Object {
    /// The positions from the end of the object before to the end of its bytes.
    pub(crate) fn range(&self) -> Range<Position> {
        self.header.position..self.header.begin + self.bytes().len() as u64
    }

    /// Its note; empty if it has none.
    pub(crate) fn note(&self) -> &[u8] {
        &self.whole[self.note_at..self.bytes_at]
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.whole[self.bytes_at..]
    }

    /// The memory that it takes.
    pub(crate) fn size(&self) -> usize {
        self.whole.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_comes_back_and_a_damaged_one_is_told() {
        for note in [&b""[..], b"a note"] {
            comes_back(note);
        }
    }

    fn comes_back(note: &[u8]) {
        let header = Header { epoch: Epoch(7), writer: 9, term: 3, position: 100, begin: 120 };
        let encode = |header: &Header, bytes: &[u8]| encode(header, note, bytes);
        let whole = encode(&header, b"bytes");
        let object = decode(whole.clone(), Epoch(7), 100).unwrap();
        assert_eq!((object.header, object.bytes(), object.range()), (header, &b"bytes"[..], 100..125));
        assert_eq!((object.note(), whole[7]), (note, if note.is_empty() { 1 } else { 2 }));
        let read = |whole: Vec<u8>, epoch, position| decode(whole, Epoch(epoch), position).err();
        assert_eq!(read(whole.clone(), 8, 100), Some(Damage::Misplaced));
        assert_eq!(read(whole.clone(), 7, 120), Some(Damage::Misplaced));
        assert_eq!(read(b"a readme of somebody else".repeat(9), 7, 100), Some(Damage::Foreign));
        for at in 0..whole.len() {
            assert!(read(whole[..at].to_vec(), 7, 100).is_some(), "cut at {at}");
            let mut flipped = whole.clone();
            flipped[at] ^= 16;
            assert!(read(flipped, 7, 100).is_some(), "flipped at {at}");
        }
        assert!(read([&whole[..], b"x"].concat(), 7, 100).is_some());
        let wrong = Header { begin: 99, ..header };
        assert_eq!(read(encode(&wrong, b"bytes"), 7, 100), Some(Damage::Damaged));
        let wrong = Header { begin: u64::MAX, ..header };
        assert_eq!(read(encode(&wrong, b"bytes"), 7, 100), Some(Damage::Damaged));
    }
}
