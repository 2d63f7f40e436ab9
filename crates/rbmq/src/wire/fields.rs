//! Little-endian fields, read with errors that say what was wrong.

/// What is wrong with the bytes of a peer: the fault of whoever sent them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
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
    /// They do not begin with `RBMQ`: the peer speaks something else.
    #[error("the peer's hello is not RBMQ's; it is another program")]
    NotRbmq,
    /// The version is not spoken here.
    #[error("the peer speaks version {theirs} of RBMQ, this end speaks {ours}; update the older of the two")]
    Version {
        /// What the peer said.
        theirs: u8,
        /// What this build speaks.
        ours: u8,
    },
    /// A topic's name that no topic can have.
    #[error(transparent)]
    Topic(#[from] super::TopicError),
    /// A filter that no filter can be.
    #[error(transparent)]
    Filter(#[from] super::FilterError),
}

/// Reads fields one after the other.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) =
            self.0.split_at_checked(n).ok_or_else(|| DecodeError::Short { missing: n - self.0.len() })?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) =
            self.0.split_first_chunk().ok_or_else(|| DecodeError::Short { missing: N - self.0.len() })?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn u128(&mut self) -> Result<u128, DecodeError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A text of `len` bytes.
    pub(super) fn text(&mut self, len: usize, field: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.take(len)?).map_err(|_| DecodeError::Text { field })
    }

    /// All fields were read.
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Long { extra }),
        }
    }
}
