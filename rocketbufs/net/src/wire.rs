//! The header that a stream transport puts before each range and each control message (paper 1, section 3.5):
//! 32 bits of id, 32 bits of size, little endian.
//!
//! ```text
//!   0              31 32             63
//!  ┌─┬───────────────┬────────────────┐
//!  │M│  wire id (31) │  size in bytes │   M: MORE, the transfer does not end at a delivery's end
//!  └─┴───────────────┴────────────────┘
//! ```

/// The id that marks a control message; never given to a subscription.
pub const CONTROL_WIRE: u32 = 0x7FFF_FFFF;
/// The bit of the id that says that the range does not end at a delivery's end.
pub const MORE_BIT: u32 = 0x8000_0000;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 8;

/// Bytes of a local message, between two transports on one machine: a control header with the MORE bit, whose size field is the
/// kind of the message, then an id with its MORE bit, and a size.
pub const LOCAL_BYTES: usize = 16;
/// With a descriptor: the ring from which ranges of this id come, to be mapped. The size is the number of bytes below the first
/// range that the ring keeps too.
pub const LOCAL_OFFER: u32 = 1;
/// A range in the offered ring, up to the position whose low 32 bits are the size. A repeated message has no effect.
pub const LOCAL_RANGE: u32 = 3;
/// With a descriptor: the page of a doorbell. The size is the doorbell's number on this connection from now on.
pub const LOCAL_DOORBELL_PAGE: u32 = 4;
/// With a descriptor: the pipe of the doorbell whose page the last [`LOCAL_DOORBELL_PAGE`] had.
pub const LOCAL_DOORBELL: u32 = 5;
/// The reader of this id's ring, or a reader to which it passes the ring on, follows the ring and must be woken by the doorbell
/// with this number. 0 is the sender's own doorbell: ranges need not be announced to it at once, and with MORE it need not be
/// woken either.
pub const LOCAL_WATCH: u32 = 6;
/// The reader no longer follows.
pub const LOCAL_UNWATCH: u32 = 7;

/// A message between two transports on one machine.
///
/// ```
/// use rocketnet::wire::{Header, LOCAL_RANGE, local_message};
/// let range = Header { wire: 5, more: true, size: 258 };
/// let bytes = local_message(LOCAL_RANGE, range);
/// assert_eq!(bytes, [0xFF, 0xFF, 0xFF, 0xFF, 3, 0, 0, 0, 5, 0, 0, 0x80, 2, 1, 0, 0]);
/// ```
pub fn local_message(kind: u32, range: Header) -> [u8; LOCAL_BYTES] {
    let mut bytes = [0; LOCAL_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(&Header { wire: CONTROL_WIRE, more: true, size: kind }.encode());
    bytes[HEADER_BYTES..].copy_from_slice(&range.encode());
    bytes
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The receiver's id of the subscription, or [`CONTROL_WIRE`].
    pub wire: u32,
    /// Whether the range ends inside a delivery.
    pub more: bool,
    /// Bytes that follow.
    pub size: u32,
}

impl Header {
    /// The eight bytes on the wire.
    ///
    /// ```
    /// use rocketnet::wire::Header;
    /// let header = Header { wire: 5, more: true, size: 258 };
    /// assert_eq!(header.encode(), [5, 0, 0, 0x80, 2, 1, 0, 0]);
    /// assert_eq!(Header::decode(header.encode()), header);
    /// ```
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let id = (self.wire & !MORE_BIT) | if self.more { MORE_BIT } else { 0 };
        let word = u64::from(id) | (u64::from(self.size) << 32);
        word.to_le_bytes()
    }

    /// Decodes eight bytes. Every value is a header; the connection checks whether the id is known.
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Self {
        let word = u64::from_le_bytes(bytes);
        let id = word as u32;
        Self { wire: id & !MORE_BIT, more: id & MORE_BIT != 0, size: (word >> 32) as u32 }
    }
}
