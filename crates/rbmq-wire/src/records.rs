//! Records: how several messages lie in one delivery.

/// Bytes before each record: its length, a little-endian `u32`.
pub const RECORD_HEADER_BYTES: usize = 4;

/// Why the bytes of a delivery are not whole records: the fault of the publisher that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "at byte {offset} of a delivery a record goes {missing} bytes past its end; its publisher does not \
         write RBMQ's records (use raw framing for plain bytes)"
)]
#[non_exhaustive]
pub struct RecordError {
    /// Where the record begins.
    pub offset: usize,
    /// How many bytes are missing.
    pub missing: usize,
}

impl RecordError {
    /// A record that begins there and goes so many bytes past the end.
    pub fn new(offset: usize, missing: usize) -> Self {
        Self { offset, missing }
    }
}

/// The records in the bytes of one or several deliveries, borrowed.
///
/// The iterator ends at the end of the bytes, or at the first thing that is no record: [`Records::malformed`] tells.
///
/// ```
/// use rbmq_wire::{Records, push_record};
/// let mut bytes = Vec::new();
/// push_record(&mut bytes, b"hello");
/// push_record(&mut bytes, b"");
/// let mut records = Records::new(&bytes);
/// assert_eq!(records.next(), Some(&b"hello"[..]));
/// assert_eq!(records.next(), Some(&b""[..]));
/// assert_eq!(records.next(), None);
/// assert!(records.malformed().is_none());
/// ```
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Records<'a> {
    /// Over the bytes of whole deliveries.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Bytes taken so far: the offset at which the next record begins.
    pub fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    /// What keeps the iterator from going on, if it is not the end of the bytes.
    pub fn malformed(&self) -> Option<RecordError> {
        if self.rest.is_empty() || self.clone().next().is_some() {
            return None;
        }
        let missing = match self.rest.first_chunk() {
            Some(len) => {
                (u32::from_le_bytes(*len) as usize).saturating_sub(self.rest.len() - RECORD_HEADER_BYTES)
            }
            None => RECORD_HEADER_BYTES - self.rest.len(),
        };
        Some(RecordError { offset: self.offset(), missing })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.rest.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let (record, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.rest = rest;
        Some(record)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

/// The header of a record of `len` bytes; None if no record can be that long.
#[inline]
pub fn record_header(len: usize) -> Option<[u8; RECORD_HEADER_BYTES]> {
    u32::try_from(len).ok().map(u32::to_le_bytes)
}

/// Appends a record to a buffer of the caller's.
///
/// # Panics
/// If the record is 4 GiB or longer.
pub fn push_record(buffer: &mut Vec<u8>, record: &[u8]) {
    let header = record_header(record.len()).expect("a record is shorter than 4 GiB");
    buffer.extend_from_slice(&header);
    buffer.extend_from_slice(record);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_and_how_much_is_missing() {
        let mut bytes = Vec::new();
        push_record(&mut bytes, b"abc");
        bytes.extend_from_slice(&[10, 0, 0, 0, 1, 2]);
        let mut records = Records::new(&bytes);
        assert!(records.malformed().is_none());
        assert_eq!(records.by_ref().count(), 1);
        assert_eq!(records.malformed(), Some(RecordError { offset: 7, missing: 8 }));
        let stump = Records::new(&[1, 0]);
        assert_eq!(stump.malformed(), Some(RecordError { offset: 0, missing: 2 }));
    }
}
