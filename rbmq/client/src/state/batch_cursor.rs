//! A cursor over the messages of a batch.

use std::sync::Arc;

use rbmq_wire::Levels;
use rocketbufs::{Epoch, Position};

use crate::ground::error::ReceiveError;
use crate::state::batch::{Bytes, MessageRef};
use crate::state::space_reader::{Part, SpaceReader, SpaceView};
use crate::wire::{
    ATTRIBUTES_HEADER_BYTES, Attributes, Framing, RECORD_HEADER_BYTES, RUN_HEADER_BYTES, Record, RecordError,
    RecordFault, Records, Runs, TopicName, UnpackError,
};

/// A batch and the next message in it, for [`Subscriber::recv_ref`](crate::Subscriber::recv_ref).
pub(crate) struct BatchCursor {
    bytes: Bytes,
    /// The start of the next message.
    offset: usize,
    /// The topic; in a space, that of the last message.
    topic: TopicName,
    framing: Framing,
    /// In a merged topic: the run that contains `offset`.
    run: Option<RunAt>,
    space: Option<SpaceView>,
    /// In a space: the next message of the run that is wanted, if it was looked for.
    next: Option<(Place, TopicName)>,
    /// In a space: whether messages were received one by one, and not as parts.
    received: bool,
}

/// The publisher and the range, with the header, of a run in a merged topic.
#[derive(Debug, Clone, Copy)]
struct RunAt {
    publisher: u32,
    from: usize,
    to: usize,
}

/// What follows in a run of a space.
enum InRun {
    Wanted(Place, TopicName),
    End,
    /// A record of the publisher is malformed.
    Malformed,
    /// A record names no topic of the space, and ends there.
    Nameless(usize),
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
    pub(crate) fn new(bytes: Bytes, topic: TopicName, framing: Framing, space: Option<SpaceView>) -> Self {
        Self { bytes, offset: 0, topic, framing, run: None, space, next: None, received: false }
    }

    /// Consumes the whole batch.
    pub(crate) fn consume(self, spare: &mut Vec<u8>, reader: &mut SpaceReader) {
        let end = self.bytes.end();
        self.consume_up_to(end, spare, reader);
    }

    fn consume_up_to(self, to: Position, spare: &mut Vec<u8>, reader: &mut SpaceReader) {
        match (&self.space, self.bytes.into_view(spare)) {
            (Some(_), Some(view)) => reader.retire(view, to, self.received),
            (_, view) => view.into_iter().for_each(|view| view.consume_up_to(to)),
        }
    }

    /// Whether nothing follows.
    pub(crate) fn is_at_end(&self) -> bool {
        self.next.is_none() && self.offset >= self.bytes.as_slice().len()
    }

    /// The log of the batch.
    pub(crate) fn epoch(&self) -> Epoch {
        self.bytes.epoch()
    }

    /// Whether the batch is of a space.
    pub(crate) fn is_of_space(&self) -> bool {
        self.space.is_some()
    }

    /// The subscriber has other filters.
    pub(crate) fn set_wanted(&mut self, wanted: &Arc<Levels<()>>) {
        if let Some(space) = &mut self.space {
            *space = SpaceView::new(space.space.clone(), wanted.clone());
            self.next = None;
        }
    }

    /// The position behind the messages that were taken.
    fn taken(&self) -> Position {
        let taken = match self.run {
            // A reader can resume only at the start of a run.
            Some(run) if self.offset < run.to => run.from,
            _ => self.offset,
        };
        self.bytes.position() + taken as u64
    }

    /// Consumes the messages that were taken.
    pub(crate) fn consume_taken(self, spare: &mut Vec<u8>, reader: &mut SpaceReader) {
        let to = self.taken();
        self.consume_up_to(to, spare, reader);
    }

    /// The messages that were not taken; none if all were, and the batch is consumed.
    pub(crate) fn into_rest(mut self, spare: &mut Vec<u8>) -> Option<(Bytes, TopicName, Framing)> {
        if self.offset >= self.bytes.as_slice().len() {
            self.bytes.consume(spare);
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
    pub(crate) fn advance(&mut self, reader: &mut SpaceReader) -> Result<Option<Place>, ReceiveError> {
        if self.space.is_some() {
            self.received = true;
            return self.advance_in_space(reader);
        }
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

    /// The run that contains the next message; none at the end. A run has a byte at least.
    fn present_run(&mut self) -> Result<Option<RunAt>, ReceiveError> {
        loop {
            if let Some(run) = self.run.filter(|run| self.offset < run.to) {
                return Ok(Some(run));
            }
            let rest = self.bytes.as_slice().get(self.offset..).unwrap_or_default();
            let mut runs = Runs::new(rest);
            let Some(run) = runs.next() else {
                return if rest.is_empty() { Ok(None) } else { Err(self.malformed()) };
            };
            let (from, to) = (self.offset, self.offset + runs.offset());
            self.run = Some(RunAt { publisher: run.publisher, from, to });
            self.offset += RUN_HEADER_BYTES;
        }
    }

    /// Advances to the next message of a space that the subscriber wants.
    fn advance_in_space(&mut self, reader: &mut SpaceReader) -> Result<Option<Place>, ReceiveError> {
        loop {
            let Some(run) = self.present_run()? else { return Ok(None) };
            let found = match self.next.take() {
                Some((place, topic)) => InRun::Wanted(place, topic),
                None => self.find(reader, run),
            };
            match found {
                InRun::End => {}
                InRun::Malformed => return Err(self.malformed()),
                InRun::Nameless(end) => {
                    let error = RecordError::new(self.offset, RecordFault::Topic);
                    let error = UnpackError::Publisher { publisher: run.publisher, error };
                    self.offset = end;
                    return Err(ReceiveError::Malformed { topic: self.log(), error });
                }
                InRun::Wanted(place, topic) => {
                    (self.offset, self.topic) = (place.end, topic);
                    // A reader can resume behind the last record of the run that it wants.
                    if let InRun::Wanted(place, topic) = self.find(reader, run) {
                        self.next = Some((place, topic));
                    }
                    return Ok(Some(place));
                }
            }
        }
    }

    /// Goes on to the next record of the run that is wanted or malformed.
    fn find(&mut self, reader: &mut SpaceReader, run: RunAt) -> InRun {
        let Some(space) = &self.space else { return InRun::End };
        let bytes = self.bytes.as_slice().get(self.offset..run.to).unwrap_or_default();
        let (mut records, base) = (Records::new(bytes), self.offset);
        while self.offset < run.to {
            let Some(record) = records.next_record() else { return InRun::Malformed };
            let place = Place::before(base + records.offset(), record);
            match reader.topic_of(space, record.attributes) {
                Ok(Some(topic)) => return InRun::Wanted(place, topic),
                Ok(None) => self.offset = place.end,
                Err(_) => return InRun::Nameless(place.end),
            }
        }
        InRun::End
    }

    /// The name of the log.
    fn log(&self) -> TopicName {
        self.space.as_ref().map_or(&self.topic, |space| space.space.log()).clone()
    }

    /// The next records of one topic of a space that lie beside each other, or what a publisher did wrong; none at the end.
    pub(crate) fn next_part(&mut self, reader: &mut SpaceReader) -> Option<(TopicName, Part)> {
        let first = self.advance_in_space(reader).transpose()?;
        let run = self.run.unwrap_or(RunAt { publisher: 0, from: self.offset, to: self.offset });
        let start_of = |place: Place| place.attributes - RECORD_HEADER_BYTES - ATTRIBUTES_HEADER_BYTES;
        let (topic, range, fault) = match first {
            Ok(place) => {
                let (topic, from, mut to) = (self.topic.clone(), start_of(place), place.end);
                while let Some((place, next)) = &self.next
                    && *next == topic
                    && start_of(*place) == to
                    && let Ok(Some(place)) = self.advance_in_space(reader)
                {
                    to = place.end;
                }
                (topic, from..to, None)
            }
            Err(ReceiveError::Malformed { error, .. }) => (self.log(), 0..0, Some(error)),
            Err(_) => return None,
        };
        let (epoch, start) = (self.epoch(), self.bytes.position());
        let end = if self.offset < run.to { run.from } else { run.to };
        let (position, end) = (start + run.from as u64, start + end as u64);
        let part = Part {
            bytes: self.bytes.as_slice().get(range).unwrap_or_default().to_vec(),
            epoch,
            position,
            end,
            publisher: run.publisher,
            fault,
            open: reader.hand_out(epoch, position, end),
        };
        Some((topic, part))
    }

    fn advance_in_runs(&mut self) -> Result<Option<Place>, ReceiveError> {
        let Some(run) = self.present_run()? else { return Ok(None) };
        let bytes = self.bytes.as_slice().get(self.offset..run.to).unwrap_or_default();
        let mut records = Records::new(bytes);
        let Some(record) = records.next_record() else { return Err(self.malformed()) };
        let place = Place::before(self.offset + records.offset(), record);
        self.offset = place.end;
        Ok(Some(place))
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
        ReceiveError::Malformed { topic: self.log(), error }
    }

    /// The message at the place that [`BatchCursor::advance`] returned.
    #[inline]
    pub(crate) fn message(&self, Place { attributes, start, end }: Place) -> MessageRef<'_> {
        let to = match self.run {
            // A reader can resume only at the start of a run.
            Some(run) if self.offset < run.to => run.from,
            _ => self.offset,
        };
        MessageRef {
            topic: &self.topic,
            bytes: self.bytes.as_slice().get(start..end).unwrap_or_default(),
            attributes: Attributes::checked_before(
                self.bytes.as_slice().get(attributes..start).unwrap_or_default(),
            ),
            epoch: self.bytes.epoch(),
            end: self.bytes.position() + to as u64,
            publisher: self.run.map(|run| run.publisher),
            framing: self.framing,
        }
    }
}
