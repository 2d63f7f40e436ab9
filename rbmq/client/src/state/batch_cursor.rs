//! A cursor over the messages of a batch.

use std::ops::Range;

use rocketbufs::{Epoch, Position};

use crate::ground::error::ReceiveError;
use crate::state::batch::{Bytes, MessageRef};
use crate::wire::{
    Framing, RECORD_HEADER_BYTES, RUN_HEADER_BYTES, RecordError, Records, Runs, TopicName, UnpackError,
};

/// A batch and the next message in it, for [`Subscriber::recv_ref`](crate::Subscriber::recv_ref).
pub(crate) struct BatchCursor {
    bytes: Bytes,
    /// The start of the next message.
    offset: usize,
    topic: TopicName,
    framing: Framing,
    /// In a merged topic: the run that contains `offset`.
    run: Option<RunAt>,
}

/// The publisher and the range, with the header, of a run in a merged topic.
#[derive(Debug, Clone, Copy)]
struct RunAt {
    publisher: u32,
    from: usize,
    to: usize,
}

impl BatchCursor {
    pub(crate) fn new(bytes: Bytes, topic: TopicName, framing: Framing) -> Self {
        Self { bytes, offset: 0, topic, framing, run: None }
    }

    /// Consumes the whole batch.
    pub(crate) fn consume(self, spare: &mut Vec<u8>) {
        self.bytes.consume(spare);
    }

    /// The log of the batch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.bytes.view().epoch()
    }

    /// The position behind the messages that were taken.
    fn taken(&self) -> Position {
        let taken = match self.run {
            // A reader can resume only at the start of a run.
            Some(run) if self.offset < run.to => run.from,
            _ => self.offset,
        };
        self.bytes.view().position() + taken as u64
    }

    /// Consumes the messages that were taken.
    pub(crate) fn consume_taken(self, spare: &mut Vec<u8>) {
        let to = self.taken();
        self.bytes.into_view(spare).consume_up_to(to);
    }

    /// The messages that were not taken; none if all were, and the batch is consumed.
    pub(crate) fn into_rest(mut self, spare: &mut Vec<u8>) -> Option<(Bytes, TopicName, Framing)> {
        if self.offset >= self.bytes.as_slice().len() {
            self.consume(spare);
            return None;
        }
        self.bytes.consume_part(self.taken());
        Some((self.bytes, self.topic, self.framing))
    }

    /// Advances to the next message if that is a well-formed record behind the last one, which costs least.
    #[inline]
    pub(crate) fn step(&mut self) -> Option<Range<usize>> {
        if self.framing != Framing::Records {
            return None;
        }
        let record = Records::new(self.bytes.as_slice().get(self.offset..)?).next()?;
        let start = self.offset + RECORD_HEADER_BYTES;
        self.offset = start + record.len();
        Some(start..self.offset)
    }

    /// Advances to the next message and returns the range of its bytes; none after the last message.
    pub(crate) fn advance(&mut self) -> Result<Option<Range<usize>>, ReceiveError> {
        let bytes = self.bytes.as_slice().get(self.offset..).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(None);
        }
        let (header, len) = match self.framing {
            Framing::Raw => (0, bytes.len()),
            Framing::Records => match Records::new(bytes).next() {
                Some(record) => (RECORD_HEADER_BYTES, record.len()),
                None => return Err(self.malformed()),
            },
            Framing::Merged => return self.advance_in_runs(),
        };
        let start = self.offset + header;
        self.offset = start + len;
        Ok(Some(start..self.offset))
    }

    fn advance_in_runs(&mut self) -> Result<Option<Range<usize>>, ReceiveError> {
        loop {
            let Some(run) = self.run.filter(|run| self.offset < run.to) else {
                let rest = self.bytes.as_slice().get(self.offset..).unwrap_or_default();
                let mut runs = Runs::new(rest);
                let Some(run) = runs.next() else {
                    return if rest.is_empty() { Ok(None) } else { Err(self.malformed()) };
                };
                let (from, to) = (self.offset, self.offset + runs.offset());
                self.run = Some(RunAt { publisher: run.publisher, from, to });
                self.offset += RUN_HEADER_BYTES;
                continue;
            };
            let bytes = self.bytes.as_slice().get(self.offset..run.to).unwrap_or_default();
            let Some(record) = Records::new(bytes).next() else { return Err(self.malformed()) };
            let start = self.offset + RECORD_HEADER_BYTES;
            self.offset = start + record.len();
            return Ok(Some(start..self.offset));
        }
    }

    /// The next bytes are malformed. Skips the rest of the batch, or of the publisher's run.
    #[cold]
    fn malformed(&mut self) -> ReceiveError {
        let bytes = self.bytes.as_slice();
        let run = self.run.filter(|run| self.offset < run.to);
        let end = run.map_or(bytes.len(), |run| run.to);
        let rest = bytes.get(self.offset..end).unwrap_or_default();
        let error = match (self.framing, run) {
            (Framing::Merged, None) => {
                let error = Runs::new(rest).malformed().map(|mut error| {
                    error.offset += self.offset;
                    UnpackError::Run(error)
                });
                error.unwrap_or(UnpackError::Record(RecordError::new(self.offset, 0)))
            }
            (_, run) => {
                let malformed = Records::new(rest).malformed();
                let mut error = malformed.unwrap_or(RecordError::new(0, 0));
                error.offset += self.offset;
                match run {
                    Some(RunAt { publisher, .. }) => UnpackError::Publisher { publisher, error },
                    None => UnpackError::Record(error),
                }
            }
        };
        self.offset = end;
        ReceiveError::Malformed { topic: self.topic.clone(), error }
    }

    /// The message with the range that [`BatchCursor::advance`] returned.
    #[inline]
    pub(crate) fn message(&self, range: Range<usize>) -> MessageRef<'_> {
        let Range { start, end } = range;
        let view = self.bytes.view();
        let to = match self.run {
            // A reader can resume only at the start of a run.
            Some(run) if end < run.to => run.from,
            _ => end,
        };
        MessageRef {
            topic: &self.topic,
            bytes: self.bytes.as_slice().get(start..end).unwrap_or_default(),
            epoch: view.epoch(),
            end: view.position() + to as u64,
            publisher: self.run.map(|run| run.publisher),
        }
    }
}
