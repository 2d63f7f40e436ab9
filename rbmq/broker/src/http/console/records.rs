//! Records in the bytes of a log, one after the other. What nobody wants to see is passed over, and not copied.
//!
//! ```text
//!   log of one publisher      │ length │ record │ length │ record │ …
//!   merged log                │ publisher, length │ records of it │ publisher, length │ …
//! ```

use std::ops::Range;
use std::time::Instant;

/// How much is copied at a time, to read lengths.
const CHUNK: u64 = 4 << 10;

/// After so many records the time is looked at.
const LOOK_EVERY: u32 = 256;

/// The sizes of the header of a run, of a record, and of its attributes.
const RUN: u64 = 8;
const RECORD: u64 = 4;
const ATTRIBUTES: u64 = 4;

/// The bit of the length that says that a record has attributes, and their version.
const HAS_ATTRIBUTES: u32 = 1 << 31;
const VERSION: u8 = 1;

/// The bytes of a log.
pub(super) trait LogBytes {
    /// Copies bytes from a position on.
    ///
    /// # Errors
    /// They are not there any more.
    fn copy(&self, at: u64, to: &mut [u8]) -> Result<(), Gone>;
}

/// The bytes are not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// Bytes that somebody has, and the position of the first.
pub(super) struct Part<'a>(pub(super) u64, pub(super) &'a [u8]);

impl LogBytes for Part<'_> {
    fn copy(&self, at: u64, to: &mut [u8]) -> Result<(), Gone> {
        let from = at.checked_sub(self.0).and_then(|from| usize::try_from(from).ok()).ok_or(Gone)?;
        let found = from.checked_add(to.len()).and_then(|end| self.1.get(from..end)).ok_or(Gone)?;
        to.copy_from_slice(found);
        Ok(())
    }
}

/// Where a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The whole record with its header.
    pub(super) record: Range<u64>,
    /// Empty: it has none.
    pub(super) attributes: Range<u64>,
    pub(super) payload: Range<u64>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Record(Place),
    /// All bytes were seen.
    End,
    /// Nothing is known of what lies at this position, and behind it.
    Damaged(u64),
    /// The time is over, at this position.
    Late(u64),
}

/// The records of a range that begins and ends at the ends of deliveries.
pub(super) struct Walk<'a, L> {
    log: &'a L,
    at: u64,
    end: u64,
    is_merged: bool,
    /// The end of the run.
    run: u64,
    /// A copied part of the log, and its position.
    chunk: (u64, Vec<u8>),
    deadline: Instant,
    steps: u32,
}

impl<'a, L: LogBytes> Walk<'a, L> {
    pub(super) fn new(log: &'a L, range: Range<u64>, is_merged: bool, deadline: Instant) -> Self {
        let Range { start: at, end } = range;
        Self { log, at, end, is_merged, run: at, chunk: (at, Vec::new()), deadline, steps: 0 }
    }

    /// The next record. After [`Next::End`], [`Next::Damaged`] or [`Next::Late`] nothing more comes.
    ///
    /// # Errors
    /// The bytes are not there any more.
    pub(super) fn next(&mut self) -> Result<Next, Gone> {
        loop {
            if self.at >= self.end {
                return Ok(Next::End);
            }
            self.steps = self.steps.wrapping_add(1);
            if self.steps.is_multiple_of(LOOK_EVERY) && Instant::now() >= self.deadline {
                return Ok(Next::Late(self.at));
            }
            if self.is_merged && self.at >= self.run {
                let Some([_, length]) = self.words(self.end)? else { return Ok(Next::Damaged(self.at)) };
                let run = self.at + RUN + u64::from(length);
                if run > self.end {
                    return Ok(Next::Damaged(self.at));
                }
                (self.at, self.run) = (self.at + RUN, run);
                continue;
            }
            let limit = if self.is_merged { self.run } else { self.end };
            match self.record(limit)? {
                Some((place, is_good)) => {
                    self.at = place.record.end;
                    // Malformed attributes cost only their record.
                    if is_good {
                        return Ok(Next::Record(place));
                    }
                }
                // What one publisher writes wrong costs only its run.
                None if self.is_merged => self.at = self.run,
                None => return Ok(Next::Damaged(self.at)),
            }
        }
    }

    /// The record here, and whether its attributes are in order. None: it is longer than there are bytes.
    fn record(&mut self, limit: u64) -> Result<Option<(Place, bool)>, Gone> {
        let Some([word]) = self.words(limit)? else { return Ok(None) };
        let (at, begin) = (self.at, self.at + RECORD);
        let end = begin + u64::from(word & !HAS_ATTRIBUTES);
        if end > limit {
            return Ok(None);
        }
        let place =
            |attributes: Range<u64>, payload: Range<u64>| Place { record: at..end, attributes, payload };
        if word & HAS_ATTRIBUTES == 0 {
            return Ok(Some((place(begin..begin, begin..end), true)));
        }
        let inner = begin + ATTRIBUTES;
        let Some([_, word]) = self.words(end)? else {
            return Ok(Some((place(begin..begin, begin..end), false)));
        };
        let [a, b, c, version] = word.to_le_bytes();
        let payload = inner + u64::from(u32::from_le_bytes([a, b, c, 0]));
        if payload > end || version != VERSION {
            return Ok(Some((place(begin..begin, begin..end), false)));
        }
        Ok(Some((place(inner..payload, payload..end), true)))
    }

    /// The numbers here. None: there are less bytes.
    fn words<const N: usize>(&mut self, limit: u64) -> Result<Option<[u32; N]>, Gone> {
        let bytes = 4 * N;
        if limit - self.at < bytes as u64 {
            return Ok(None);
        }
        let (from, chunk) = &mut self.chunk;
        if self.at < *from || self.at + bytes as u64 > *from + chunk.len() as u64 {
            let length = CHUNK.min(self.end - self.at) as usize;
            chunk.clear();
            chunk.resize(length, 0);
            *from = self.at;
            if let Err(gone) = self.log.copy(self.at, chunk) {
                chunk.clear();
                return Err(gone);
            }
        }
        let begin = (self.at - *from) as usize;
        let word = |n: usize| {
            chunk[begin + 4 * n..begin + 4 * n + 4]
                .iter()
                .rev()
                .fold(0, |all, byte| all << 8 | u32::from(*byte))
        };
        Ok(Some(std::array::from_fn(word)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rbmq_wire::{AttributesBuf, Unpack, push_record, push_record_with, run_header};

    use super::*;

    fn walk(bytes: &[u8], is_merged: bool) -> (Vec<Place>, Next) {
        let part = Part(1_000, bytes);
        let range = 1_000..1_000 + bytes.len() as u64;
        let mut walk = Walk::new(&part, range, is_merged, Instant::now() + Duration::from_secs(600));
        let mut found = Vec::new();
        loop {
            match walk.next().expect("the bytes are there") {
                Next::Record(place) => found.push(place),
                last => return (found, last),
            }
        }
    }

    fn texts<'a>(bytes: &'a [u8], places: &[Place]) -> Vec<&'a [u8]> {
        let part = |range: &Range<u64>| &bytes[range.start as usize - 1_000..range.end as usize - 1_000];
        places.iter().map(|place| part(&place.payload)).collect()
    }

    fn records() -> Vec<u8> {
        let mut bytes = Vec::new();
        push_record(&mut bytes, b"first");
        push_record(&mut bytes, b"");
        let mut own = AttributesBuf::new();
        push_record_with(&mut bytes, own.topic("a/b").unwrap().attributes(), b"named");
        // Attributes of a later version.
        bytes.extend_from_slice(&[6, 0, 0, 0x80, 0, 0, 0, 2, b'h', b'i']);
        push_record(&mut bytes, &vec![7; 3 * CHUNK as usize]);
        push_record(&mut bytes, b"last");
        bytes
    }

    #[test]
    fn records_are_found_as_a_subscriber_finds_them() {
        let own = records();
        let (found, end) = walk(&own, false);
        assert_eq!(end, Next::End);
        assert_eq!(texts(&own, &found), Unpack::records(&own).collect::<Vec<_>>());
        assert_eq!(found[0].record, 1_000..1_009);
        assert!(found[0].attributes.is_empty() && !found[2].attributes.is_empty());
        let run =
            |publisher, bytes: &[u8]| [&run_header(publisher, bytes.len()).unwrap()[..], bytes].concat();
        let garbage = [&own[..], &[0xff; 7]].concat();
        let merged = [run(1, &own), run(2, b""), run(3, &garbage), run(4, &own)].concat();
        let (found, end) = walk(&merged, true);
        assert_eq!(end, Next::End);
        assert_eq!(texts(&merged, &found), Unpack::merged(&merged).collect::<Vec<_>>());
    }

    #[test]
    fn damage_ends_the_walk_where_nothing_is_known_any_more() {
        let own = records();
        let (found, end) = walk(&own[..own.len() - 1], false);
        assert_eq!((found.len(), end), (4, Next::Damaged(1_000 + own.len() as u64 - 8)));
        assert_eq!(walk(&[1, 0, 0], false), (Vec::new(), Next::Damaged(1_000)));
        assert_eq!(walk(&[1, 0, 0, 0, 9, 0, 0, 0, 0], true), (Vec::new(), Next::Damaged(1_000)));
        let part = Part(1_000, &own);
        let mut gone = Walk::new(&part, 900..2_000, false, Instant::now());
        assert_eq!(gone.next(), Err(Gone));
    }

    #[test]
    fn a_walk_ends_in_time() {
        let own = [0; 8 * LOOK_EVERY as usize];
        let part = Part(0, &own);
        let mut walk = Walk::new(&part, 0..own.len() as u64, false, Instant::now());
        let mut found = 0;
        while let Next::Record(_) = walk.next().unwrap() {
            found += 1;
        }
        assert!(found < LOOK_EVERY);
    }
}
