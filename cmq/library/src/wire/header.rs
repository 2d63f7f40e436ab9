//! The header of a plain datagram, and what every format shares.

/// The first byte of each datagram.
pub const MAGIC: u8 = 0xC5;
/// The version of this format.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 28;

/// The kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Whole messages.
    Batch,
    /// A fragment of one message.
    Fragment,
    /// The end of a stream.
    Close,
    /// A part of a stream of the reliable mode.
    Segment,
    /// An acknowledgement of the reliable mode.
    Ack,
    /// The end of a link of the reliable mode.
    End,
}

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the datagram.
    pub kind: Kind,
    /// The messages of a batch; the bytes of a fragment; 0 for a close.
    pub count: u16,
    /// The sender's number for its destination address.
    pub stream: u32,
    /// The random name of the sender.
    pub epoch: u64,
    /// The number of the first message. For a close, the number of messages of the stream.
    pub first: u64,
    /// The mailbox of the receiver.
    pub mailbox: u32,
}

/// The name of a link of the reliable mode, which its sender gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkName {
    /// The sender's number for the link.
    pub stream: u32,
    /// The random name of the sender.
    pub epoch: u64,
}

impl Header {
    /// The link that a datagram of the reliable mode belongs to.
    #[inline]
    pub fn link(&self) -> LinkName {
        LinkName { stream: self.stream, epoch: self.epoch }
    }

    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            Kind::Batch => 0,
            Kind::Fragment => 1,
            Kind::Close => 2,
            Kind::Segment => 3,
            Kind::Ack => 4,
            Kind::End => 5,
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

/// Why a datagram was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The sender's: the datagram does not belong to CMQ.
    #[error("the datagram does not begin like one of CMQ: another program sends to this port")]
    Foreign,
    /// The sender's: it uses a newer version.
    #[error("version {0} is not known here: update the receiver")]
    Version(u8),
    /// The sender's, or this queue's: the sender encrypts, and this queue has no key.
    #[error("the datagram is encrypted: give this queue a key, or the sender none")]
    Encrypted,
    /// The sender's, or this queue's: the sender uses the reliable mode, and this queue does not.
    #[error("the datagram is one of the reliable mode: turn it on at this queue, or off at the sender")]
    Reliable,
    /// The sender's, or the network's: the datagram is truncated or contradicts itself.
    #[error("the datagram is truncated or contradicts itself")]
    Broken,
}

/// True if the rest of a datagram is padding.
pub(crate) fn is_zero(padding: &[u8]) -> bool {
    padding.iter().all(|&byte| byte == 0)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
