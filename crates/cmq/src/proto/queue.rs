//! The messages of one key, as they will travel: datagrams of equal length, one behind the other.

use super::batches::MAX_SEGMENTS;
use crate::key::Key;
use crate::wire::{HEADER_BYTES, MAX_DATAGRAM, RECORD_BYTES};

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
    /// Messages and their lengths, in bytes.
    pub payload: usize,
    pub messages: u64,
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
        self.messages += 1;
        self.payload += RECORD_BYTES + size;
        RECORD_BYTES + size
    }

    pub fn append(&mut self, message: &[u8]) -> usize {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_BYTES]);
        self.bytes.extend_from_slice(message);
        self.take(at, message.len())
    }

    /// Ends the last datagram and begins another one, if a record of this size fits into it and the batch may be that
    /// large.
    pub fn begins_another(&mut self, record: usize) -> bool {
        let segment = self.segment.unwrap_or(self.bytes.len() - self.start);
        let datagrams = self.start / segment + 1;
        if HEADER_BYTES + record > segment
            || datagrams == MAX_SEGMENTS
            || self.start + 2 * segment > MAX_DATAGRAM
        {
            return false;
        }
        (self.segment, self.room) = (Some(segment), segment);
        self.bytes[self.start + 2..self.start + 4].copy_from_slice(&self.count.to_le_bytes());
        self.start += segment;
        self.count = 0;
        self.bytes.resize(self.start + HEADER_BYTES, 0);
        true
    }
}
