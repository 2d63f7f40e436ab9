//! From bytes to packets.

use super::error::{DecodeError, Version};
use super::packet::{Packet, decode_body};
use super::read::Reader;

/// A whole packet, its content not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind of the packet and its flags.
    pub first: u8,
    /// What follows the fixed header.
    pub body: &'a [u8],
    /// The bytes of the packet with its fixed header.
    pub len: usize,
    /// Whether the length is in as few bytes as possible, which MQTT 5 demands.
    pub minimal: bool,
}

/// Splits the first packet off. `None`: more bytes are needed.
///
/// # Errors
/// The length is no length, or is larger than `most` (with the fixed header).
pub fn split(bytes: &[u8], most: usize) -> Result<Option<Frame<'_>>, DecodeError> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    let (mut remaining, mut digits) = (0, 0);
    loop {
        let Some(&digit) = rest.get(digits) else { return Ok(None) };
        remaining |= usize::from(digit & 0x7F) << (7 * digits);
        digits += 1;
        if digit & 0x80 == 0 {
            break;
        }
        if digits == 4 {
            return Err(DecodeError::Malformed("a length of more than four bytes"));
        }
    }
    let len = 1 + digits + remaining;
    if len > most {
        return Err(DecodeError::TooLarge { bytes: len, most });
    }
    let minimal = digits == 1 || rest[digits - 1] != 0;
    Ok(bytes.get(1 + digits..len).map(|body| Frame { first, body, len, minimal }))
}

/// Decodes a packet. `version` is that of the connection; CONNECT names its own.
///
/// # Errors
/// The specification does not allow the packet.
pub fn decode(version: Version, frame: Frame<'_>) -> Result<Packet<'_>, DecodeError> {
    if version == Version::V5 && !frame.minimal {
        return Err(DecodeError::Malformed("a length in more bytes than needed"));
    }
    let mut body = Reader::new(frame.body);
    let packet = decode_body(version, frame.first, &mut body)?;
    body.end()?;
    Ok(packet)
}
