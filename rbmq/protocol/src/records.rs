//! Records: the encoding of several messages in one delivery.
//!
//! ```text
//!  plain           │ 0 │ length 31 bits │ payload │
//!  with attributes │ 1 │ length 31 bits │ attributes' size 24 bits │ version 8 bits │ attributes │ payload │
//!                                       └─────────────────────── length ──────────────────────────┘
//! ```

use super::attributes::{
    ATTRIBUTES_HEADER_BYTES, Attributes, AttributesError, MAX_ATTRIBUTES_BYTES, VERSION,
};

/// The size of the header of a record: its length as a little-endian `u32`.
pub const RECORD_HEADER_BYTES: usize = 4;

/// The largest length in the header of a record: of its payload, with attributes also of them and their header.
pub const MAX_RECORD_BYTES: usize = 0x7fff_ffff;

/// The bit of the length that says that the record has attributes.
const HAS_ATTRIBUTES: u32 = 1 << 31;

/// The bytes of a delivery are not whole records. Their publisher is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset} of a delivery a record {fault}")]
#[non_exhaustive]
pub struct RecordError {
    /// The start of the record.
    pub offset: usize,
    /// What is wrong with it.
    pub fault: RecordFault,
}

/// What is wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFault {
    /// The record exceeds the delivery. Where the next one begins is unknown.
    #[error(
        "goes {missing} bytes past its end; its publisher does not write RBMQ's records (use raw framing for plain \
         bytes)"
    )]
    Cut {
        /// The number of missing bytes.
        missing: usize,
    },
    /// The attributes are malformed. Only this record is skipped.
    #[error("is malformed: {0}")]
    Attributes(AttributesError),
    /// A record in the log of a space names no topic of the space. Only this record is skipped.
    #[error("is malformed: it is in the log of a space, and its attribute topic names no topic of the space")]
    Topic,
}

impl RecordError {
    /// A malformed record at `offset`.
    pub fn new(offset: usize, fault: RecordFault) -> Self {
        Self { offset, fault }
    }

    /// Whether all bytes behind the record are skipped, and not only the record.
    pub fn ends_bytes(&self) -> bool {
        matches!(self.fault, RecordFault::Cut { .. })
    }
}

/// A record, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// What the record says about its payload; empty for plain records.
    pub attributes: Attributes<'a>,
    /// The content.
    pub payload: &'a [u8],
}

/// The records in the bytes of whole deliveries, borrowed.
///
/// The iterator returns the payloads; [`Records::next_record`] has the attributes too. Both end at the end of the bytes, or at the first
/// malformed record: [`Records::malformed`] distinguishes them, and [`Records::skip_malformed`] continues behind it.
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

    /// The next record with its attributes.
    #[inline]
    pub fn next_record(&mut self) -> Option<Record<'a>> {
        let (word, rest) = self.rest.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let word = u32::from_le_bytes(*word);
        if word & HAS_ATTRIBUTES != 0 {
            return self.next_attributed();
        }
        let (payload, rest) = rest.split_at_checked(word as usize)?;
        self.rest = rest;
        Some(Record { attributes: Attributes::EMPTY, payload })
    }

    /// The malformed record that ends the iterator; none at the end of the bytes.
    pub fn malformed(&self) -> Option<RecordError> {
        if self.rest.is_empty() {
            return None;
        }
        let fault = match self.split_off() {
            Ok((word, body, _)) => RecordFault::Attributes(read(word, body).err()?),
            Err(missing) => RecordFault::Cut { missing },
        };
        Some(RecordError { offset: self.offset(), fault })
    }

    /// As [`Records::malformed`], and goes behind the record. The iterator continues there if the attributes were malformed, and ends
    /// for good if the record was cut off.
    #[cold]
    pub fn skip_malformed(&mut self) -> Option<RecordError> {
        let error = self.malformed()?;
        self.rest = match self.split_off() {
            Ok((_, _, behind)) => behind,
            Err(_) => &[],
        };
        Some(error)
    }

    #[cold]
    #[inline(never)]
    fn next_attributed(&mut self) -> Option<Record<'a>> {
        let (word, body, behind) = self.split_off().ok()?;
        let record = read(word, body).ok()?;
        self.rest = behind;
        Some(record)
    }

    /// The first word of the next record, what follows as its length says, and the bytes behind it. The error is the number of missing
    /// bytes.
    fn split_off(&self) -> Result<(u32, &'a [u8], &'a [u8]), usize> {
        let Some((word, rest)) = self.rest.split_first_chunk() else {
            return Err(RECORD_HEADER_BYTES - self.rest.len());
        };
        let word = u32::from_le_bytes(*word);
        let len = (word & !HAS_ATTRIBUTES) as usize;
        let (body, behind) = rest.split_at_checked(len).ok_or_else(|| len - rest.len())?;
        Ok((word, body, behind))
    }
}

/// The record with this first word and these bytes behind it.
fn read(word: u32, body: &[u8]) -> Result<Record<'_>, AttributesError> {
    if word & HAS_ATTRIBUTES == 0 {
        return Ok(Record { attributes: Attributes::EMPTY, payload: body });
    }
    let ([a, b, c, version], rest) =
        body.split_first_chunk::<ATTRIBUTES_HEADER_BYTES>().ok_or(AttributesError::Cut)?;
    if *version != VERSION {
        return Err(AttributesError::Version { version: *version });
    }
    let len = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
    let (attributes, payload) = rest.split_at_checked(len).ok_or(AttributesError::Cut)?;
    Ok(Record { attributes: Attributes::new(attributes)?, payload })
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.next_record().map(|record| record.payload)
    }
}

impl std::iter::FusedIterator for Records<'_> {}

/// The header of a record of `len` bytes; none if the length exceeds the largest record.
#[inline]
pub fn record_header(len: usize) -> Option<[u8; RECORD_HEADER_BYTES]> {
    if len > MAX_RECORD_BYTES {
        return None;
    }
    Some((len as u32).to_le_bytes())
}

/// Both headers of a record with attributes and a payload of `len` bytes; none if it exceeds the largest record, or the attributes
/// exceed their largest size. The attributes follow, and then the payload.
pub fn record_header_with(
    attributes: Attributes<'_>,
    len: usize,
) -> Option<[u8; RECORD_HEADER_BYTES + ATTRIBUTES_HEADER_BYTES]> {
    let total = len.checked_add(ATTRIBUTES_HEADER_BYTES + attributes.len())?;
    if total > MAX_RECORD_BYTES || attributes.len() > MAX_ATTRIBUTES_BYTES {
        return None;
    }
    let [a, b, c, d] = (total as u32 | HAS_ATTRIBUTES).to_le_bytes();
    let [e, f, g, _] = (attributes.len() as u32).to_le_bytes();
    Some([a, b, c, d, e, f, g, VERSION])
}

/// Appends an encoded record to a buffer.
///
/// # Panics
/// If the record is 2 GiB or longer.
pub fn push_record(buffer: &mut Vec<u8>, record: &[u8]) {
    let header = record_header(record.len()).expect("a record is shorter than 2 GiB");
    buffer.extend_from_slice(&header);
    buffer.extend_from_slice(record);
}

/// Appends an encoded record with attributes to a buffer; without attributes a plain one.
///
/// ```
/// use rbmq_wire::{AttributesBuf, Records, push_record_with};
/// let mut bytes = Vec::new();
/// push_record_with(&mut bytes, AttributesBuf::new().reply_to("answers")?.attributes(), b"question");
/// let record = Records::new(&bytes).next_record().unwrap();
/// assert_eq!((record.attributes.reply_to(), record.payload), (Some("answers"), &b"question"[..]));
/// # Ok::<(), rbmq_wire::AttributeTooLong>(())
/// ```
///
/// # Panics
/// If the record is 2 GiB or longer, or its attributes are 16 MiB or longer.
pub fn push_record_with(buffer: &mut Vec<u8>, attributes: Attributes<'_>, payload: &[u8]) {
    if attributes.is_empty() {
        return push_record(buffer, payload);
    }
    let header = record_header_with(attributes, payload.len());
    buffer.extend_from_slice(&header.expect("a record is shorter than 2 GiB, its attributes than 16 MiB"));
    buffer.extend_from_slice(attributes.as_bytes());
    buffer.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(offset: usize, missing: usize) -> Option<RecordError> {
        Some(RecordError { offset, fault: RecordFault::Cut { missing } })
    }

    #[test]
    fn errors_have_offset_and_missing_bytes() {
        let mut bytes = Vec::new();
        push_record(&mut bytes, b"abc");
        bytes.extend_from_slice(&[10, 0, 0, 0, 1, 2]);
        let mut records = Records::new(&bytes);
        assert!(records.malformed().is_none());
        assert_eq!(records.by_ref().count(), 1);
        assert_eq!(records.malformed(), cut(7, 8));
        assert_eq!(records.skip_malformed(), cut(7, 8));
        assert_eq!((records.next(), records.malformed(), records.offset()), (None, None, bytes.len()));
        let stump = Records::new(&[1, 0]);
        assert_eq!(stump.malformed(), cut(0, 2));
        let attributed = Records::new(&[10, 0, 0, 0x80, 1, 2]);
        assert_eq!(attributed.malformed(), cut(0, 8));
    }

    #[test]
    fn malformed_attributes_cost_only_their_record() {
        let mut bytes = Vec::new();
        push_record(&mut bytes, b"abc");
        bytes.extend_from_slice(&[6, 0, 0, 0x80, 0, 0, 0, 2, b'h', b'i']);
        push_record(&mut bytes, b"z");
        let mut records = Records::new(&bytes);
        assert_eq!(records.next(), Some(&b"abc"[..]));
        assert_eq!((records.next(), records.next_record()), (None, None));
        let fault = RecordFault::Attributes(AttributesError::Version { version: 2 });
        assert_eq!(records.skip_malformed(), Some(RecordError { offset: 7, fault }));
        assert_eq!(records.skip_malformed(), None);
        assert_eq!((records.next(), records.next()), (Some(&b"z"[..]), None));
    }

    #[test]
    fn headers_refuse_what_is_too_long() {
        let bytes = vec![0; MAX_ATTRIBUTES_BYTES + 1];
        let one = Attributes::checked_before(&bytes[..1]);
        assert_eq!(record_header(MAX_RECORD_BYTES), Some([0xff, 0xff, 0xff, 0x7f]));
        assert_eq!(record_header(MAX_RECORD_BYTES + 1), None);
        assert_eq!(record_header_with(one, MAX_RECORD_BYTES - 5), Some([0xff, 0xff, 0xff, 0xff, 1, 0, 0, 1]));
        assert_eq!(record_header_with(one, MAX_RECORD_BYTES - 4), None);
        assert_eq!(record_header_with(one, usize::MAX), None);
        assert_eq!(record_header_with(Attributes::checked_before(&bytes), 0), None);
    }
}
