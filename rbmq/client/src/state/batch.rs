//! Received messages: several at once in the memory where they landed, or one as a copy.

use rocketbufs::{Epoch, InView, Position};

use crate::ground::error::ReceiveError;
use crate::state::space_parts::OpenPart;
use crate::state::space_reader::{Part, PlacesInSpace};
use crate::wire::{Attributes, AttributesBuf, Framing, Piece, TopicName, Unpack};

/// A copy of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The topic.
    pub topic: TopicName,
    /// The content: a record, or in a raw topic the bytes that arrived together.
    pub bytes: Vec<u8>,
    /// What the record says about its content; empty without attributes, which costs nothing.
    pub attributes: AttributesBuf,
    /// The log of its publisher.
    pub epoch: Epoch,
    /// The position at which to resume behind this message. In a merged topic, a subscriber can resume only at a run: the
    /// position is the end of the run for its last message, and the start of the run for the others, which then come again.
    pub end: Position,
    /// In a merged topic: the number of the publisher, which the broker assigned in this log.
    pub publisher: Option<u32>,
    /// The structure of the topic's bytes: in a raw topic the content is no record.
    pub framing: Framing,
}

/// A message in the memory where it landed. The message is borrowed until the next call on the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRef<'s> {
    /// The topic.
    pub topic: &'s TopicName,
    /// The content: a record, or in a raw topic the bytes that arrived together.
    pub bytes: &'s [u8],
    /// What the record says about its content; empty without attributes.
    pub attributes: Attributes<'s>,
    /// The log of its publisher.
    pub epoch: Epoch,
    /// The position at which to resume, as [`Message::end`].
    pub end: Position,
    /// In a merged topic: the publisher, as [`Message::publisher`].
    pub publisher: Option<u32>,
    /// The structure of the topic's bytes, as [`Message::framing`].
    pub framing: Framing,
}

impl MessageRef<'_> {
    /// A copy of the message.
    pub fn to_message(self) -> Message {
        let Self { epoch, end, publisher, framing, .. } = self;
        let (topic, attributes) = (self.topic.clone(), self.attributes.into());
        Message { topic, bytes: self.bytes.to_vec(), attributes, epoch, end, publisher, framing }
    }
}

/// The bytes of a view: in the memory where they landed, or as a copy if another process may write that memory (an
/// overwritable buffer, or the transport `shm`). A copy is at the start of a vector that is as long as the longest view so far.
pub(crate) enum Bytes {
    Landed(InView),
    /// The last `view.len()` bytes of the copy are the bytes that the view still has.
    Copied {
        copy: Vec<u8>,
        len: usize,
        view: InView,
    },
    /// Records of a space. The subscriber, or what it keeps of the log, has the view.
    Part(Part),
}

impl Bytes {
    /// Copies the bytes, if necessary, into `spare`. [`Bytes::consume`] returns the vector to `spare`. Releases a view whose bytes
    /// were overwritten since they arrived, and returns `None`: the framework confirms nothing of it, and does not report the
    /// loss.
    pub(crate) fn of(view: InView, spare: &mut Vec<u8>) -> Option<Self> {
        if view.as_slice().is_some() {
            return Some(Self::Landed(view));
        }
        if spare.len() < view.len() {
            spare.resize(view.len(), 0);
        }
        if view.copy_to(0, &mut spare[..view.len()]).is_err() {
            view.consume();
            return None;
        }
        let (copy, len) = (std::mem::take(spare), view.len());
        Some(Self::Copied { copy, len, view })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Landed(view) => view.as_slice().unwrap_or_default(),
            Self::Copied { copy, len, view } => &copy[len - view.len()..*len],
            Self::Part(part) => &part.bytes,
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        match self {
            Self::Landed(view) | Self::Copied { view, .. } => view.epoch(),
            Self::Part(part) => part.epoch,
        }
    }

    pub(crate) fn position(&self) -> Position {
        match self {
            Self::Landed(view) | Self::Copied { view, .. } => view.position(),
            Self::Part(part) => part.position,
        }
    }

    pub(crate) fn end(&self) -> Position {
        match self {
            Self::Landed(view) | Self::Copied { view, .. } => view.end(),
            Self::Part(part) => part.end,
        }
    }

    fn places_in_space(&self) -> Option<PlacesInSpace> {
        match self {
            Self::Part(part) => Some(part.places()),
            _ => None,
        }
    }

    pub(crate) fn consume_part(&mut self, position: Position) {
        match self {
            Self::Landed(view) | Self::Copied { view, .. } => view.consume_part(position),
            Self::Part(part) if position >= part.end && part.end > part.position => {
                part.bytes.clear();
                (part.position, part.fault) = (part.end, None);
                part.open.consume();
            }
            Self::Part(_) => {}
        }
    }

    /// The view, and the vector of a copy to `spare`. A part of a space has none.
    pub(crate) fn into_view(self, spare: &mut Vec<u8>) -> Option<InView> {
        match self {
            Self::Landed(view) => Some(view),
            Self::Copied { copy, view, .. } => {
                *spare = copy;
                Some(view)
            }
            Self::Part(_) => None,
        }
    }

    /// Returns the space in the ring to the writer, and the vector of a copy to `spare`.
    pub(crate) fn consume(self, spare: &mut Vec<u8>) {
        match self {
            Self::Part(mut part) => part.open.consume(),
            bytes => bytes.into_view(spare).into_iter().for_each(InView::consume),
        }
    }

    fn consume_up_to(self, position: Position, spare: &mut Vec<u8>) {
        match self {
            Self::Part(part) => part.open.consume_up_to(position),
            bytes => bytes.into_view(spare).into_iter().for_each(|view| view.consume_up_to(position)),
        }
    }

    fn defer(self, spare: &mut Vec<u8>) -> DeferredBatch {
        let epoch = self.epoch();
        match self {
            Self::Part(Part { open, .. }) => DeferredBatch { epoch, deferred: Deferred::Part(open) },
            bytes => {
                let view = bytes.into_view(spare);
                DeferredBatch { epoch, deferred: view.map_or(Deferred::Nothing, Deferred::View) }
            }
        }
    }
}

/// Only methods that end a batch take its bytes.
const HAS_BYTES: &str = "a batch has its bytes until it is consumed or deferred";

/// Whole deliveries of one buffer, borrowed in the memory where they landed. Dropping the batch consumes it: its space returns
/// to the publisher, and it counts as consumed. [`Batch::defer`] postpones that.
///
/// Of a space, a batch has records of one topic that lie beside each other in the log, as a copy. Their space returns when everything
/// that arrived together with them was handed out, and nothing before it is open.
pub struct Batch<'s> {
    pub(crate) bytes: Option<Bytes>,
    pub(crate) topic: TopicName,
    pub(crate) framing: Framing,
    /// The subscriber's vector for the next copy. The borrow also limits the application to one batch at a time.
    pub(crate) spare: &'s mut Vec<u8>,
}

impl Batch<'_> {
    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The structure of the bytes.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    fn bytes(&self) -> &Bytes {
        self.bytes.as_ref().expect(HAS_BYTES)
    }

    /// The log of the publisher.
    pub fn epoch(&self) -> Epoch {
        self.bytes().epoch()
    }

    /// The position of the first byte.
    pub fn position(&self) -> Position {
        self.bytes().position()
    }

    /// The position behind the last byte, at which to resume.
    pub fn end(&self) -> Position {
        self.bytes().end()
    }

    /// All bytes, including the headers of records.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes().as_slice()
    }

    /// The records; in a merged topic those of all publishers. Malformed bytes are skipped. A raw topic has no records: use
    /// [`Batch::as_slice`].
    pub fn records(&self) -> Unpack<'_> {
        match self.framing {
            Framing::Records => Unpack::records(self.as_slice()),
            Framing::Merged => Unpack::merged(self.as_slice()),
            Framing::Raw => Unpack::records(&[]),
        }
    }

    /// As [`Batch::records`], with an error in the place of malformed bytes.
    ///
    /// # Errors
    /// [`ReceiveError::Malformed`]. In a merged topic, the error skips only the rest of its run, and with malformed attributes only the
    /// record.
    pub fn checked_records(&self) -> impl Iterator<Item = Result<&[u8], ReceiveError>> {
        self.pieces().map(|piece| piece.map(|piece| piece.record))
    }

    /// The records of a merged topic, each with the number of its publisher. Other topics have none.
    ///
    /// # Errors
    /// As [`Batch::checked_records`].
    pub fn published_records(&self) -> impl Iterator<Item = Result<(u32, &[u8]), ReceiveError>> {
        self.pieces().filter_map(|piece| match piece {
            Ok(Piece { record, publisher, .. }) => publisher.map(|number| Ok((number, record))),
            Err(error) => Some(Err(error)),
        })
    }

    /// The records with their attributes, their ranges in [`Batch::as_slice`] and their publishers. Offsets count from [`Batch::position`].
    ///
    /// # Errors
    /// As [`Batch::checked_records`].
    pub fn pieces(&self) -> impl Iterator<Item = Result<Piece<'_>, ReceiveError>> {
        let malformed = |error| ReceiveError::Malformed { topic: self.topic.clone(), error };
        let places = self.places_in_space();
        let fault = places.and_then(|places| places.fault()).map(Err);
        let pieces = self.records().checked().map(move |piece| match places {
            None => piece,
            Some(places) => piece.map(|piece| places.place(piece)),
        });
        fault.into_iter().chain(pieces).map(move |piece| piece.map_err(malformed))
    }

    /// The places of the records of a space.
    #[doc(hidden)]
    pub fn places_in_space(&self) -> Option<PlacesInSpace> {
        self.bytes().places_in_space()
    }

    /// Consumes the messages below `position`, which must be as for [`Batch::consume_up_to`]. The batch begins there from now
    /// on. An application that needs long for a batch so lets its publisher continue.
    pub fn consume_part(&mut self, position: Position) {
        if let Some(bytes) = &mut self.bytes {
            bytes.consume_part(position);
        }
    }

    /// Consumes only the messages below `position`, which must be the end of a record ([`Piece::to`]). A durable subscriber
    /// that returns later resumes at the start of the delivery that contains the position; in a space or another merged topic at the
    /// start of its run.
    pub fn consume_up_to(mut self, position: Position) {
        if let Some(bytes) = self.bytes.take() {
            bytes.consume_up_to(position, self.spare);
        }
    }

    /// Makes the batch independent of the borrow of its subscriber, so that later batches can be received while this one is
    /// read. Copied bytes go with it; nothing else is copied.
    pub fn into_owned(mut self) -> OwnedBatch {
        let bytes = self.bytes.take().expect(HAS_BYTES);
        OwnedBatch { bytes: Some(bytes), topic: self.topic.clone(), framing: self.framing }
    }

    /// Ends the batch without consuming it. Later batches can be received, but no space from here on returns to the publisher
    /// before [`DeferredBatch::consume`]. For applications that count messages as consumed only when they are safe elsewhere.
    pub fn defer(mut self) -> DeferredBatch {
        let bytes = self.bytes.take().expect(HAS_BYTES);
        bytes.defer(self.spare)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            bytes.consume(self.spare);
        }
    }
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = self.position()..self.end();
        f.debug_struct("Batch").field("topic", &self.topic).field("range", &range).finish_non_exhaustive()
    }
}

/// A [`Batch`] that borrows nothing: other batches can be received while it lives, and it may outlive its subscriber. Its bytes
/// stay where they landed, and their space returns to the publisher when the batch is consumed or dropped. Space of later
/// batches of the same buffer returns only after that. For applications that hand batches to other threads, and for other
/// languages.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut subscriber = rbmq::Subscriber::connect("127.0.0.1:7411")?;
/// let (send, batches) = std::sync::mpsc::sync_channel::<rbmq::OwnedBatch>(4);
/// let counter = std::thread::spawn(move || batches.iter().map(|batch| batch.as_slice().len()).sum::<usize>());
/// while let Some(batch) = subscriber.next_batch(None)? {
///     send.send(batch.into_owned())?;
/// }
/// # drop(counter);
/// # Ok(())
/// # }
/// ```
pub struct OwnedBatch {
    bytes: Option<Bytes>,
    topic: TopicName,
    framing: Framing,
}

impl OwnedBatch {
    fn bytes(&self) -> &Bytes {
        self.bytes.as_ref().expect(HAS_BYTES)
    }

    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The structure of the bytes.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The log of the publisher.
    pub fn epoch(&self) -> Epoch {
        self.bytes().epoch()
    }

    /// The position of the first byte.
    pub fn position(&self) -> Position {
        self.bytes().position()
    }

    /// The position behind the last byte, at which to resume.
    pub fn end(&self) -> Position {
        self.bytes().end()
    }

    /// All bytes, including the headers of records. They stay at one address while the batch lives, also if it is moved.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes().as_slice()
    }

    /// Whether the bytes are a copy, since another process may write the memory where they landed.
    pub fn is_copy(&self) -> bool {
        matches!(self.bytes(), Bytes::Copied { .. } | Bytes::Part(_))
    }

    /// The places of the records of a space.
    #[doc(hidden)]
    pub fn places_in_space(&self) -> Option<PlacesInSpace> {
        self.bytes().places_in_space()
    }

    /// Consumes only the messages below `position`, as [`Batch::consume_up_to`] does.
    pub fn consume_up_to(mut self, position: Position) {
        if let Some(bytes) = self.bytes.take() {
            bytes.consume_up_to(position, &mut Vec::new());
        }
    }

    /// Ends the batch without consuming it, as [`Batch::defer`] does.
    pub fn defer(mut self) -> DeferredBatch {
        let bytes = self.bytes.take().expect(HAS_BYTES);
        bytes.defer(&mut Vec::new())
    }
}

impl Drop for OwnedBatch {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            bytes.consume(&mut Vec::new());
        }
    }
}

impl std::fmt::Debug for OwnedBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = self.position()..self.end();
        f.debug_struct("OwnedBatch")
            .field("topic", &self.topic)
            .field("range", &range)
            .finish_non_exhaustive()
    }
}

/// A received batch that is not consumed yet. Dropping it consumes nothing. Consuming a later batch of the same buffer
/// consumes this one too. Records of a space that the subscriber does not want are no such batch: they wait for one.
#[derive(Debug)]
pub struct DeferredBatch {
    epoch: Epoch,
    deferred: Deferred,
}

#[derive(Debug)]
enum Deferred {
    View(InView),
    /// The records of a space.
    Part(OpenPart),
    Nothing,
}

impl DeferredBatch {
    /// The log of the publisher.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Consumes the batch, and all earlier ones of the buffer.
    pub fn consume(self) {
        match self.deferred {
            Deferred::View(view) => view.consume(),
            Deferred::Part(mut part) => part.consume(),
            Deferred::Nothing => {}
        }
    }

    /// Consumes only the messages below `position`, as [`Batch::consume_up_to`] does.
    pub fn consume_up_to(self, position: Position) {
        match self.deferred {
            Deferred::View(view) => view.consume_up_to(position),
            Deferred::Part(part) => part.consume_up_to(position),
            Deferred::Nothing => {}
        }
    }
}
