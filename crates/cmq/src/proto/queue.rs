//! The messages of one key, as they will travel: datagrams of equal length, one behind the other.
//!
//! ```text
//!   whole messages, in datagrams of what the first had room for   a message that no datagram holds, in equal pieces
//!   ┌────────┬────┬─────┬────┬─────┬───┬────────┬────┬─────┬─     ┌─────────┬───────┬─────────┬───────┬─────────┬─────┬───┬─
//!   │ header │ n  │ msg │ n  │ msg │ 0 │ header │ n  │ msg │ …    │ headers │ piece │ headers │ piece │ headers │ pie │ 0 │ …
//!   └────────┴────┴─────┴────┴─────┴───┴────────┴────┴─────┴─     └─────────┴───────┴─────────┴───────┴─────────┴─────┴───┴─
//! ```

use super::batches::MAX_SEGMENTS;
use crate::config::MIN_DATAGRAM;
use crate::key::Key;
use crate::wire::{FRAGMENT_BYTES, HEADER_BYTES, Header, Kind, MAX_DATAGRAM, RECORD_BYTES, spares};

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
    /// The largest datagram to its address, once that was asked for.
    pub limit: Option<usize>,
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

/// The exclusive or of these, in the first ones.
pub(crate) fn xor(bytes: &mut [u8], others: &[u8]) {
    bytes.iter_mut().zip(others).for_each(|(byte, other)| *byte ^= other);
}

impl Queue {
    /// A queue with no message yet; `bytes` is room for a header.
    pub fn new(key: Key, bytes: Vec<u8>) -> Queue {
        let (start, count, segment, room, limit) = (0, 0, None, MIN_DATAGRAM, None);
        Queue { key, bytes, start, count, segment, room, limit, cut: false, payload: 0, messages: 0 }
    }

    /// Whether it has as many bytes or messages as leave.
    #[inline]
    pub fn is_full(&self, bytes: usize, messages: u64) -> bool {
        self.payload >= bytes || self.messages >= messages
    }

    /// Puts a message behind those that are there, if the last datagram surely has room for it; how many bytes that adds.
    #[inline]
    pub fn append(&mut self, message: &[u8]) -> Option<usize> {
        let length = u16::try_from(message.len()).ok()?;
        let end = self.bytes.len() - self.start + RECORD_BYTES + message.len();
        if end > self.room || self.count == u16::MAX {
            return None;
        }
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(message);
        self.count += 1;
        Some(self.counted(message.len()))
    }

    /// The message at `at`, behind room for its length, stays where it is if the last datagram surely has room for it; how many
    /// bytes that adds.
    #[inline]
    pub fn take(&mut self, at: usize) -> Option<usize> {
        let size = self.bytes.len() - at - RECORD_BYTES;
        let length = u16::try_from(size).ok()?;
        if self.bytes.len() - self.start > self.room || self.count == u16::MAX {
            return None;
        }
        self.bytes[at..at + RECORD_BYTES].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        Some(self.counted(size))
    }

    #[inline]
    fn counted(&mut self, size: usize) -> usize {
        self.messages += 1;
        self.payload += RECORD_BYTES + size;
        RECORD_BYTES + size
    }

    /// Takes a message that fits into a datagram of `limit` bytes: into the last one, or into another one behind that; how
    /// many bytes that adds. Nothing if the batch may not be that large.
    pub fn fit(&mut self, message: &[u8], limit: usize) -> Option<usize> {
        if self.cut {
            return None;
        }
        self.room = self.segment.unwrap_or(limit);
        self.append(message).or_else(|| {
            self.begin_another(HEADER_BYTES + RECORD_BYTES + message.len())?;
            self.append(message)
        })
    }

    /// Ends the last datagram and begins another one, if so many bytes fit into one and the batch may be that large.
    fn begin_another(&mut self, bytes: usize) -> Option<()> {
        let segment = self.segment.unwrap_or(self.bytes.len() - self.start);
        if bytes > segment || self.start / segment + 1 == at_once(segment) {
            return None;
        }
        (self.segment, self.room) = (Some(segment), segment);
        self.bytes[self.start + 2..self.start + 4].copy_from_slice(&self.count.to_le_bytes());
        self.start += segment;
        self.count = 0;
        self.bytes.resize(self.start + HEADER_BYTES, 0);
        Some(())
    }

    /// Cuts a message that no datagram of `limit` bytes holds into equal pieces behind those that are there, with spare ones
    /// behind them if that is wanted; how many bytes of messages that adds. Nothing if they do not fit there, which they do into
    /// a queue that has nothing else.
    pub fn cut(&mut self, message: &[u8], limit: usize, spare: bool) -> Option<usize> {
        let size = message.len();
        let pieces = size.div_ceil(limit - PIECE_AT);
        let spares = if spare { spares(pieces as u32) as usize } else { 0 };
        let (mut begin, mut piece) = (0, size.div_ceil(pieces));
        if self.messages > 0 {
            // As long as those that are there, unless they would be more for it.
            let segment = self.segment.filter(|_| self.cut)?;
            begin = self.bytes.len().next_multiple_of(segment);
            piece = segment - PIECE_AT;
            if size.div_ceil(piece) != pieces || begin / segment + pieces + spares > at_once(segment) {
                return None;
            }
        }
        // The header of a queue that has nothing is there, and is that of the first piece.
        self.bytes.resize(begin, 0);
        for (index, part) in message.chunks(piece).enumerate() {
            self.bytes.resize(begin + index * (PIECE_AT + piece), 0);
            self.head_piece(piece, size, index);
            self.bytes.extend_from_slice(part);
        }
        for spare in 0..spares {
            self.bytes.resize(begin + (pieces + spare) * (PIECE_AT + piece), 0);
            self.head_piece(piece, size, pieces + spare);
            let at = self.bytes.len();
            self.bytes.resize(at + piece, 0);
            message
                .chunks(piece)
                .skip(spare)
                .step_by(spares)
                .for_each(|part| xor(&mut self.bytes[at..], part));
        }
        (self.cut, self.segment, self.room) = (true, Some(PIECE_AT + piece), 0);
        Some(self.counted(size))
    }

    /// What is before a piece; the number of its message follows when it leaves.
    fn head_piece(&mut self, piece: usize, size: usize, index: usize) {
        let count = u16::try_from(piece).expect("a datagram is shorter than that");
        let (stream, epoch, first) = (0, 0, 0);
        let header = Header { kind: Kind::Fragment, count, stream, epoch, first, mailbox: self.key.id };
        let number = |number| u32::try_from(number).expect("messages are at most 1 GiB").to_le_bytes();
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(&number(size));
        self.bytes.extend_from_slice(&number(index));
    }
}
