//! Encoding of little-endian fields, and decoding of those that only the protocol has.

use rocketnet::wire::{CONTROL_WIRE, MORE_BIT};

use crate::ground::fields::{FieldError, Reader};
use crate::ground::types::WireId;

/// An encoder of fields.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(64))
    }

    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.raw(&[value])
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u128(&mut self, value: u128) -> &mut Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes a byte string of at most 255 bytes (callers check), with one octet of length.
    pub(crate) fn bytes8(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= 255);
        self.u8(bytes.len() as u8).raw(bytes)
    }

    /// Writes a byte string of at most 65,535 bytes (callers check), with two octets of length.
    pub(crate) fn bytes16(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= usize::from(u16::MAX));
        self.u16(bytes.len() as u16).raw(bytes)
    }

    /// Writes a text, cut at a character boundary to at most `max` bytes.
    pub(crate) fn text(&mut self, text: &str, max: usize) -> &mut Self {
        self.bytes16(&text.as_bytes()[..text.floor_char_boundary(max)])
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a wire id: 31 bits, and not the id of control messages.
pub(crate) fn wire(r: &mut Reader<'_>) -> Result<WireId, FieldError> {
    let wire = r.u32()?;
    if wire & MORE_BIT != 0 || wire == CONTROL_WIRE {
        return Err(FieldError::value("wire id", wire));
    }
    Ok(wire)
}
