//! The header form, version 1.
//!
//! ```text
//!  0      2    3      4       6        8        12         16        24        28       32
//! ┌──────┬────┬──────┬───────┬────────┬────────┬──────────┬─────────┬─────────┬────────┬─────────┐
//! │ "MQ" │ 1  │ kind │ topic │ status │ cookie │ sequence │ offset  │ length  │ epoch  │ body    │
//! │      │ u8 │ u8   │ u16   │ u16    │ u32    │ u32      │ u64     │ u32     │ u32    │         │
//! └──────┴────┴──────┴───────┴────────┴────────┴──────────┴─────────┴─────────┴────────┴─────────┘
//!   push  1   cookie names the sender, sequence counts its pushes: a gap is a loss. The body is the message
//!   pull  2   cookie and sequence are returned in the reply. offset and length are the range. The body is padding
//!   reply 3   status says what is at offset: with `data` the body is the bytes, else `length` is how much is missing
//!   batch 4   from one level to the next: the body belongs at offset. Without a body the log goes on at offset, after a hole
//! ```
//!
//! Fields that a kind does not use are sent as zero and ignored.

use super::numbers::{MAX_PAYLOAD_BYTES, u16_at, u32_at, u64_at};
use crate::log::{MAX_OFFSET, Offset};
use crate::topic::{Epoch, TopicId};

/// The first two bytes of each datagram.
pub const MAGIC: [u8; 2] = *b"MQ";
/// The version of this format.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;

const _: () = assert!(MAX_PAYLOAD_BYTES - HEADER_BYTES <= u32::MAX as usize, "a length fits its field");

/// The kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message to be stored.
    Push = 1,
    /// A request for a range.
    Pull = 2,
    /// The answer to a pull.
    Reply = 3,
    /// Bytes from one level for the next, with their place.
    Batch = 4,
}

/// The status of the byte at a reply's offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// The byte is the first one of the body, which has at least one byte and at most as many as were asked for.
    Data = 0,
    /// The byte was not written yet. The length is 0, and the offset is the end of the log instead of the asked one.
    End = 1,
    /// The byte is in a hole. The length is that of the rest of the hole, or `u32::MAX` if that is longer.
    Hole = 2,
    /// No level keeps the byte any more. The length is the distance to the oldest kept byte, or `u32::MAX` if that is longer.
    Gone = 3,
    /// The server has no such topic. The length is 0.
    UnknownTopic = 4,
    /// The log has another epoch, which the header has. The length is 0.
    OtherEpoch = 5,
}

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the datagram.
    pub kind: Kind,
    /// The topic.
    pub topic: TopicId,
    /// The status of a reply. [`Status::Data`] in all other kinds.
    pub status: Status,
    /// The name of the sender. A reply has that of its request.
    pub cookie: u32,
    /// The number of the datagram among those of its sender. A reply has that of its request.
    pub sequence: u32,
    /// The place in the log. 0 in a push; in a reply that of its pull, or the end of the log ([`Status::End`]).
    pub offset: Offset,
    /// The bytes of a body, the bytes that a pull asks for, or the bytes that are missing.
    pub length: u32,
    /// The incarnation of the log, or [`Epoch::ANY`].
    pub epoch: Epoch,
}

/// Why a datagram was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The sender's: the datagram does not have this form.
    #[error("the datagram does not begin with \"MQ\"; another program sends to this port")]
    Foreign,
    /// The sender's: the datagram has a newer version.
    #[error(
        "the datagram has format version {0}, and this receiver knows version {VERSION} only; update the receiver"
    )]
    Version(u8),
    /// The sender's, or the network's: the datagram is cut short or contradicts itself.
    #[error("the datagram is truncated, or its fields contradict each other")]
    Broken,
}

/// A checked datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The header.
    pub header: Header,
    /// The message of a push, the bytes of a reply or a batch; empty for a pull.
    pub body: &'a [u8],
}

impl Header {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2] = VERSION;
        bytes[3] = self.kind as u8;
        bytes[4..6].copy_from_slice(&self.topic.0.to_le_bytes());
        bytes[6..8].copy_from_slice(&(self.status as u16).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.cookie.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_le_bytes());
        bytes[28..].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes
    }

    /// The header of a reply to this pull, which says that there are no bytes at its offset.
    pub fn reply(&self, status: Status, length: u64, epoch: Epoch) -> Header {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        Header { kind: Kind::Reply, status, length, epoch, ..*self }
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Malformed> {
        if bytes[..2] != MAGIC {
            return Err(Malformed::Foreign);
        }
        if bytes[2] != VERSION {
            return Err(Malformed::Version(bytes[2]));
        }
        let kind = match bytes[3] {
            1 => Kind::Push,
            2 => Kind::Pull,
            3 => Kind::Reply,
            4 => Kind::Batch,
            _ => return Err(Malformed::Broken),
        };
        let status = match (kind, u16_at(bytes, 6)) {
            (Kind::Reply, 1) => Status::End,
            (Kind::Reply, 2) => Status::Hole,
            (Kind::Reply, 3) => Status::Gone,
            (Kind::Reply, 4) => Status::UnknownTopic,
            (Kind::Reply, 5) => Status::OtherEpoch,
            (Kind::Reply, 6..) => return Err(Malformed::Broken),
            _ => Status::Data,
        };
        let offset = if kind == Kind::Push { 0 } else { u64_at(bytes, 16) };
        if offset > MAX_OFFSET {
            return Err(Malformed::Broken);
        }
        Ok(Header {
            kind,
            topic: TopicId(u16_at(bytes, 4)),
            status,
            cookie: u32_at(bytes, 8),
            sequence: u32_at(bytes, 12),
            offset,
            length: u32_at(bytes, 24),
            epoch: Epoch(u32_at(bytes, 28)),
        })
    }
}

impl<'a> Datagram<'a> {
    /// Checks a received datagram.
    ///
    /// # Errors
    /// The datagram does not follow the format.
    pub fn parse(payload: &'a [u8]) -> Result<Datagram<'a>, Malformed> {
        let bytes: &[u8; HEADER_BYTES] = payload.first_chunk().ok_or(match payload {
            [b'M', b'Q', ..] => Malformed::Broken,
            _ => Malformed::Foreign,
        })?;
        let header = Header::decode(bytes)?;
        let rest = &payload[HEADER_BYTES..];
        let length_is_body = header.length as usize == rest.len();
        let good = match (header.kind, header.status) {
            (Kind::Push, _) | (Kind::Reply, Status::Data) => length_is_body && header.length > 0,
            (Kind::Batch, _) => length_is_body,
            (Kind::Reply, Status::Hole | Status::Gone) => rest.is_empty() && header.length > 0,
            (Kind::Reply, _) => rest.is_empty() && header.length == 0,
            (Kind::Pull, _) => true,
        };
        match good {
            true => Ok(Datagram { header, body: if header.kind == Kind::Pull { &[] } else { rest } }),
            false => Err(Malformed::Broken),
        }
    }
}

/// The header of a reply with `length` bytes to a pull.
pub fn encode_reply_data(pull: &Header, length: u32, epoch: Epoch) -> [u8; HEADER_BYTES] {
    pull.reply(Status::Data, length.into(), epoch).encode()
}
