//! Reading and writing of little-endian fields, with errors that say what was wrong.

use rocketnet::wire::{CONTROL_WIRE, MORE_BIT};

use crate::types::WireId;

/// What is wrong with a message: the fault of whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It ends in the middle of a field.
    #[error("the message ends {missing} bytes too early")]
    Short {
        /// Bytes that are missing.
        missing: usize,
    },
    /// It goes on after its last field.
    #[error("the message has {extra} bytes too many")]
    Long {
        /// Bytes too many.
        extra: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{value:#x} is no valid {field}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
}

impl DecodeError {
    pub(crate) fn value(field: &'static str, value: impl Into<u64>) -> Self {
        Self::Value { field, value: value.into() }
    }
}

/// Writes fields.
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

    /// A byte string of at most 255 bytes (callers check), with one octet of length.
    pub(crate) fn bytes8(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= 255);
        self.u8(bytes.len() as u8).raw(bytes)
    }

    /// A byte string of at most 65,535 bytes (callers check), with two octets of length.
    pub(crate) fn bytes16(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= usize::from(u16::MAX));
        self.u16(bytes.len() as u16).raw(bytes)
    }

    /// A text, cut at a character's end to at most `max` bytes.
    pub(crate) fn text(&mut self, text: &str, max: usize) -> &mut Self {
        self.bytes16(&text.as_bytes()[..text.floor_char_boundary(max)])
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads fields.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        if self.0.len() < n {
            return Err(DecodeError::Short { missing: n - self.0.len() });
        }
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A wire id: 31 bits, and not that of control messages.
    pub(crate) fn wire(&mut self) -> Result<WireId, DecodeError> {
        let wire = self.u32()?;
        if wire & MORE_BIT != 0 || wire == CONTROL_WIRE {
            return Err(DecodeError::value("wire id", wire));
        }
        Ok(wire)
    }

    pub(crate) fn bytes8(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(self.u8()?);
        self.take(len)
    }

    pub(crate) fn bytes16(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(DecodeError::value("length", len as u64));
        }
        self.take(len)
    }

    pub(crate) fn text(&mut self, max: usize) -> Result<String, DecodeError> {
        String::from_utf8(self.bytes16(max)?.to_vec()).map_err(|_| DecodeError::Text)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Long { extra }),
        }
    }
}
