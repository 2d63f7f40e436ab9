//! Fields of messages, little endian: for the protocol's own, and for applications with messages of their own.
//!
//! ```
//! use rocketbufs::fields::{FieldError, Reader};
//!
//! // A message of an application: a number, and a name with two octets of length.
//! fn decode(bytes: &[u8]) -> Result<(u32, &str), FieldError> {
//!     let mut fields = Reader::new(bytes);
//!     let number = fields.u32()?;
//!     let len = fields.u16()?;
//!     let name = fields.text(len.into(), "name")?;
//!     fields.end()?;
//!     Ok((number, name))
//! }
//!
//! assert_eq!(decode(b"\x07\0\0\0\x02\0me"), Ok((7, "me")));
//! assert_eq!(decode(b"\x07\0\0\0\x02\0m"), Err(FieldError::Short { missing: 1 }));
//! ```

/// The fault in the bytes of a message, which its sender has made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// They end in the middle of a field.
    #[error("the message ends {missing} bytes too early")]
    Short {
        /// Bytes that are missing.
        missing: usize,
    },
    /// They go on after the last field.
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
    #[error("the {field} is not UTF-8")]
    Text {
        /// The field.
        field: &'static str,
    },
}

impl FieldError {
    /// A field has a value that it cannot have.
    pub fn value(field: &'static str, value: impl Into<u64>) -> Self {
        Self::Value { field, value: value.into() }
    }
}

/// A text of a peer's as it may stand in a line of a log or on a terminal: control characters, ends of lines too, and marks that turn the
/// text or are not seen are written as escapes. So it can neither begin a line of its own nor move a cursor.
///
/// ```
/// assert_eq!(rocketbufs::fields::printable("it's ä\n\x1b[2J"), "it's ä\\n\\u{1b}[2J");
/// ```
pub fn printable(text: &str) -> String {
    text::printable(text).into_owned()
}

/// Reads the fields of a message one after the other. Nothing is copied or allocated: what it returns lies in the message.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the first byte of these on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `n` bytes.
    ///
    /// # Errors
    /// [`FieldError::Short`]; nothing was read then.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], FieldError> {
        let missing = || FieldError::Short { missing: n - self.0.len() };
        let (head, rest) = self.0.split_at_checked(n).ok_or_else(missing)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let missing = || FieldError::Short { missing: N - self.0.len() };
        let (head, rest) = self.0.split_first_chunk().ok_or_else(missing)?;
        self.0 = rest;
        Ok(*head)
    }

    /// One octet.
    ///
    /// # Errors
    /// As [`Reader::take`], and so for the other numbers.
    pub fn u8(&mut self) -> Result<u8, FieldError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Two octets.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u16(&mut self) -> Result<u16, FieldError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four octets.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u32(&mut self) -> Result<u32, FieldError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight octets.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u64(&mut self) -> Result<u64, FieldError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Sixteen octets.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn u128(&mut self) -> Result<u128, FieldError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A byte string with one octet of length.
    ///
    /// # Errors
    /// As [`Reader::take`].
    pub fn bytes8(&mut self) -> Result<&'a [u8], FieldError> {
        let len = usize::from(self.u8()?);
        self.take(len)
    }

    /// A byte string of at most `max` bytes with two octets of length.
    ///
    /// # Errors
    /// As [`Reader::take`], and [`FieldError::Value`] if it is longer.
    pub fn bytes16(&mut self, max: usize) -> Result<&'a [u8], FieldError> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(FieldError::value("length", len as u64));
        }
        self.take(len)
    }

    /// A text of `len` bytes; `field` names it in the error.
    ///
    /// # Errors
    /// As [`Reader::take`], and [`FieldError::Text`].
    pub fn text(&mut self, len: usize, field: &'static str) -> Result<&'a str, FieldError> {
        utf8(self.take(len)?, field)
    }

    /// A text of at most `max` bytes with two octets of length; `field` names it in the error.
    ///
    /// # Errors
    /// As [`Reader::bytes16`], and [`FieldError::Text`].
    pub fn text16(&mut self, max: usize, field: &'static str) -> Result<&'a str, FieldError> {
        utf8(self.bytes16(max)?, field)
    }

    /// Everything that was not read.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// All fields were read.
    ///
    /// # Errors
    /// [`FieldError::Long`]: there is more.
    pub fn end(&self) -> Result<(), FieldError> {
        match self.0.len() {
            0 => Ok(()),
            extra => Err(FieldError::Long { extra }),
        }
    }
}

fn utf8<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, FieldError> {
    std::str::from_utf8(bytes).map_err(|_| FieldError::Text { field })
}
