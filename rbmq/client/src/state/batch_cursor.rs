//! A cursor over the messages of a batch.

use rocketbufs::{Epoch, Position};

use crate::ground::error::ReceiveError;
use crate::state::batch::{Bytes, MessageRef};
use crate::wire::{
    Attributes, Framing, RUN_HEADER_BYTES, Record, RecordError, RecordFault, Records, Runs, TopicName,
    UnpackError,
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

/// The place of a message in the bytes of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The start of the attributes, which end where the content begins.
    attributes: usize,
    start: usize,
    end: usize,
}

impl Place {
    /// The place of a record that ends at `end`.
    #[inline]
    fn before(end: usize, record: Record<'_>) -> Self {
        let start = end - record.payload.len();
        Self { attributes: start - record.attributes.len(), start, end }
    }
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
    pub(crate) fn step(&mut self) -> Option<Place> {
        if self.framing != Framing::Records {
            return None;
        }
        let mut records = Records::new(self.bytes.as_slice().get(self.offset..)?);
        let record = records.next_record()?;
        let place = Place::before(self.offset + records.offset(), record);
        self.offset = place.end;
        Some(place)
    }

    /// Advances to the next message and returns its place; none after the last message.
    pub(crate) fn advance(&mut self) -> Result<Option<Place>, ReceiveError> {
        let bytes = self.bytes.as_slice().get(self.offset..).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(None);
        }
        match self.framing {
            Framing::Raw => {
                let (start, end) = (self.offset, self.offset + bytes.len());
                self.offset = end;
                Ok(Some(Place { attributes: start, start, end }))
            }
            Framing::Records => match self.step() {
                Some(place) => Ok(Some(place)),
                None => Err(self.malformed()),
            },
            Framing::Merged => self.advance_in_runs(),
        }
    }

    fn advance_in_runs(&mut self) -> Result<Option<Place>, ReceiveError> {
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
            let mut records = Records::new(bytes);
            let Some(record) = records.next_record() else { return Err(self.malformed()) };
            let place = Place::before(self.offset + records.offset(), record);
            self.offset = place.end;
            return Ok(Some(place));
        }
    }

    /// The next bytes are malformed. Skips the record, or if its end is unknown the rest of the batch or of the publisher's run.
    #[cold]
    fn malformed(&mut self) -> ReceiveError {
        let (from, bytes) = (self.offset, self.bytes.as_slice());
        let run = self.run.filter(|run| from < run.to);
        let end = run.map_or(bytes.len(), |run| run.to);
        let rest = bytes.get(from..end).unwrap_or_default();
        let nothing = RecordError::new(0, RecordFault::Cut { missing: 0 });
        let error = match (self.framing, run) {
            (Framing::Merged, None) => {
                self.offset = end;
                let error = Runs::new(rest).malformed().map(|mut error| {
                    error.offset += from;
                    UnpackError::Run(error)
                });
                error.unwrap_or(UnpackError::Record(nothing))
            }
            (_, run) => {
                let mut records = Records::new(rest);
                let mut error = records.skip_malformed().unwrap_or(nothing);
                error.offset += from;
                self.offset += records.offset();
                match run {
                    Some(RunAt { publisher, .. }) => UnpackError::Publisher { publisher, error },
                    None => UnpackError::Record(error),
                }
            }
        };
        ReceiveError::Malformed { topic: self.topic.clone(), error }
    }

    /// The message at the place that [`BatchCursor::advance`] returned.
    #[inline]
    pub(crate) fn message(&self, Place { attributes, start, end }: Place) -> MessageRef<'_> {
        let view = self.bytes.view();
        let to = match self.run {
            // A reader can resume only at the start of a run.
            Some(run) if end < run.to => run.from,
            _ => end,
        };
        MessageRef {
            topic: &self.topic,
            bytes: self.bytes.as_slice().get(start..end).unwrap_or_default(),
            attributes: Attributes::checked_before(
                self.bytes.as_slice().get(attributes..start).unwrap_or_default(),
            ),
            epoch: view.epoch(),
            end: view.position() + to as u64,
            publisher: self.run.map(|run| run.publisher),
        }
    }
}
