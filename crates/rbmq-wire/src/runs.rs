//! Runs: how the bytes of many publishers lie in one log, and how records are found in either kind of it.
//!
//! ```text
//!  delivery of a merged topic:   │ number 3 │ 21 bytes │ what publisher 3 delivered │ number 9 │ … │
//!                                 └────── header ──────┘└── its records, as they were ┘
//! ```
//!
//! The broker writes the headers and looks at nothing between them. So a publisher that does not write records
//! damages its own runs and nobody else's, and a header that does not fit is the broker's fault.

use super::records::{RecordError, Records};

/// Bytes before each run: the publisher's number and the run's length, little-endian `u32` each.
pub const RUN_HEADER_BYTES: usize = 8;

/// Why the bytes of a delivery are not whole runs: the fault of the broker that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "at byte {offset} of a merged delivery a run goes {missing} bytes past its end: a fault of the broker, or the \
     position is none where a run begins"
)]
#[non_exhaustive]
pub struct RunError {
    /// Where the run begins.
    pub offset: usize,
    /// How many bytes are missing.
    pub missing: usize,
}

/// What one publisher delivered, as it lies in a merged log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// The number that the broker gave to the publisher in this log.
    pub publisher: u32,
    /// What it delivered: whole deliveries.
    pub bytes: &'a [u8],
}

/// The runs in the bytes of whole deliveries of a merged log, borrowed. Ends at the end of the bytes, or at the first
/// thing that is no run: [`Runs::malformed`] tells.
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
    /// Over the bytes of whole deliveries.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Bytes taken so far: the offset at which the next run begins.
    pub fn offset(&self) -> usize {
        self.total - self.rest.len()
    }

    /// What keeps the iterator from going on, if it is not the end of the bytes.
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

/// The header of a run of `len` bytes; None if no run can be that long.
pub fn run_header(publisher: u32, len: usize) -> Option<[u8; RUN_HEADER_BYTES]> {
    let mut header = [0; RUN_HEADER_BYTES];
    header[..4].copy_from_slice(&publisher.to_le_bytes());
    header[4..].copy_from_slice(&u32::try_from(len).ok()?.to_le_bytes());
    Some(header)
}

/// What is wrong with received bytes, and by that whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackError {
    /// The publisher of the log wrote no records; nothing more can be found in these bytes.
    #[error("{0}")]
    Record(RecordError),
    /// One publisher of a merged topic wrote no records. The rest of its run is passed over, other runs are whole.
    #[error("publisher {publisher} of the merged topic: {error}; the rest of its run is passed over")]
    Publisher {
        /// Its number.
        publisher: u32,
        /// What it wrote; the offset is that in all bytes.
        error: RecordError,
    },
    /// The broker's fault: nothing more can be found in these bytes.
    #[error("{0}")]
    Run(RunError),
}

/// A record, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The record.
    pub record: &'a [u8],
    /// The number of its publisher, in a merged topic.
    pub publisher: Option<u32>,
    /// The offset from which the bytes can be read again so that this record is among them: where it begins, or where
    /// its run does.
    pub from: usize,
    /// The offset from which the bytes can be read without missing what follows: behind the record; in a merged topic
    /// behind its run if it is the last in it, else the run's beginning.
    pub to: usize,
}

/// The records in the bytes of whole deliveries, of one publisher or merged ones, borrowed.
///
/// The iterator passes over what is no record; [`Unpack::checked`] tells it.
#[derive(Debug, Clone)]
pub struct Unpack<'a> {
    records: Records<'a>,
    /// Where `records` begin in all bytes.
    base: usize,
    /// The runs that follow; of an ordinary log there are none.
    runs: Runs<'a>,
    /// Where runs begin in all bytes.
    runs_base: usize,
    publisher: Option<u32>,
}

impl<'a> Unpack<'a> {
    /// Over the deliveries of one publisher.
    pub fn records(bytes: &'a [u8]) -> Self {
        let runs = Runs::new(&[]);
        Self { records: Records::new(bytes), base: 0, runs, runs_base: bytes.len(), publisher: None }
    }

    /// Over deliveries of a merged log.
    pub fn merged(bytes: &'a [u8]) -> Self {
        let (records, runs) = (Records::new(&[]), Runs::new(bytes));
        Self { records, base: 0, runs, runs_base: 0, publisher: None }
    }

    /// The number of the publisher of the record that was returned last; none if the log is not merged.
    pub fn publisher(&self) -> Option<u32> {
        self.publisher
    }

    /// Record by record with where it lies, and what is no record in its place.
    pub fn checked(mut self) -> impl Iterator<Item = Result<Piece<'a>, UnpackError>> {
        std::iter::from_fn(move || {
            loop {
                let from = self.base + self.records.offset();
                if let Some(record) = self.records.next() {
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

    fn piece(&self, from: usize, record: &'a [u8]) -> Piece<'a> {
        let to = self.base + self.records.offset();
        let Some(publisher) = self.publisher else { return Piece { record, publisher: None, from, to } };
        let (begin, end) = (self.base - RUN_HEADER_BYTES, self.runs_base + self.runs.offset());
        let to = if to == end { end } else { begin };
        Piece { record, publisher: Some(publisher), from: begin, to }
    }

    /// Goes on to the next run, if there is one.
    #[cold]
    fn next_run(&mut self) -> bool {
        let begin = self.runs_base + self.runs.offset();
        let Some(run) = self.runs.next() else { return false };
        (self.records, self.base) = (Records::new(run.bytes), begin + RUN_HEADER_BYTES);
        self.publisher = Some(run.publisher);
        true
    }

    /// What keeps the records, or else the runs, from going on; told once.
    #[cold]
    fn take_error(&mut self) -> Option<UnpackError> {
        if let Some(mut error) = self.records.malformed() {
            error.offset += self.base;
            self.records = Records::new(&[]);
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
        loop {
            if let Some(record) = self.records.next() {
                return Some(record);
            }
            if !self.next_run() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push_record;

    fn run(publisher: u32, bytes: &[u8]) -> Vec<u8> {
        [&run_header(publisher, bytes.len()).unwrap()[..], bytes].concat()
    }

    fn records(list: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        list.iter().for_each(|record| push_record(&mut bytes, record));
        bytes
    }

    #[test]
    fn says_where_and_how_much_is_missing() {
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
        let error = RecordError { offset: 33, missing: 0xffff_ffff - 2 };
        assert_eq!(found[3], Err(UnpackError::Publisher { publisher: 2, error }));
        assert_eq!(found[4].unwrap().publisher, Some(3));
    }

    #[test]
    fn says_where_one_can_go_on() {
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
    fn tells_what_is_wrong_once_and_ends() {
        let plain = [records(&[b"a"]), vec![1, 2]].concat();
        let found: Vec<_> = Unpack::records(&plain).checked().collect();
        assert_eq!(found[1..], [Err(UnpackError::Record(RecordError { offset: 5, missing: 2 }))]);
        let cut = &run(1, b"abcd")[..10];
        let found: Vec<_> = Unpack::merged(cut).checked().collect();
        assert_eq!(found, [Err(UnpackError::Run(RunError { offset: 0, missing: 2 }))]);
    }
}
