//! The bodies of the reliable mode: segments of the byte streams of keys, and acknowledgements.
//!
//! ```text
//!   segment: header.count is the number of bytes; header.first numbers the segment among all of its link, sent again or not;
//!            header.stream is the link; header.mailbox is the key's integer
//!            u64 receiver's epoch, or 0  │ u32 run of the stream │ u64 offset in the stream │ bytes │ zeros may follow
//!   ack:     header.epoch, header.stream: those of the segments; header.first: the greatest received number
//!            header.count: ranges; header.mailbox: 0, or 1 for a reset
//!            u64 receiver's epoch │ ranges, each u32 missing numbers, u32 received ones, downwards from header.first
//!            │ credits, each u32 integer of the key, u32 run, u64 offset up to which the receiver takes bytes
//! ```
//!
//! A stream holds messages, each with its length: two bytes, or `FFFF` and four bytes. A run is a stream that begins at offset 0.

use super::header::{HEADER_BYTES, Header, Kind, MAGIC, Malformed, is_zero, u32_at, u64_at};

/// Bytes between the header of a segment and its bytes.
pub const SEGMENT_BYTES: usize = 20;
/// Bytes between the header of an acknowledgement and its ranges.
pub const ACK_BYTES: usize = 8;
/// Bytes of a range.
pub const RANGE_BYTES: usize = 8;
/// Bytes of a credit.
pub const CREDIT_BYTES: usize = 16;
/// The most ranges of an acknowledgement.
pub const MAX_RANGES: usize = 32;
/// The most credits of an acknowledgement.
pub const MAX_CREDITS: usize = 16;
/// The shortest datagram with a segment of a sender that does not know the receiver's epoch: an answer is not longer.
pub const MIN_FIRST_SEGMENT: usize = HEADER_BYTES + ACK_BYTES + RANGE_BYTES + CREDIT_BYTES;
/// The length of a message that is followed by a longer length.
pub const LONG: u16 = u16::MAX;

/// A part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The epoch of the receiver, as far as the sender knows it, or 0.
    pub receiver: u64,
    /// The run of the stream.
    pub run: u32,
    /// The offset of the first byte.
    pub offset: u64,
    /// The bytes, which may be none.
    pub bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    pub(super) fn parse(count: u16, body: &'a [u8]) -> Result<Segment<'a>, Malformed> {
        let (numbers, rest) = body.split_at_checked(SEGMENT_BYTES).ok_or(Malformed::Broken)?;
        let (bytes, padding) = rest.split_at_checked(count.into()).ok_or(Malformed::Broken)?;
        let (receiver, run, offset) = (u64_at(numbers, 0), u32_at(numbers, 8), u64_at(numbers, 12));
        // No sender reaches a larger offset, and additions to this one never overflow.
        if !is_zero(padding) || offset > u64::MAX >> 1 {
            return Err(Malformed::Broken);
        }
        Ok(Segment { receiver, run, offset, bytes })
    }

    /// Appends a datagram with this segment.
    pub fn write(&self, link: (u32, u64), number: u64, mailbox: u32, out: &mut Vec<u8>) {
        let count = u16::try_from(self.bytes.len()).expect("a segment fits into a datagram");
        let (stream, epoch) = link;
        out.extend_from_slice(
            &Header { kind: Kind::Segment, count, stream, epoch, first: number, mailbox }.encode(),
        );
        out.extend_from_slice(&self.receiver.to_le_bytes());
        out.extend_from_slice(&self.run.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(self.bytes);
    }
}

/// How far the receiver takes the bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// The integer of the key.
    pub mailbox: u32,
    /// The run of the stream.
    pub run: u32,
    /// The offset behind the last byte that the receiver takes.
    pub limit: u64,
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The epoch of the receiver.
    pub receiver: u64,
    /// True if the receiver does not know the link: it was restarted, or has forgotten the link.
    pub reset: bool,
    greatest: u64,
    ranges: &'a [u8],
    credits: &'a [u8],
}

impl<'a> Ack<'a> {
    pub(super) fn parse(
        (count, flags, greatest): (u16, u32, u64),
        body: &'a [u8],
    ) -> Result<Ack<'a>, Malformed> {
        let count = usize::from(count);
        let (receiver, rest) = body.split_at_checked(ACK_BYTES).ok_or(Malformed::Broken)?;
        let (ranges, credits) = rest.split_at_checked(count * RANGE_BYTES).ok_or(Malformed::Broken)?;
        let ack = Ack { receiver: u64_at(receiver, 0), reset: flags == 1, greatest, ranges, credits };
        let covered: u64 = ranges.chunks(4).map(|number| u64::from(u32_at(number, 0))).sum();
        let good = count <= MAX_RANGES
            && flags <= 1
            && credits.len().is_multiple_of(CREDIT_BYTES)
            && credits.len() <= MAX_CREDITS * CREDIT_BYTES
            && covered <= greatest + 1;
        good.then_some(ack).ok_or(Malformed::Broken)
    }

    /// The received numbers as ranges, first and last, downwards.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut end = self.greatest + 1;
        self.ranges.chunks(RANGE_BYTES).filter_map(move |range| {
            let (missing, received) = (u64::from(u32_at(range, 0)), u64::from(u32_at(range, 4)));
            let last = end - missing;
            end = last - received;
            (received > 0).then(|| (end, last - 1))
        })
    }

    /// The credits.
    pub fn credits(&self) -> impl Iterator<Item = Credit> + use<'a> {
        let credit =
            |bytes| Credit { mailbox: u32_at(bytes, 0), run: u32_at(bytes, 4), limit: u64_at(bytes, 8) };
        self.credits.chunks(CREDIT_BYTES).map(credit)
    }

    /// An acknowledgement as a datagram. `ranges` are first and last numbers, downwards from the greatest one.
    pub fn encode(
        (link, epoch): (u32, u64),
        receiver: u64,
        reset: bool,
        ranges: &[(u64, u64)],
        credits: &[Credit],
    ) -> Vec<u8> {
        let greatest = ranges.first().map_or(0, |range| range.1);
        let header = Header {
            kind: Kind::Ack,
            count: ranges.len() as u16,
            stream: link,
            epoch,
            first: greatest,
            mailbox: u32::from(reset),
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&receiver.to_le_bytes());
        let mut end = greatest + 1;
        for &(first, last) in ranges {
            let saturated = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&saturated(end - last - 1).to_le_bytes());
            bytes.extend_from_slice(&saturated(last - first + 1).to_le_bytes());
            end = first;
        }
        for credit in credits {
            bytes.extend_from_slice(&credit.mailbox.to_le_bytes());
            bytes.extend_from_slice(&credit.run.to_le_bytes());
            bytes.extend_from_slice(&credit.limit.to_le_bytes());
        }
        bytes
    }
}

/// True for a datagram of the reliable mode.
pub(crate) fn is_reliable(datagram: &[u8]) -> bool {
    datagram.len() > 1 && datagram[0] == MAGIC && matches!(datagram[1], 0x13 | 0x14)
}
