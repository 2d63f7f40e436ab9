//! The format of a datagram: a header, then messages. `docs/CMQ.md` describes it byte for byte.
//!
//! ```text
//!  0        1          2         4           8           16          24          28
//! ┌────────┬──────────┬─────────┬───────────┬───────────┬───────────┬───────────┬──────────────────────────┐
//! │ 0xC5   │ 1 │ kind │ count   │ stream    │ epoch     │ first     │ mailbox   │ body                     │
//! │ u8     │ 4+4 bits │ u16     │ u32       │ u64       │ u64       │ u32       │                          │
//! └────────┴──────────┴─────────┴───────────┴───────────┴───────────┴───────────┴──────────────────────────┘
//!   batch:    count messages, each u16 length and bytes. Zeros may follow, so that the datagrams of one batch have the
//!             same length and the kernel can cut them (UDP_SEGMENT).
//!   fragment: count is the length of each fragment but the last. The body is u32 length of the message, u32 index of the
//!             fragment, and the bytes of the fragment; zeros may follow. The last fragment may be followed by
//!             `parity_count` parity fragments: index `fragments + n` is the exclusive or of the fragments n,
//!             n + parity_count, n + 2 * parity_count, …, with the last fragment padded with zeros
//!   segment, ack, end: the reliable mode, see [`reliable`]
//!   close:    nothing; `first` is the number of messages of the stream
//! ```
//!
//! Numbers are little endian. A stream is what one sender, named by its random epoch, sends to one address.
//! Its messages are numbered from 0. A batch holds the messages `first..first + count`. Each fragment carries
//! the number of its message. [`secured`] is the format between queues with keys.

mod header;
pub mod reliable;
pub mod secured;

pub use header::{HEADER_BYTES, Header, Kind, LinkName, MAGIC, Malformed, VERSION};
use header::{is_zero, u16_at, u32_at, u64_at};

/// Bytes of the length before each message of a batch.
pub const RECORD_BYTES: usize = 2;
/// Bytes between the header of a fragment and its body.
pub const FRAGMENT_BYTES: usize = 8;
/// Bytes of the headers of IPv6 and UDP, which the network carries too.
pub const IP_BYTES: usize = 48;
/// The largest body of a UDP datagram over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;
/// The shortest fragment of a message, except the last: it bounds the memory for the bookkeeping of
/// fragments.
pub const MIN_FRAGMENT: usize = 256;

/// The most fragments that share a parity fragment.
pub const PARITY_GROUP: u32 = 16;

/// The number of parity fragments of a message with this many fragments.
pub const fn parity_count(count: u32) -> u32 {
    count.div_ceil(PARITY_GROUP)
}

/// A checked datagram: reading it cannot fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The header.
    pub header: Header,
    /// The body.
    pub body: Body<'a>,
}

/// The body of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// The messages of a batch.
    Batch(Messages<'a>),
    /// A fragment of a message.
    Fragment(Fragment<'a>),
    /// Nothing.
    Close,
    /// A part of a stream of the reliable mode.
    Segment(reliable::Segment<'a>),
    /// An acknowledgement of the reliable mode.
    Ack(reliable::Ack<'a>),
    /// The end of a link of the reliable mode.
    End(reliable::End),
}

/// A fragment of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// Bytes of the whole message.
    pub total: u32,
    /// The index of the fragment, from 0. Parity fragments have the indices from `count` on.
    pub index: u32,
    /// The number of fragments, without parity fragments.
    pub count: u32,
    /// The bytes of the fragment.
    pub bytes: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Checks a received datagram.
    ///
    /// # Errors
    /// The datagram does not follow the format.
    pub fn parse(bytes: &'a [u8]) -> Result<Datagram<'a>, Malformed> {
        if bytes.len() > 1 && bytes[0] == MAGIC && bytes[1] >> 4 == secured::VERSION {
            return Err(Malformed::Encrypted);
        }
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(match bytes.first() {
            Some(&MAGIC) => Malformed::Broken,
            _ => Malformed::Foreign,
        })?;
        if header[0] != MAGIC {
            return Err(Malformed::Foreign);
        }
        if header[1] >> 4 != VERSION {
            return Err(Malformed::Version(header[1] >> 4));
        }
        let body = &bytes[HEADER_BYTES..];
        let count = u16_at(header, 2);
        let (stream, mailbox) = (u32_at(header, 4), u32_at(header, 24));
        let (epoch, first) = (u64_at(header, 8), u64_at(header, 16));
        // No sender reaches a larger number, and additions to this one never overflow.
        if first > u64::MAX >> 1 {
            return Err(Malformed::Broken);
        }
        let (kind, body) = match header[1] & 15 {
            0 => (Kind::Batch, Body::Batch(Messages::parse(count, body)?)),
            1 => (Kind::Fragment, Body::Fragment(Fragment::parse(count, body)?)),
            2 if count == 0 && body.is_empty() => (Kind::Close, Body::Close),
            3 => (Kind::Segment, Body::Segment(reliable::Segment::parse(count, body)?)),
            4 => (Kind::Ack, Body::Ack(reliable::Ack::parse(count, mailbox, first, body)?)),
            5 => (Kind::End, Body::End(reliable::End::parse(count, body)?)),
            _ => return Err(Malformed::Broken),
        };
        Ok(Datagram { header: Header { kind, count, stream, epoch, first, mailbox }, body })
    }
}

impl<'a> Fragment<'a> {
    fn parse(size: u16, body: &'a [u8]) -> Result<Fragment<'a>, Malformed> {
        let numbers: &[u8; FRAGMENT_BYTES] = body.first_chunk().ok_or(Malformed::Broken)?;
        let (total, index) = (u32_at(numbers, 0), u32_at(numbers, 4));
        let (bytes, size) = (&body[FRAGMENT_BYTES..], u32::from(size));
        // A message of one fragment is sent in a batch.
        if (size as usize) < MIN_FRAGMENT || total <= size {
            return Err(Malformed::Broken);
        }
        let count = total.div_ceil(size);
        let length = match index {
            _ if index < count => size.min(total - index * size),
            _ if index - count < parity_count(count) => size,
            _ => return Err(Malformed::Broken),
        };
        match bytes.split_at_checked(length as usize) {
            Some((bytes, padding)) if is_zero(padding) => Ok(Fragment { total, index, count, bytes }),
            _ => Err(Malformed::Broken),
        }
    }
}

/// Consecutive messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages<'a> {
    count: usize,
    bytes: &'a [u8],
    /// True if the bytes are one reassembled message, without a length.
    reassembled: bool,
}

impl<'a> Messages<'a> {
    /// Checks the body of a batch.
    fn parse(count: u16, body: &'a [u8]) -> Result<Messages<'a>, Malformed> {
        let mut at = 0;
        for _ in 0..count {
            let length = body.get(at..at + RECORD_BYTES).ok_or(Malformed::Broken)?;
            at += RECORD_BYTES + usize::from(u16_at(length, 0));
        }
        if count == 0 || at > body.len() || !is_zero(&body[at..]) {
            return Err(Malformed::Broken);
        }
        Ok(Messages { count: usize::from(count), bytes: &body[..at], reassembled: false })
    }

    /// A single reassembled message.
    pub fn reassembled(bytes: &'a [u8]) -> Messages<'a> {
        Messages { count: 1, bytes, reassembled: true }
    }

    /// The messages of a batch from [`Messages::as_bytes`].
    pub(crate) fn from_parts(count: usize, bytes: &'a [u8], reassembled: bool) -> Messages<'a> {
        Messages { count, bytes, reassembled }
    }

    /// The number of messages.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The bytes that hold the messages.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// True if the bytes are one message, without its length.
    pub(crate) fn is_reassembled(&self) -> bool {
        self.reassembled
    }

    /// Iterates over the messages.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (reassembled, mut rest) = (self.reassembled, self.bytes);
        (0..self.count).map(move |_| {
            if reassembled {
                return rest;
            }
            let (length, after) = rest.split_at(RECORD_BYTES);
            let (message, after) = after.split_at(usize::from(u16_at(length, 0)));
            rest = after;
            message
        })
    }
}

/// The number of messages that end in a datagram of this queue.
pub(crate) fn messages_ending_in(datagram: &[u8]) -> u64 {
    let count = u16_at(datagram, 2);
    match datagram[1] & 15 {
        0 => count.into(),
        1 => {
            let (total, index) = (u32_at(datagram, HEADER_BYTES), u32_at(datagram, HEADER_BYTES + 4));
            u64::from(index + 1 == total.div_ceil(count.into()))
        }
        _ => 0,
    }
}

/// True if a datagram of this queue is a parity fragment.
pub(crate) fn is_parity(datagram: &[u8]) -> bool {
    let (total, index) = (u32_at(datagram, HEADER_BYTES), u32_at(datagram, HEADER_BYTES + 4));
    index >= total.div_ceil(u16_at(datagram, 2).into())
}
