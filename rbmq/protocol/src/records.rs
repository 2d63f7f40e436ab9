//! Records: the encoding of several messages in one delivery.

/// The size of the header of a record: its length as a little-endian `u32`.
pub const RECORD_HEADER_BYTES: usize = 4;

/// The bytes of a delivery are not whole records. Their publisher is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "at byte {offset} of a delivery a record goes {missing} bytes past its end; its publisher does not \
         write RBMQ's records (use raw framing for plain bytes)"
)]
#[non_exhaustive]
pub struct RecordError {
    /// The start of the record.
    pub offset: usize,
    /// The number of missing bytes.
    pub missing: usize,
}

impl RecordError {
    /// A record at `offset` that exceeds the delivery by `missing` bytes.
    pub fn new(offset: usize, missing: usize) -> Self {
        Self { offset, missing }
    }
}

/// The records in the bytes of whole deliveries, borrowed.
///
/// The iterator ends at the end of the bytes, or at the first malformed record: [`Records::malformed`] distinguishes them.
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
    /// Iterates over the bytes of whole deliveries.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// The offset of the next record.
    pub fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The malformed record that ends the iterator; none at the end of the bytes.
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

/// The header of a record of `len` bytes; none if the length exceeds the largest record.
#[inline]
pub fn record_header(len: usize) -> Option<[u8; RECORD_HEADER_BYTES]> {
    u32::try_from(len).ok().map(u32::to_le_bytes)
}

/// Appends an encoded record to a buffer.
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
    fn errors_have_offset_and_missing_bytes() {
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
