//! The format of a datagram between queues with keys: version 2, beside the plain one. `docs/CMQ.md` describes it byte for byte.
//!
//! ```text
//!  0        1          2         4           8           16
//! ┌────────┬──────────┬─────────┬───────────┬───────────┬──────────────────────────────────────────────────┐
//! │ 0xC5   │ 2 │ kind │ 0       │ index     │ number    │ body                                             │
//! │ u8     │ 4+4 bits │ u16     │ u32       │ u64       │                                                  │
//! └────────┴──────────┴─────────┴───────────┴───────────┴──────────────────────────────────────────────────┘
//!   data:     a sealed plain datagram, or nothing, and a tag of 16 bytes; `index` names the receiver's session, `number` is the
//!             nonce, and the header is authenticated with the body
//!   hello:    the first message of Noise_IKpsk2_25519_AESGCM_SHA256 (96 bytes), a check sum (16), a cookie or zeros (16);
//!             `index` is the initiator's choice
//!   welcome:  the second message of Noise (52 bytes), whose payload is the responder's index; `index` is the initiator's
//!   cookie:   the check sum of the hello (16 bytes), the cookie to repeat it with (16); `index` is the initiator's
//!   reset:    nothing; `index` and `number` are those of a datagram for no known session
//!   required: nothing; the answer to a plain datagram
//! ```
//!
//! Numbers are little endian. No answer is longer than the datagram that it answers.

use super::header::{self, MAGIC, Malformed};

/// The version of this format.
pub const VERSION: u8 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the tag behind sealed bytes.
pub const TAG_BYTES: usize = 16;
/// Bytes of the first message of the handshake.
pub const NOISE_HELLO_BYTES: usize = 96;
/// Bytes of the second message of the handshake.
pub const NOISE_WELCOME_BYTES: usize = 52;
/// Bytes of a check sum and of a cookie.
pub const MAC_BYTES: usize = 16;
/// Bytes of a hello.
pub const HELLO_BYTES: usize = HEADER_BYTES + NOISE_HELLO_BYTES + 2 * MAC_BYTES;
/// Bytes of a welcome.
pub const WELCOME_BYTES: usize = HEADER_BYTES + NOISE_WELCOME_BYTES;
/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = HEADER_BYTES + 2 * MAC_BYTES;

// An answer is never longer than the datagram that it answers.
const _: () = assert!(WELCOME_BYTES <= HELLO_BYTES && COOKIE_BYTES <= HELLO_BYTES);
const _: () = assert!(HEADER_BYTES <= HEADER_BYTES + TAG_BYTES && HEADER_BYTES <= header::HEADER_BYTES);

/// The kind of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A sealed plain datagram.
    Data,
    /// The begin of a handshake.
    Hello,
    /// The answer to a hello.
    Welcome,
    /// The demand to repeat a hello with this cookie.
    Cookie,
    /// The session of a datagram is not known.
    Reset,
    /// Plain datagrams are refused here.
    Required,
}

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the datagram.
    pub kind: Kind,
    /// The session at the receiver; for a hello the session at the sender.
    pub index: u32,
    /// The number of a data datagram in its session; 0 for a handshake.
    pub number: u64,
}

impl Header {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Hello => 1,
            Kind::Welcome => 2,
            Kind::Cookie => 3,
            Kind::Reset => 4,
            Kind::Required => 5,
        };
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = MAGIC;
        bytes[1] = VERSION << 4 | kind;
        bytes[4..8].copy_from_slice(&self.index.to_le_bytes());
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// The header of a received datagram, whose length fits its kind.
    ///
    /// # Errors
    /// The datagram does not follow the format.
    pub fn parse(bytes: &[u8]) -> Result<Header, Malformed> {
        if bytes.first() != Some(&MAGIC) {
            return Err(Malformed::Foreign);
        }
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Malformed::Broken)?;
        if header[1] >> 4 != VERSION {
            return Err(Malformed::Version(header[1] >> 4));
        }
        let (kind, fits) = match (header[1] & 15, bytes.len()) {
            (0, length) => (Kind::Data, length >= HEADER_BYTES + TAG_BYTES),
            (1, length) => (Kind::Hello, length == HELLO_BYTES),
            (2, length) => (Kind::Welcome, length == WELCOME_BYTES),
            (3, length) => (Kind::Cookie, length == COOKIE_BYTES),
            (4, length) => (Kind::Reset, length == HEADER_BYTES),
            (5, length) => (Kind::Required, length == HEADER_BYTES),
            _ => return Err(Malformed::Broken),
        };
        if !fits || header[2..4] != [0, 0] {
            return Err(Malformed::Broken);
        }
        Ok(Header { kind, index: header::u32_at(header, 4), number: header::u64_at(header, 8) })
    }
}
