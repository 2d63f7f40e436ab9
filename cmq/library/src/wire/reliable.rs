//! The bodies of the reliable mode: segments of the byte streams of keys, acknowledgements, and ends of links.
//!
//! ```text
//!   segment: header.count is the number of bytes; header.first numbers the segment among all of its link, sent again or not;
//!            header.stream is the link; header.mailbox is the key's integer
//!            u64 receiver's epoch, or 0  │ u32 run of the stream │ u64 offset in the stream │ bytes │ zeros may follow
//!   ack:     header.epoch, header.stream: those of the segments; header.first: the greatest number that arrived
//!            header.count: ranges that were taken, and 256 times the ranges that were refused; header.mailbox: 0, or 1 for a reset
//!            u64 receiver's epoch │ taken ranges, each u32 other numbers, u32 numbers of the range, downwards from header.first
//!            │ refused ranges, the same way
//!            │ credits, each u32 integer of the key, u32 run, u64 offset up to which the receiver takes bytes
//!   end:     header.stream is the link, header.first the number of its segments
//!            u64 receiver's epoch
//! ```
//!
//! A refused segment has arrived, and the receiver has no room for it: it comes again, and says nothing of the network.
//!
//! A stream holds messages, each with its length: two bytes, or `FFFF` and four bytes. A run is a stream that begins at offset 0.

use super::header::{HEADER_BYTES, Header, Kind, LinkName, MAGIC, Malformed, is_zero, u32_at, u64_at};

/// Bytes between the header of a segment and its bytes.
pub const SEGMENT_BYTES: usize = 20;
/// Bytes between the header of an acknowledgement and its ranges.
pub const ACK_BYTES: usize = 8;
/// Bytes of a range.
pub const RANGE_BYTES: usize = 8;
/// Bytes of a credit.
pub const CREDIT_BYTES: usize = 16;
/// The most ranges of an acknowledgement that were taken, and the most that were refused.
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
    pub fn write(&self, link: LinkName, number: u64, mailbox: u32, out: &mut Vec<u8>) {
        let count = u16::try_from(self.bytes.len()).expect("a segment fits into a datagram");
        let LinkName { stream, epoch } = link;
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

/// The segments that an acknowledgement names: first and last numbers of ranges, downwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrived<'a> {
    /// Segments that the receiver took.
    pub taken: &'a [(u64, u64)],
    /// Segments that arrived, and that the receiver has no room for.
    pub refused: &'a [(u64, u64)],
}

impl Arrived<'_> {
    /// The greatest number.
    fn greatest(&self) -> u64 {
        let last = |ranges: &[(u64, u64)]| ranges.first().map_or(0, |range| range.1);
        last(self.taken).max(last(self.refused))
    }
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The epoch of the receiver.
    pub receiver: u64,
    /// True if the receiver does not know the link: it was restarted, or has forgotten the link.
    pub reset: bool,
    /// The greatest number that arrived.
    pub greatest: u64,
    ranges: &'a [u8],
    refused: &'a [u8],
    credits: &'a [u8],
}

impl<'a> Ack<'a> {
    pub(super) fn parse(count: u16, flags: u32, greatest: u64, body: &'a [u8]) -> Result<Ack<'a>, Malformed> {
        let [taken, refused] = count.to_le_bytes().map(usize::from);
        let (receiver, rest) = body.split_at_checked(ACK_BYTES).ok_or(Malformed::Broken)?;
        let (ranges, rest) = rest.split_at_checked(taken * RANGE_BYTES).ok_or(Malformed::Broken)?;
        let (refusals, credits) = rest.split_at_checked(refused * RANGE_BYTES).ok_or(Malformed::Broken)?;
        let receiver = u64_at(receiver, 0);
        let ack = Ack { receiver, reset: flags == 1, greatest, ranges, refused: refusals, credits };
        let covered =
            |ranges: &[u8]| ranges.chunks(4).map(|number| u64::from(u32_at(number, 0))).sum::<u64>();
        let good = taken.max(refused) <= MAX_RANGES
            && flags <= 1
            && credits.len().is_multiple_of(CREDIT_BYTES)
            && credits.len() <= MAX_CREDITS * CREDIT_BYTES
            && covered(ranges).max(covered(refusals)) <= greatest + 1;
        good.then_some(ack).ok_or(Malformed::Broken)
    }

    /// The numbers that were taken as ranges, first and last, downwards.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + Clone + use<'a> {
        self.list(self.ranges)
    }

    /// The numbers that were refused, the same way.
    pub fn refused(&self) -> impl Iterator<Item = (u64, u64)> + Clone + use<'a> {
        self.list(self.refused)
    }

    fn list(&self, ranges: &'a [u8]) -> impl Iterator<Item = (u64, u64)> + Clone + use<'a> {
        let mut end = self.greatest + 1;
        ranges.chunks(RANGE_BYTES).filter_map(move |range| {
            let (others, numbers) = (u64::from(u32_at(range, 0)), u64::from(u32_at(range, 4)));
            let last = end - others;
            end = last - numbers;
            (numbers > 0).then(|| (end, last - 1))
        })
    }

    /// The credits.
    pub fn credits(&self) -> impl Iterator<Item = Credit> + use<'a> {
        let credit =
            |bytes| Credit { mailbox: u32_at(bytes, 0), run: u32_at(bytes, 4), limit: u64_at(bytes, 8) };
        self.credits.chunks(CREDIT_BYTES).map(credit)
    }

    /// An acknowledgement as a datagram.
    pub fn encode(
        link: LinkName,
        receiver: u64,
        reset: bool,
        arrived: Arrived<'_>,
        credits: &[Credit],
    ) -> Vec<u8> {
        let greatest = arrived.greatest();
        let header = Header {
            kind: Kind::Ack,
            count: u16::from_le_bytes([arrived.taken.len() as u8, arrived.refused.len() as u8]),
            stream: link.stream,
            epoch: link.epoch,
            first: greatest,
            mailbox: u32::from(reset),
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&receiver.to_le_bytes());
        for ranges in [arrived.taken, arrived.refused] {
            let mut end = greatest + 1;
            for &(first, last) in ranges {
                let saturated = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
                bytes.extend_from_slice(&saturated(end - last - 1).to_le_bytes());
                bytes.extend_from_slice(&saturated(last - first + 1).to_le_bytes());
                end = first;
            }
        }
        for credit in credits {
            bytes.extend_from_slice(&credit.mailbox.to_le_bytes());
            bytes.extend_from_slice(&credit.run.to_le_bytes());
            bytes.extend_from_slice(&credit.limit.to_le_bytes());
        }
        bytes
    }
}

/// The end of a link: a sender sends nothing more for it, and everything was confirmed or given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The epoch of the receiver.
    pub receiver: u64,
}

impl End {
    pub(super) fn parse(count: u16, body: &[u8]) -> Result<End, Malformed> {
        let receiver: &[u8; 8] = body.try_into().map_err(|_| Malformed::Broken)?;
        let end = End { receiver: u64::from_le_bytes(*receiver) };
        (count == 0).then_some(end).ok_or(Malformed::Broken)
    }

    /// Appends a datagram with the end of a link that had this many segments.
    pub fn write(&self, link: LinkName, segments: u64, out: &mut Vec<u8>) {
        let LinkName { stream, epoch } = link;
        let header = Header { kind: Kind::End, count: 0, stream, epoch, first: segments, mailbox: 0 };
        out.extend_from_slice(&header.encode());
        out.extend_from_slice(&self.receiver.to_le_bytes());
    }
}

/// True for a datagram of the reliable mode.
pub(crate) fn is_reliable(datagram: &[u8]) -> bool {
    datagram.len() > 1 && datagram[0] == MAGIC && matches!(datagram[1], 0x13..=0x15)
}
