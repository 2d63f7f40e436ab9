//! The batch of one key, laid out as it is sent: datagrams of equal length, one behind the other.
//!
//! ```text
//!   whole messages, in datagrams as long as the first one         a message larger than a datagram, in equal fragments
//!   ┌────────┬────┬─────┬────┬─────┬───┬────────┬────┬─────┬─     ┌─────────┬───────┬─────────┬───────┬─────────┬─────┬───┬─
//!   │ header │ n  │ msg │ n  │ msg │ 0 │ header │ n  │ msg │ …    │ headers │ part  │ headers │ part  │ headers │ par │ 0 │ …
//!   └────────┴────┴─────┴────┴─────┴───┴────────┴────┴─────┴─     └─────────┴───────┴─────────┴───────┴─────────┴─────┴───┴─
//! ```

use crate::config::MIN_DATAGRAM;
use crate::key::Key;
use crate::proto::outgoing::{Frame, segments_per_call};
use crate::wire::{FRAGMENT_BYTES, HEADER_BYTES, Header, Kind, RECORD_BYTES, parity_count};

/// Where the body of a fragment begins in a plain datagram.
const FRAGMENT_BODY_AT: usize = HEADER_BYTES + FRAGMENT_BYTES;

/// The batch of one key, while it is filled.
pub(crate) struct OpenBatch {
    pub key: Key,
    pub frame: Frame,
    pub bytes: Vec<u8>,
    /// Where the last datagram begins.
    pub last_start: usize,
    /// Messages in the last datagram.
    pub last_messages: u16,
    /// The length of every datagram but the last, once there is a second one.
    pub segment: Option<usize>,
    /// How long the last datagram may become, without the tail of its frame. The initial value fits every path.
    pub len_limit: usize,
    /// The largest datagram on the path, once it is known.
    pub path_limit: Option<usize>,
    /// The batch has fragments, and no whole message.
    pub fragmented: bool,
    /// Bytes of the messages and their length fields.
    pub payload: usize,
    pub messages: u64,
}

/// Combines `others` into `bytes` by exclusive or.
pub(crate) fn xor_into(bytes: &mut [u8], others: &[u8]) {
    bytes.iter_mut().zip(others).for_each(|(byte, other)| *byte ^= other);
}

impl OpenBatch {
    /// An empty batch in this memory.
    pub fn new(key: Key, frame: Frame, mut bytes: Vec<u8>) -> OpenBatch {
        bytes.resize(frame.head + HEADER_BYTES, 0);
        let (last_start, last_messages, segment, path_limit) = (0, 0, None, None);
        let len_limit = MIN_DATAGRAM - frame.tail;
        OpenBatch {
            key,
            frame,
            bytes,
            last_start,
            last_messages,
            segment,
            len_limit,
            path_limit,
            fragmented: false,
            payload: 0,
            messages: 0,
        }
    }

    /// True if the batch has reached one of these limits.
    #[inline]
    pub fn is_full(&self, bytes: usize, messages: u64) -> bool {
        self.payload >= bytes || self.messages >= messages
    }

    /// Appends a message if it surely fits into the last datagram. Returns the bytes added.
    #[inline]
    pub fn append(&mut self, message: &[u8]) -> Option<usize> {
        let length = u16::try_from(message.len()).ok()?;
        let end = self.bytes.len() - self.last_start + RECORD_BYTES + message.len();
        if end > self.len_limit || self.last_messages == u16::MAX {
            return None;
        }
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(message);
        self.last_messages += 1;
        Some(self.count(message.len()))
    }

    /// Commits the message that was encoded at `at`, after room for its length, if it surely fits into the
    /// last datagram. Returns the bytes added.
    #[inline]
    pub fn commit(&mut self, at: usize) -> Option<usize> {
        let size = self.bytes.len() - at - RECORD_BYTES;
        let length = u16::try_from(size).ok()?;
        if self.bytes.len() - self.last_start > self.len_limit || self.last_messages == u16::MAX {
            return None;
        }
        self.bytes[at..at + RECORD_BYTES].copy_from_slice(&length.to_le_bytes());
        self.last_messages += 1;
        Some(self.count(size))
    }

    #[inline]
    fn count(&mut self, size: usize) -> usize {
        self.messages += 1;
        self.payload += RECORD_BYTES + size;
        RECORD_BYTES + size
    }

    /// Appends a message that fits into a datagram of `limit` bytes: to the last datagram, or to a new one.
    /// Returns the bytes added, or `None` if the batch has no room.
    pub fn append_within(&mut self, message: &[u8], limit: usize) -> Option<usize> {
        if self.fragmented {
            return None;
        }
        self.len_limit = self.segment.unwrap_or(limit) - self.frame.tail;
        self.append(message).or_else(|| {
            self.begin_datagram(self.frame.bytes() + HEADER_BYTES + RECORD_BYTES + message.len())?;
            self.append(message)
        })
    }

    /// Begins another datagram, if this many bytes fit into it and the batch has room.
    fn begin_datagram(&mut self, bytes: usize) -> Option<()> {
        let Frame { head, tail } = self.frame;
        let segment = self.segment.unwrap_or(self.bytes.len() - self.last_start + tail);
        if bytes > segment || self.last_start / segment + 1 == segments_per_call(segment) {
            return None;
        }
        (self.segment, self.len_limit) = (Some(segment), segment - tail);
        self.write_count();
        self.last_start += segment;
        self.last_messages = 0;
        self.bytes.resize(self.last_start + head + HEADER_BYTES, 0);
        Some(())
    }

    /// Writes the number of messages into the header of the last datagram.
    fn write_count(&mut self) {
        let at = self.last_start + self.frame.head + 2;
        self.bytes[at..at + 2].copy_from_slice(&self.last_messages.to_le_bytes());
    }

    /// Completes the last datagram.
    pub fn finish(&mut self) {
        if !self.fragmented {
            self.write_count();
        }
        self.bytes.resize(self.bytes.len() + self.frame.tail, 0);
    }

    /// Appends a message that is larger than a datagram of `limit` bytes, as equal fragments with their
    /// parity fragments if wanted. Returns the bytes added, or `None` if they do not fit. They always fit
    /// into an empty batch.
    pub fn append_fragments(&mut self, message: &[u8], limit: usize, parity: bool) -> Option<usize> {
        let size = message.len();
        let Frame { head, tail } = self.frame;
        let body_at = head + FRAGMENT_BODY_AT;
        let fragments = size.div_ceil(limit - body_at - tail);
        let parities = if parity { parity_count(fragments as u32) as usize } else { 0 };
        let (mut begin, mut fragment_len) = (0, size.div_ceil(fragments));
        if self.messages > 0 {
            // Use the fragment length of the batch, unless the message then needs more fragments.
            let segment = self.segment.filter(|_| self.fragmented)?;
            begin = self.bytes.len().next_multiple_of(segment);
            fragment_len = segment - body_at - tail;
            if size.div_ceil(fragment_len) != fragments
                || begin / segment + fragments + parities > segments_per_call(segment)
            {
                return None;
            }
        }
        // An empty batch already has the header of the first fragment.
        self.bytes.resize(begin, 0);
        for (index, part) in message.chunks(fragment_len).enumerate() {
            self.bytes.resize(begin + index * (body_at + fragment_len + tail), 0);
            self.write_fragment_header(fragment_len, size, index);
            self.bytes.extend_from_slice(part);
        }
        for parity in 0..parities {
            self.bytes.resize(begin + (fragments + parity) * (body_at + fragment_len + tail), 0);
            self.write_fragment_header(fragment_len, size, fragments + parity);
            let at = self.bytes.len();
            self.bytes.resize(at + fragment_len, 0);
            message
                .chunks(fragment_len)
                .skip(parity)
                .step_by(parities)
                .for_each(|part| xor_into(&mut self.bytes[at..], part));
        }
        (self.fragmented, self.segment, self.len_limit) = (true, Some(body_at + fragment_len + tail), 0);
        Some(self.count(size))
    }

    /// Writes the headers of a fragment. The message number is filled in when the batch is sealed.
    fn write_fragment_header(&mut self, fragment_len: usize, size: usize, index: usize) {
        let count = u16::try_from(fragment_len).expect("a datagram is shorter than 64 KiB");
        let (stream, epoch, first) = (0, 0, 0);
        let header = Header { kind: Kind::Fragment, count, stream, epoch, first, mailbox: self.key.id };
        let number = |number| u32::try_from(number).expect("messages are at most 1 GiB").to_le_bytes();
        self.bytes.resize(self.bytes.len() + self.frame.head, 0);
        self.bytes.extend_from_slice(&header.encode());
        self.bytes.extend_from_slice(&number(size));
        self.bytes.extend_from_slice(&number(index));
    }
}
