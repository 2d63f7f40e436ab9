//! Reads one topic of Kafka, which removes records meanwhile.

use std::ops::Range;

use multimqc::{Epoch, LevelError, Offset};

use crate::client::Unread;
use crate::find::{self, Fetch, Index};
use crate::record::Record;

/// The known state of the log.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) epoch: Epoch,
    pub(crate) start: Offset,
    pub(crate) first: Offset,
    pub(crate) head: Offset,
    /// Kafka's offsets of the records.
    pub(crate) offsets: Range<i64>,
    /// Whether the last record is one that a closed level has written.
    pub(crate) closed: bool,
}

/// The error for records that Kafka lists but does not return.
pub(crate) fn lost() -> LevelError {
    LevelError::Down("Kafka's records are not what they were".to_owned())
}

/// The reader of a topic.
pub(crate) struct Reader<F> {
    fetcher: F,
    index: Index,
    /// The record that was read last.
    last: Option<Record>,
}

impl<F: Fetch<Error = Unread>> Reader<F> {
    pub(crate) fn new(fetcher: F) -> Self {
        Self { fetcher, index: Index::default(), last: None }
    }

    /// Remembers the offset of the record at a position, which saves a later read some steps.
    pub(crate) fn note(&mut self, position: Offset, offset: i64) {
        self.index.insert(position, offset);
    }

    /// Asks Kafka for the beginning and the end of the log. If Kafka has removed a record that it has just listed, it is asked again. If
    /// its answer is then the same as before, the record is lost, which is an error.
    pub(crate) fn look(&mut self, known: State) -> Result<State, LevelError> {
        let mut before = None;
        loop {
            let offsets = self.fetcher.offsets().map_err(level_error)?;
            if before.as_ref() == Some(&offsets) {
                return Err(lost());
            }
            match self.bounds(known.clone(), offsets.clone()) {
                Ok(found) => return Ok(found),
                Err(Unread::Removed) => before = Some(offsets),
                Err(Unread::Level(error)) => return Err(error),
            }
        }
    }

    /// The state of the log by the records at its two ends.
    fn bounds(&mut self, mut state: State, offsets: Range<i64>) -> Result<State, Unread> {
        if offsets.is_empty() {
            // Retention can remove all records. The log then continues at its head.
            state.head = state.head.max(state.start);
            state.first = state.head;
        } else {
            if offsets.end != state.offsets.end {
                let last = self.read(offsets.end - 1)?;
                state.epoch = Epoch(last.epoch);
                state.head = state.head.max(last.end);
                state.closed = last.is_closed();
                self.index.insert(last.position, last.offset);
            }
            if offsets.start != state.offsets.start || state.offsets.is_empty() {
                let first = self.first_batch(offsets.clone())?;
                state.first = if offsets.start == 0 { state.start.min(first) } else { first };
                self.index.cut(first);
            }
        }
        state.offsets = offsets;
        Ok(state)
    }

    /// The record at an offset.
    fn read(&mut self, offset: i64) -> Result<Record, Unread> {
        self.fetcher.fetch(offset)?.ok_or(Unread::Removed)
    }

    /// The beginning of the first batch. A batch whose beginning was removed does not count.
    fn first_batch(&mut self, offsets: Range<i64>) -> Result<Offset, Unread> {
        let mut record = self.read(offsets.start)?;
        while !record.begins {
            if record.offset + 1 >= offsets.end {
                return Ok(record.end);
            }
            record = self.read(record.offset + 1)?;
        }
        Ok(record.position)
    }

    /// The first record that ends behind a position.
    pub(crate) fn find(&mut self, offsets: Range<i64>, position: Offset) -> Result<Option<&Record>, Unread> {
        let here = self.last.as_ref().is_some_and(|last| last.position <= position && position < last.end);
        if here {
            return Ok(self.last.as_ref());
        }
        if let Some(last) =
            self.last.take().filter(|last| last.end == position && last.offset + 1 < offsets.end)
        {
            self.index.insert(last.end, last.offset + 1);
        }
        self.last = find::find(&mut self.fetcher, &mut self.index, offsets, position)?;
        Ok(self.last.as_ref())
    }
}

fn level_error(unread: Unread) -> LevelError {
    match unread {
        Unread::Removed => lost(),
        Unread::Level(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    /// Records of ten bytes, of which some go before each fetch.
    struct Shrinking {
        offsets: RefCell<Range<i64>>,
        /// The first offset from then on, before each fetch.
        removals: VecDeque<i64>,
    }

    impl Fetch for Shrinking {
        type Error = Unread;

        fn offsets(&self) -> Result<Range<i64>, Unread> {
            Ok(self.offsets.borrow().clone())
        }

        fn fetch(&mut self, offset: i64) -> Result<Option<Record>, Unread> {
            let offsets = self.offsets.get_mut();
            offsets.start = self.removals.pop_front().unwrap_or(offsets.start);
            if !offsets.contains(&offset) {
                return Err(Unread::Removed);
            }
            let position = offset as u64 * 10;
            Ok(Some(Record { offset, epoch: 7, position, end: position + 10, bytes: None, begins: true }))
        }
    }

    fn look(removals: &[i64]) -> Result<(Offset, Offset, Range<i64>), LevelError> {
        let fetcher =
            Shrinking { offsets: RefCell::new(0..100), removals: removals.iter().copied().collect() };
        let unknown = State { epoch: Epoch::ANY, start: 0, first: 0, head: 0, offsets: 0..0, closed: false };
        Reader::new(fetcher).look(unknown).map(|state| (state.first, state.head, state.offsets))
    }

    #[test]
    fn records_removed_while_they_are_read_are_gone() {
        assert_eq!(look(&[]).expect("it has records"), (0, 1000, 0..100));
        // Between the answer and the read of its first record, twice.
        assert_eq!(look(&[0, 20, 20, 30]).expect("it has records"), (300, 1000, 30..100));
        // All of them, the last one too: the log begins where it starts.
        assert_eq!(look(&[100]).expect("Kafka answers"), (0, 0, 100..100));
    }

    #[test]
    fn records_that_are_named_and_not_given_are_an_error() {
        struct Lying;
        impl Fetch for Lying {
            type Error = Unread;
            fn offsets(&self) -> Result<Range<i64>, Unread> {
                Ok(0..100)
            }
            fn fetch(&mut self, _: i64) -> Result<Option<Record>, Unread> {
                Err(Unread::Removed)
            }
        }
        let unknown = State { epoch: Epoch::ANY, start: 0, first: 0, head: 0, offsets: 0..0, closed: false };
        let error = Reader::new(Lying).look(unknown).expect_err("it has none");
        assert!(error.is_temporary(), "{error}");
    }
}
