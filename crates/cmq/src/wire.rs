//! What travels: one header for each datagram, then messages. `docs/CMQ.md` shows the same byte for byte.
//!
//! ```text
//!  0        1          2         4           8           16          24          28
//! ┌────────┬──────────┬─────────┬───────────┬───────────┬───────────┬───────────┬──────────────────────────┐
//! │ 0xC5   │ 1 │ kind │ count   │ stream    │ epoch     │ first     │ mailbox   │ body                     │
//! │ u8     │ 4+4 bits │ u16     │ u32       │ u64       │ u64       │ u32       │                          │
//! └────────┴──────────┴─────────┴───────────┴───────────┴───────────┴───────────┴──────────────────────────┘
//!   batch:    count messages, each u16 length and bytes; zeros may follow, so that datagrams of one batch are equally
//!             long and the kernel can cut them (UDP_SEGMENT)
//!   fragment: count is the length of every piece but the last; u32 length of the message, u32 number of the piece, the
//!             piece; zeros may follow here too. Behind the last piece spare ones may be numbered: so many as
//!             [`spares`] says, number `pieces + n` being the exclusive or of the pieces n, n + spares, n + 2 spares, …,
//!             the last one filled up with zeros
//!   close:    nothing; `first` is how many messages the stream had
//! ```
//!
//! Numbers are little endian. Messages are numbered from 0 for each stream: what one sender (named by its random epoch)
//! sends to one address. A batch holds the messages `first..first + count`, all pieces of a message carry its number.

/// The first byte of every datagram.
pub const MAGIC: u8 = 0xC5;
/// The version of this format.
pub const VERSION: u8 = 1;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 28;
/// Bytes before each message of a batch.
pub const RECORD_BYTES: usize = 2;
/// Bytes between the header of a fragment and its piece.
pub const FRAGMENT_BYTES: usize = 8;
/// Headers of IPv6 and UDP, which nobody sees here and the network carries.
pub const IP_BYTES: usize = 48;
/// The largest body of a UDP datagram over IPv4.
pub const MAX_DATAGRAM: usize = 65_507;
/// The shortest piece of a fragmented message, except for its last: bounds what a receiver keeps for each piece.
pub const MIN_PIECE: usize = 256;

/// Pieces of a message that share a spare one, at most.
pub const SPARE_FOR: u32 = 16;

/// How many spare pieces a message of so many pieces may have.
pub const fn spares(pieces: u32) -> u32 {
    pieces.div_ceil(SPARE_FOR)
}

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole messages.
    Batch,
    /// A piece of one message.
    Fragment,
    /// The end of a stream.
    Close,
}

/// What every datagram begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Messages of a batch, bytes of a fragment's pieces, 0 for a close.
    pub count: u16,
    /// The sender's number for the address it sends to.
    pub stream: u32,
    /// The random name of the sender.
    pub epoch: u64,
    /// The number of the first message, or of all messages for a close.
    pub first: u64,
    /// The mailbox at the receiver.
    pub mailbox: u32,
}

impl Header {
    /// The bytes of it.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            Kind::Batch => 0,
            Kind::Fragment => 1,
            Kind::Close => 2,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = MAGIC;
        bytes[1] = VERSION << 4 | kind;
        bytes[2..4].copy_from_slice(&self.count.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.stream.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.mailbox.to_le_bytes());
        bytes
    }
}

/// Why a datagram was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Something else was sent to this port.
    #[error("it does not begin like a datagram of CMQ: something else sends to this port")]
    Foreign,
    /// A newer sender.
    #[error("version {0} is not known here: update the receiver")]
    Version(u8),
    /// It ends too early, or says something that cannot be.
    #[error("it is cut short or contradicts itself")]
    Broken,
}

/// A datagram that was checked: reading it cannot fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its header.
    pub header: Header,
    /// Its body.
    pub body: Body<'a>,
}

/// What follows the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body<'a> {
    /// The messages of a batch.
    Batch(Messages<'a>),
    /// A piece of a message.
    Fragment(Piece<'a>),
    /// Nothing.
    Close,
}

/// A piece of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Bytes of the whole message.
    pub total: u32,
    /// Which piece it is, from 0; from `pieces` on it is spare.
    pub index: u32,
    /// How many there are, without spare ones.
    pub pieces: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Checks a datagram as it arrived.
    ///
    /// # Errors
    /// Whatever is not exactly the format.
    pub fn parse(bytes: &'a [u8]) -> Result<Datagram<'a>, Malformed> {
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
        let (kind, body) = match header[1] & 15 {
            0 => (Kind::Batch, Body::Batch(Messages::parse(count, body)?)),
            1 => (Kind::Fragment, Body::Fragment(Piece::parse(count, body)?)),
            2 if count == 0 && body.is_empty() => (Kind::Close, Body::Close),
            _ => return Err(Malformed::Broken),
        };
        let (stream, mailbox) = (u32_at(header, 4), u32_at(header, 24));
        let (epoch, first) = (u64_at(header, 8), u64_at(header, 16));
        // A number past this is never reached, and additions to it never overflow.
        if first > u64::MAX >> 1 {
            return Err(Malformed::Broken);
        }
        Ok(Datagram { header: Header { kind, count, stream, epoch, first, mailbox }, body })
    }
}

impl<'a> Piece<'a> {
    fn parse(piece: u16, body: &'a [u8]) -> Result<Piece<'a>, Malformed> {
        let numbers: &[u8; FRAGMENT_BYTES] = body.first_chunk().ok_or(Malformed::Broken)?;
        let (total, index) = (u32_at(numbers, 0), u32_at(numbers, 4));
        let (bytes, size) = (&body[FRAGMENT_BYTES..], u32::from(piece));
        // A message of a single piece is no fragment.
        if usize::from(piece) < MIN_PIECE || total <= size {
            return Err(Malformed::Broken);
        }
        let pieces = total.div_ceil(size);
        let length = match index {
            _ if index < pieces => size.min(total - index * size),
            _ if index - pieces < spares(pieces) => size,
            _ => return Err(Malformed::Broken),
        };
        match bytes.split_at_checked(length as usize) {
            Some((bytes, padding)) if is_zero(padding) => Ok(Piece { total, index, pieces, bytes }),
            _ => Err(Malformed::Broken),
        }
    }
}

/// Messages that lie one behind the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages<'a> {
    count: usize,
    bytes: &'a [u8],
    /// The bytes are one message, without its length.
    whole: bool,
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
        Ok(Messages { count: usize::from(count), bytes: &body[..at], whole: false })
    }

    /// One message that was put together again.
    pub fn whole(bytes: &'a [u8]) -> Messages<'a> {
        Messages { count: 1, bytes, whole: true }
    }

    /// The messages of [`Messages::as_bytes`] of a batch.
    pub(crate) fn checked(count: usize, bytes: &'a [u8], whole: bool) -> Messages<'a> {
        Messages { count, bytes, whole }
    }

    /// How many.
    #[allow(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The bytes they lie in.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the bytes are one message, without its length.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (whole, mut rest) = (self.whole, self.bytes);
        (0..self.count).map(move |_| {
            if whole {
                return rest;
            }
            let (length, after) = rest.split_at(RECORD_BYTES);
            let (message, after) = after.split_at(usize::from(u16_at(length, 0)));
            rest = after;
            message
        })
    }
}

/// How many messages end in a datagram that this end made.
pub(crate) fn ends(datagram: &[u8]) -> u64 {
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

/// Whether a datagram that this end made has a spare piece.
pub(crate) fn is_spare(datagram: &[u8]) -> bool {
    let (total, index) = (u32_at(datagram, HEADER_BYTES), u32_at(datagram, HEADER_BYTES + 4));
    index >= total.div_ceil(u16_at(datagram, 2).into())
}

/// Whether this is what fills a datagram up.
fn is_zero(padding: &[u8]) -> bool {
    padding.iter().all(|&byte| byte == 0)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
