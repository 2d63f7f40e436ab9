//! Runs: the encoding of many publishers' bytes in one merged log, and the records in merged and other logs.
//!
//! ```text
//!  delivery of a merged topic:   │ number 3 │ 21 bytes │ what publisher 3 delivered │ number 9 │ … │
//!                                 └────── header ──────┘└── its records, as they were ┘
//! ```
//!
//! The broker writes the headers and does not read the bytes between them. Therefore a publisher that writes malformed records
//! damages only its own runs, and a malformed header is the broker's fault.

use super::attributes::Attributes;
use super::records::{Record, RecordError, Records};

/// The size of the header of a run: the publisher's number and the length of the run, each a little-endian `u32`.
pub const RUN_HEADER_BYTES: usize = 8;

/// The bytes of a delivery are not whole runs. The broker is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "at byte {offset} of a merged delivery a run goes {missing} bytes past its end: a fault of the broker, or the \
     position is none where a run begins"
)]
#[non_exhaustive]
pub struct RunError {
    /// The start of the run.
    pub offset: usize,
    /// The number of missing bytes.
    pub missing: usize,
}

/// Deliveries of one publisher in a merged log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// The number that the broker assigned to the publisher in this log.
    pub publisher: u32,
    /// The bytes of whole deliveries.
    pub bytes: &'a [u8],
}

/// The runs in the bytes of whole deliveries of a merged log, borrowed. The iterator ends at the end of the bytes, or at the
/// first malformed run: [`Runs::malformed`] distinguishes them.
///
/// ```
/// use rbmq_wire::{Runs, run_header};
/// let bytes = [&run_header(3, 5).unwrap()[..], b"hello"].concat();
/// let mut runs = Runs::new(&bytes);
/// assert_eq!(runs.next().map(|run| (run.publisher, run.bytes)), Some((3, &b"hello"[..])));
/// assert_eq!(runs.next(), None);
/// assert!(runs.malformed().is_none());
/// ```
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Runs<'a> {
    /// Iterates over the bytes of whole deliveries.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// The offset of the next run.
    pub fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The malformed run that ends the iterator; none at the end of the bytes.
    pub fn malformed(&self) -> Option<RunError> {
        if self.rest.is_empty() || self.clone().next().is_some() {
            return None;
        }
        let missing = match self.rest.first_chunk::<RUN_HEADER_BYTES>() {
            Some(header) => header_fields(*header).1.saturating_sub(self.rest.len() - RUN_HEADER_BYTES),
            None => RUN_HEADER_BYTES - self.rest.len(),
        };
        Some(RunError { offset: self.offset(), missing })
    }
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let (header, rest) = self.rest.split_first_chunk::<RUN_HEADER_BYTES>()?;
        let (publisher, len) = header_fields(*header);
        let (bytes, rest) = rest.split_at_checked(len)?;
        self.rest = rest;
        Some(Run { publisher, bytes })
    }
}

impl std::iter::FusedIterator for Runs<'_> {}

fn header_fields(header: [u8; RUN_HEADER_BYTES]) -> (u32, usize) {
    let [a, b, c, d, e, f, g, h] = header;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize)
}

/// The header of a run of `len` bytes; none if the length exceeds the largest run.
pub fn run_header(publisher: u32, len: usize) -> Option<[u8; RUN_HEADER_BYTES]> {
    let mut header = [0; RUN_HEADER_BYTES];
    header[..4].copy_from_slice(&publisher.to_le_bytes());
    header[4..].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    Some(header)
}

/// Received bytes are malformed. The variant says which peer is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The publisher of the log wrote a malformed record. The record is skipped, or the rest of the bytes if its end is unknown.
    #[error("{0}")]
    Record(RecordError),
    /// A publisher of a merged topic wrote a malformed record. The record is skipped, or the rest of its run if its end is unknown;
    /// other runs are intact.
    #[error("publisher {publisher} of the merged topic: {error}; the {} is skipped", if .error.ends_bytes() { "rest of its run" } else { "record" })]
    Publisher {
        /// The number of the publisher.
        publisher: u32,
        /// The malformed record. Its offset counts from the start of all bytes.
        error: RecordError,
    },
    /// The broker wrote a malformed run. The rest of the bytes is skipped.
    #[error("{0}")]
    Run(RunError),
}

/// A record and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The record, without its attributes.
    pub record: &'a [u8],
    /// The attributes of the record; empty for plain records.
    pub attributes: Attributes<'a>,
    /// In a merged topic: the number of the publisher.
    pub publisher: Option<u32>,
    /// The offset at which to begin so that this record is read again: its start, or the start of its run.
    pub from: usize,
    /// The offset at which to resume behind this record: its end. In a merged topic: the end of the run for its last record, and
    /// the start of the run for the others.
    pub to: usize,
}

/// The records in the bytes of whole deliveries, of one publisher or of a merged log, borrowed.
///
/// The iterator returns the payloads; [`Unpack::next_record`] has the attributes too. Both skip malformed bytes; [`Unpack::checked`]
/// reports them.
#[derive(Debug, Clone)]
pub struct Unpack<'a> {
    records: Records<'a>,
    /// The offset of `records` in all bytes.
    base: usize,
    /// The remaining runs of a merged log.
    runs: Runs<'a>,
    /// The offset of `runs` in all bytes.
    runs_base: usize,
    publisher: Option<u32>,
}

impl<'a> Unpack<'a> {
    /// Iterates over the deliveries of one publisher.
    pub fn records(bytes: &'a [u8]) -> Self {
        let runs = Runs::new(&[]);
        Self { records: Records::new(bytes), base: 0, runs, runs_base: bytes.len(), publisher: None }
    }

    /// Iterates over deliveries of a merged log.
    pub fn merged(bytes: &'a [u8]) -> Self {
        let (records, runs) = (Records::new(&[]), Runs::new(bytes));
        Self { records, base: 0, runs, runs_base: 0, publisher: None }
    }

    /// In a merged log: the number of the publisher of the last returned record.
    pub fn publisher(&self) -> Option<u32> {
        self.publisher
    }

    /// The next record with its attributes.
    #[inline]
    pub fn next_record(&mut self) -> Option<Record<'a>> {
        loop {
            if let Some(record) = self.records.next_record() {
                return Some(record);
            }
            if !self.pass_fault() && !self.next_run() {
                return None;
            }
        }
    }

    /// Goes behind the malformed record that stops the records, if there is one.
    #[cold]
    fn pass_fault(&mut self) -> bool {
        self.records.skip_malformed().is_some()
    }

    /// The records with their places, and errors in the place of malformed bytes.
    pub fn checked(mut self) -> impl Iterator<Item = Result<Piece<'a>, UnpackError>> {
        std::iter::from_fn(move || {
            loop {
                let from = self.base + self.records.offset();
                if let Some(record) = self.records.next_record() {
                    return Some(Ok(self.piece(from, record)));
                }
                if let Some(error) = self.take_error() {
                    return Some(Err(error));
                }
                if !self.next_run() {
                    return None;
                }
            }
        })
    }

    fn piece(&self, from: usize, Record { attributes, payload: record }: Record<'a>) -> Piece<'a> {
        let to = self.base + self.records.offset();
        let Some(publisher) = self.publisher else {
            return Piece { record, attributes, publisher: None, from, to };
        };
        let (begin, end) = (self.base - RUN_HEADER_BYTES, self.runs_base + self.runs.offset());
        let to = if to == end { end } else { begin };
        Piece { record, attributes, publisher: Some(publisher), from: begin, to }
    }

    /// Advances to the next run, if there is one.
    #[cold]
    fn next_run(&mut self) -> bool {
        let begin = self.runs_base + self.runs.offset();
        let Some(run) = self.runs.next() else { return false };
        (self.records, self.base) = (Records::new(run.bytes), begin + RUN_HEADER_BYTES);
        self.publisher = Some(run.publisher);
        true
    }

    /// The malformed record or run that stops the iterator; returned once.
    #[cold]
    fn take_error(&mut self) -> Option<UnpackError> {
        if let Some(mut error) = self.records.skip_malformed() {
            error.offset += self.base;
            return Some(match self.publisher {
                Some(publisher) => UnpackError::Publisher { publisher, error },
                None => UnpackError::Record(error),
            });
        }
        let mut error = self.runs.malformed()?;
        error.offset += self.runs_base;
        self.runs = Runs::new(&[]);
        Some(UnpackError::Run(error))
    }
}

impl<'a> Iterator for Unpack<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.next_record().map(|record| record.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttributesBuf, AttributesError, RecordFault, push_record, push_record_with};

    fn run(publisher: u32, bytes: &[u8]) -> Vec<u8> {
        [&run_header(publisher, bytes.len()).unwrap()[..], bytes].concat()
    }

    fn records(list: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        list.iter().for_each(|record| push_record(&mut bytes, record));
        bytes
    }

    #[test]
    fn errors_have_offset_and_missing_bytes() {
        let bytes = [run(1, b"abc"), vec![2, 0, 0, 0, 9, 0, 0, 0, 1]].concat();
        let mut runs = Runs::new(&bytes);
        assert_eq!(runs.by_ref().count(), 1);
        assert_eq!(runs.malformed(), Some(RunError { offset: 11, missing: 8 }));
        assert_eq!(Runs::new(&[0; 7]).malformed(), Some(RunError { offset: 0, missing: 1 }));
    }

    #[test]
    fn garbage_of_one_publisher_damages_only_its_run() {
        let garbage = [records(&[b"good"]), vec![0xff; 6]].concat();
        let bytes = [run(1, &records(&[b"a", b""])), run(2, &garbage), run(3, &records(&[b"z"]))].concat();
        assert!(Unpack::merged(&bytes).eq([&b"a"[..], b"", b"good", b"z"]));
        let found: Vec<_> = Unpack::merged(&bytes).checked().collect();
        assert_eq!(found.len(), 5);
        let error = RecordError { offset: 33, fault: RecordFault::Cut { missing: 0x7fff_ffff - 2 } };
        assert_eq!(found[3], Err(UnpackError::Publisher { publisher: 2, error }));
        assert_eq!(found[4].unwrap().publisher, Some(3));
    }

    #[test]
    fn malformed_attributes_cost_only_their_record() {
        let mut buf = AttributesBuf::new();
        let attributes = buf.topic("room").unwrap().attributes();
        let mut second = records(&[b"b"]);
        push_record_with(&mut second, attributes, b"c");
        let bad = [&[5, 0, 0, 0x80, 0xff, 0xff, 0xff, 1, 0][..], &second].concat();
        let merged = [run(1, &records(&[b"a"])), run(2, &bad), run(3, &records(&[b"z"]))].concat();
        let plain = [&records(&[b"a"])[..], &bad, &records(&[b"z"])].concat();
        let fault = RecordFault::Attributes(AttributesError::Cut);
        let errors = [
            UnpackError::Publisher { publisher: 2, error: RecordError { offset: 21, fault } },
            UnpackError::Record(RecordError { offset: 5, fault }),
        ];
        for (all, error) in [Unpack::merged(&merged), Unpack::records(&plain)].into_iter().zip(errors) {
            assert!(all.clone().eq([&b"a"[..], b"b", b"c", b"z"]));
            let found: Vec<_> = all.checked().collect();
            assert_eq!(found.len(), 5);
            assert_eq!(found[1], Err(error));
            let piece = found[3].unwrap();
            assert_eq!((piece.attributes, piece.record), (attributes, &b"c"[..]));
            assert!(found[4].unwrap().attributes.is_empty());
        }
        assert_eq!(
            errors[0].to_string(),
            "publisher 2 of the merged topic: at byte 21 of a delivery a record is malformed: its attributes are cut off; \
             the record is skipped"
        );
    }

    #[test]
    fn pieces_have_the_offsets_to_resume_at() {
        let bytes = [run(1, &records(&[b"a", b"b"])), run(2, &records(&[b"c"]))].concat();
        let places: Vec<_> =
            Unpack::merged(&bytes).checked().map(|p| p.map(|p| (p.from, p.to)).unwrap()).collect();
        assert_eq!(places, [(0, 0), (0, 18), (18, 31)]);
        let plain = records(&[b"a", b"bc"]);
        let places: Vec<_> =
            Unpack::records(&plain).checked().map(|p| p.map(|p| (p.from, p.to)).unwrap()).collect();
        assert_eq!(places, [(0, 5), (5, 11)]);
    }

    #[test]
    fn an_error_is_returned_once() {
        let plain = [records(&[b"a"]), vec![1, 2]].concat();
        let found: Vec<_> = Unpack::records(&plain).checked().collect();
        let error = RecordError { offset: 5, fault: RecordFault::Cut { missing: 2 } };
        assert_eq!(found[1..], [Err(UnpackError::Record(error))]);
        let cut = &run(1, b"abcd")[..10];
        let found: Vec<_> = Unpack::merged(cut).checked().collect();
        assert_eq!(found, [Err(UnpackError::Run(RunError { offset: 0, missing: 2 }))]);
    }
}
