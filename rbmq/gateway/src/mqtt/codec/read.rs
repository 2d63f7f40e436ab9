//! Reading integers, texts and binary data of the protocol.

use super::error::DecodeError;

/// What is left of a body.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a>(&'a [u8]);

const SHORT: DecodeError = DecodeError::Malformed("the packet ends too early");

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Malformed("bytes behind the end of the packet"))
        }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u16::from_be_bytes(*taken))
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*taken))
    }

    /// A byte that is 0 or 1.
    pub(super) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Protocol("a flag that is neither 0 nor 1")),
        }
    }

    /// A number of up to four bytes of seven bits, in as few bytes as possible.
    pub(super) fn varint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0;
        for digits in 0..4 {
            let digit = self.u8()?;
            value |= u32::from(digit & 0x7F) << (7 * digits);
            if digit & 0x80 == 0 {
                let minimal = digit != 0 || digits == 0;
                return minimal
                    .then_some(value)
                    .ok_or(DecodeError::Malformed("a number in more bytes than needed"));
            }
        }
        Err(DecodeError::Malformed("a number of more than four bytes"))
    }

    pub(super) fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.u16()?;
        self.take(len.into())
    }

    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let text = std::str::from_utf8(self.binary()?)
            .map_err(|_| DecodeError::Malformed("a text that is not UTF-8"))?;
        if text.contains('\0') {
            return Err(DecodeError::Malformed("U+0000 in a text"));
        }
        Ok(text)
    }

    /// A packet id, which is never 0.
    pub(super) fn packet_id(&mut self) -> Result<u16, DecodeError> {
        match self.u16()? {
            0 => Err(DecodeError::Protocol("the packet id 0")),
            id => Ok(id),
        }
    }
}
