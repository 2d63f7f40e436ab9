//! Finds the record of a position in the log.

use std::collections::BTreeMap;

use crate::record::Record;

/// The most entries of an index. When it is full, every second entry is removed.
const MAX_ENTRIES: usize = 1 << 16;
/// Records that are read one after the other instead of by further bisection.
const SCAN: i64 = 16;

/// The positions and offsets of some records of a topic. Positions ascend with offsets.
#[derive(Debug, Default)]
pub(crate) struct Index(BTreeMap<u64, i64>);

impl Index {
    pub(crate) fn insert(&mut self, position: u64, offset: i64) {
        if self.0.len() >= MAX_ENTRIES {
            let mut keep = false;
            self.0.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
        self.0.insert(position, offset);
    }

    /// Forgets records that Kafka removed.
    pub(crate) fn cut(&mut self, first: u64) {
        self.0 = self.0.split_off(&first);
    }

    /// The last known offset whose record begins at or before a position, and the first known one whose record begins behind it.
    pub(crate) fn around(&self, position: u64) -> (Option<i64>, Option<i64>) {
        let before = self.0.range(..=position).next_back().map(|(_, offset)| *offset);
        let after = self.0.range(position..).find(|(at, _)| **at > position).map(|(_, offset)| *offset);
        (before, after)
    }

    /// Whether the record that begins at a position is known.
    fn knows(&self, position: u64) -> bool {
        self.0.contains_key(&position)
    }
}

/// Reads records by offset: the record, or the next one if there is none.
pub(crate) trait Fetch {
    /// Why a record cannot be read.
    type Error;
    /// The first offset that has a record, and the one after the last.
    fn offsets(&self) -> Result<std::ops::Range<i64>, Self::Error>;
    /// The record at an offset, or the first one behind it. `None`: there is none below the end.
    fn fetch(&mut self, offset: i64) -> Result<Option<Record>, Self::Error>;
}

/// Finds the first record that ends behind a position, among those with offsets in `offsets`.
pub(crate) fn find<F: Fetch>(
    fetch: &mut F,
    index: &mut Index,
    offsets: std::ops::Range<i64>,
    position: u64,
) -> Result<Option<Record>, F::Error> {
    let (before, after) = index.around(position);
    let mut low = before.unwrap_or(offsets.start).max(offsets.start);
    let mut high = after.unwrap_or(offsets.end).clamp(low, offsets.end);
    // A reader that continues behind a record asks for the next record. A bisection would move the consumer away from it.
    let is_known = index.knows(position);
    while high - low > SCAN && !is_known {
        let middle = low + (high - low) / 2;
        let Some(record) = fetch.fetch(middle)? else { break };
        index.insert(record.position, record.offset);
        if record.position > position {
            high = middle;
        } else if record.end > position {
            return Ok(Some(record));
        } else {
            low = record.offset.max(middle);
        }
    }
    while low < offsets.end {
        let Some(record) = fetch.fetch(low)? else { break };
        if record.end > position {
            return Ok(Some(record));
        }
        low = record.offset + 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Records(Vec<Record>, usize);

    impl Fetch for Records {
        type Error = ();
        fn offsets(&self) -> Result<std::ops::Range<i64>, ()> {
            Ok(10..6100)
        }
        fn fetch(&mut self, offset: i64) -> Result<Option<Record>, ()> {
            self.1 += 1;
            Ok(self.0.iter().find(|record| record.offset >= offset).cloned())
        }
    }

    /// Records of lengths 1 to 7, with holes behind every fifth, offsets that skip, and every ninth twice.
    fn records() -> Records {
        let (mut records, mut at) = (Vec::new(), 100);
        for n in 0..2000_i64 {
            let len = n as u64 % 7 + 1;
            let record =
                |offset| Record { offset, epoch: 1, position: at, end: at + len, bytes: None, begins: true };
            records.push(record(n * 3 + 10));
            if n % 9 == 0 {
                records.push(record(n * 3 + 11));
            }
            at += len + u64::from(n % 5 == 0) * 4;
        }
        Records(records, 0)
    }

    #[test]
    fn every_position_finds_its_record_in_few_steps() {
        let (mut records, mut index) = (records(), Index::default());
        let end = records.0.last().expect("records").end;
        for position in (100..end).rev().chain(100..end) {
            let expected = records.0.iter().find(|record| record.end > position).cloned();
            let before = records.1;
            let found = find(&mut records, &mut index, 10..6100, position).expect("it is found");
            assert_eq!(
                found.map(|r| (r.position, r.end)),
                expected.map(|r| (r.position, r.end)),
                "{position}"
            );
            assert!(records.1 - before <= 13 + SCAN as usize, "{position}: {} steps", records.1 - before);
        }
        assert_eq!(find(&mut records, &mut index, 10..6100, end).expect("nothing"), None);
    }

    #[test]
    fn an_index_keeps_its_size_and_forgets() {
        let mut index = Index::default();
        (0..200_000).for_each(|n| index.insert(n * 10, n as i64));
        assert!(index.0.len() <= MAX_ENTRIES);
        assert_eq!(index.around(1_999_990).0, Some(199_999));
        index.cut(1_999_990);
        assert_eq!(index.around(0), (None, Some(199_999)));
    }
}
