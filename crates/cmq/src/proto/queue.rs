//! The messages of one key, as they will travel: datagrams of equal length, one behind the other.
//!
//! ```text
//!   whole messages, in datagrams of what the first had room for   a message that no datagram holds, in equal pieces
//!   ┌────────┬────┬─────┬────┬─────┬───┬────────┬────┬─────┬─     ┌─────────┬───────┬─────────┬───────┬─────────┬─────┬───┬─
//!   │ header │ n  │ msg │ n  │ msg │ 0 │ header │ n  │ msg │ …    │ headers │ piece │ headers │ piece │ headers │ pie │ 0 │ …
//!   └────────┴────┴─────┴────┴─────┴───┴────────┴────┴─────┴─     └─────────┴───────┴─────────┴───────┴─────────┴─────┴───┴─
//! ```

use super::batches::MAX_SEGMENTS;
use crate::key::Key;
use crate::wire::{FRAGMENT_BYTES, HEADER_BYTES, Header, Kind, MAX_DATAGRAM, RECORD_BYTES};

/// Where a piece begins in its datagram.
const PIECE_AT: usize = HEADER_BYTES + FRAGMENT_BYTES;

/// The messages of one key.
pub(crate) struct Queue {
    pub key: Key,
    pub bytes: Vec<u8>,
    /// Where the header of the last datagram begins.
    pub start: usize,
    /// Messages in the last datagram.
    pub count: u16,
    /// Length of every datagram but the last, once there is a second one.
    pub segment: Option<usize>,
    /// How long the last datagram may become, as far as it is known: every path carries the first value.
    pub room: usize,
    /// It has pieces of messages, and nothing else.
    pub cut: bool,
    /// Messages and their lengths, in bytes.
    pub payload: usize,
    pub messages: u64,
}

/// Datagrams that one call hands to the kernel, if they are so long.
pub(crate) fn at_once(segment: usize) -> usize {
    (MAX_DATAGRAM / segment).clamp(1, MAX_SEGMENTS)
}

impl Queue {
    /// Whether it has as many bytes or messages as leave.
    #[inline]
    pub fn is_full(&self, bytes: usize, messages: u64) -> bool {
        self.payload >= bytes || self.messages >= messages
    }

    /// The message at `at` stays where it is; how many bytes that adds.
    #[inline]
    pub fn take(&mut self, at: usize, size: usize) -> usize {
        let length = u16::try_from(size).expect("a datagram is shorter than that");
        self.bytes[at..at + RECORD_BYTES].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        self.counted(size)
    }

    #[inline]
    fn counted(&mut self, size: usize) -> usize {
        self.messages += 1;
        self.payload += RECORD_BYTES + size;
        RECORD_BYTES + size
    }

    /// Takes the message at `at`, which fits into a datagram of `limit` bytes: into the last one, or into another one behind
    /// that; how many bytes that adds. Nothing if the batch may not be that large.
    pub fn fit(&mut self, at: usize, limit: usize) -> Option<usize> {
        if self.cut {
            return None;
        }
        let size = self.bytes.len() - at - RECORD_BYTES;
        self.room = self.segment.unwrap_or(limit);
        if self.bytes.len() - self.start <= self.room && self.count < u16::MAX {
            return Some(self.take(at, size));
        }
        let at = self.begin_another(at)?;
        Some(self.take(at, size))
    }

    /// Ends the last datagram before the record at `at` and begins another one with that, if it fits into one and the batch
    /// may be that large; where the record is then.
    fn begin_another(&mut self, at: usize) -> Option<usize> {
        let record = self.bytes.len() - at;
        let segment = self.segment.unwrap_or(at - self.start);
        if HEADER_BYTES + record > segment || self.start / segment + 1 == at_once(segment) {
            return None;
        }
        (self.segment, self.room) = (Some(segment), segment);
        self.bytes[self.start + 2..self.start + 4].copy_from_slice(&self.count.to_le_bytes());
        self.start += segment;
        self.count = 0;
        let to = self.start + HEADER_BYTES;
        self.bytes.resize(to + record, 0);
        self.bytes.copy_within(at..at + record, to);
        self.bytes[at..to].fill(0);
        Some(to)
    }

    /// Cuts the message at `at`, which no datagram of `limit` bytes holds, into equal pieces behind those that are there;
    /// how many bytes that adds. Nothing if they do not fit there, which they do into a queue that has nothing else.
    pub fn cut(&mut self, at: usize, limit: usize) -> Option<usize> {
        let (from, size) = (at + RECORD_BYTES, self.bytes.len() - at - RECORD_BYTES);
        let pieces = size.div_ceil(limit - PIECE_AT);
        let (mut begin, mut piece) = (0, size.div_ceil(pieces));
        if self.messages > 0 {
            // As long as those that are there, unless they would be more for it.
            let segment = self.segment.filter(|_| self.cut)?;
            begin = at.next_multiple_of(segment);
            piece = segment - PIECE_AT;
            if size.div_ceil(piece) != pieces || begin / segment + pieces > at_once(segment) {
                return None;
            }
        }
        let segment = PIECE_AT + piece;
        let last = size - (pieces - 1) * piece;
        self.bytes.resize(begin + (pieces - 1) * segment + PIECE_AT + last, 0);
        // Each moves back, so the last one is first.
        for index in (0..pieces).rev() {
            let (part, to) = (from + index * piece, begin + index * segment + PIECE_AT);
            self.bytes.copy_within(part..part + piece.min(size - index * piece), to);
            self.head_piece(to - PIECE_AT, piece, size, index);
        }
        if begin > at {
            self.bytes[at..begin].fill(0);
        }
        (self.cut, self.segment, self.room) = (true, Some(segment), 0);
        Some(self.counted(size))
    }

    /// What is before a piece; the number of its message follows when it leaves.
    fn head_piece(&mut self, at: usize, piece: usize, size: usize, index: usize) {
        let count = u16::try_from(piece).expect("a datagram is shorter than that");
        let (stream, epoch, first) = (0, 0, 0);
        let header = Header { kind: Kind::Fragment, count, stream, epoch, first, mailbox: self.key.id };
        let number = |number| u32::try_from(number).expect("messages are at most 1 GiB").to_le_bytes();
        let (total, index_at) = (at + HEADER_BYTES, at + HEADER_BYTES + 4);
        self.bytes[at..total].copy_from_slice(&header.encode());
        self.bytes[total..index_at].copy_from_slice(&number(size));
        self.bytes[index_at..at + PIECE_AT].copy_from_slice(&number(index));
    }
}
