//! What a subscriber receives: several messages at once, where they landed, or one message copied.

use rocketbufs::{Epoch, InView, Position};

use super::error::ReceiveError;
use crate::wire::{Framing, Piece, TopicName, Unpack};

/// One message, copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its topic.
    pub topic: TopicName,
    /// Its bytes: a record, or (in a raw topic) whatever arrived together.
    pub bytes: Vec<u8>,
    /// The log that it belongs to: its publisher's.
    pub epoch: Epoch,
    /// Where it ends in that log: to go on behind it, begin there. In a merged topic one can only begin at a run: it is
    /// the end of its run for the last message in it, and the run's beginning for the others, which then come again.
    pub end: Position,
    /// Who published it, in a merged topic: the number that the broker gave to the publisher in this log.
    pub publisher: Option<u32>,
}

/// One message, borrowed where it landed until the subscriber is asked for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRef<'s> {
    /// Its topic.
    pub topic: &'s TopicName,
    /// Its bytes: a record, or (in a raw topic) whatever arrived together.
    pub bytes: &'s [u8],
    /// The log that it belongs to: its publisher's.
    pub epoch: Epoch,
    /// Where to go on behind it, as in [`Message::end`].
    pub end: Position,
    /// Who published it, in a merged topic, as in [`Message::publisher`].
    pub publisher: Option<u32>,
}

impl MessageRef<'_> {
    /// A copy that may be kept.
    pub fn to_message(self) -> Message {
        let Self { epoch, end, publisher, .. } = self;
        Message { topic: self.topic.clone(), bytes: self.bytes.to_vec(), epoch, end, publisher }
    }
}

/// The bytes of a view: where they landed, or copied out of memory that others may write, an overwritable buffer or
/// another process's (transport `shm`): at the beginning of a vector as long as the longest view so far.
pub(super) enum Bytes {
    Landed(InView),
    /// The copy ends with what the view still shows.
    Copied {
        copy: Vec<u8>,
        len: usize,
        view: InView,
    },
}

impl Bytes {
    /// Copies, if it must, into `spare`, which is given back by [`Bytes::consume`].
    pub(super) fn of(view: InView, spare: &mut Vec<u8>) -> Option<Self> {
        if view.as_slice().is_some() {
            return Some(Self::Landed(view));
        }
        if spare.len() < view.len() {
            spare.resize(view.len(), 0);
        }
        // Lapped between its arrival and now: the framework tells it as lost.
        view.copy_to(0, &mut spare[..view.len()]).ok()?;
        let (copy, len) = (std::mem::take(spare), view.len());
        Some(Self::Copied { copy, len, view })
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Landed(view) => view.as_slice().unwrap_or_default(),
            Self::Copied { copy, len, view } => &copy[len - view.len()..*len],
        }
    }

    pub(super) fn view(&self) -> &InView {
        let (Self::Landed(view) | Self::Copied { view, .. }) = self;
        view
    }

    fn consume_part(&mut self, position: Position) {
        let (Self::Landed(view) | Self::Copied { view, .. }) = self;
        view.consume_part(position);
    }

    pub(super) fn into_view(self, spare: &mut Vec<u8>) -> InView {
        match self {
            Self::Landed(view) => view,
            Self::Copied { copy, view, .. } => {
                *spare = copy;
                view
            }
        }
    }

    /// Gives the space of the bytes back to their writer, and that of a copy to `spare`.
    pub(super) fn consume(self, spare: &mut Vec<u8>) {
        self.into_view(spare).consume();
    }
}

/// Whole deliveries of one buffer, borrowed where they landed. Dropping it gives its space back to the publisher;
/// [`Batch::keep`] does not.
pub struct Batch<'s> {
    pub(super) bytes: Option<Bytes>,
    pub(super) topic: TopicName,
    pub(super) framing: Framing,
    /// The subscriber's, for its next copy; and so there is one batch at a time.
    pub(super) spare: &'s mut Vec<u8>,
}

impl Batch<'_> {
    /// The topic.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// Whether there are records in it, or plain bytes.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    fn view(&self) -> &InView {
        self.bytes().view()
    }

    fn bytes(&self) -> &Bytes {
        // Taken only by `keep` and `drop`, which end the batch.
        self.bytes.as_ref().expect("a batch has its bytes as long as it lives")
    }

    /// The log: its publisher's.
    pub fn epoch(&self) -> Epoch {
        self.view().epoch()
    }

    /// Position of the first byte.
    pub fn position(&self) -> Position {
        self.view().position()
    }

    /// Position behind the last byte: where to go on.
    pub fn end(&self) -> Position {
        self.view().end()
    }

    /// All bytes, with the records' headers if there are records.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes().as_slice()
    }

    /// The records, borrowed; in a merged topic those of all publishers. What is no record is passed over. In a raw
    /// topic there are none: use [`Batch::as_slice`].
    pub fn records(&self) -> Unpack<'_> {
        match self.framing {
            Framing::Records => Unpack::records(self.as_slice()),
            Framing::Merged => Unpack::merged(self.as_slice()),
            Framing::Raw => Unpack::records(&[]),
        }
    }

    /// As [`Batch::records`]; but what is no record is an error in its place.
    ///
    /// # Errors
    /// In the place of what is no record. In a merged topic that ends only the run that it is in.
    pub fn checked_records(&self) -> impl Iterator<Item = Result<&[u8], ReceiveError>> {
        self.pieces().map(|piece| piece.map(|piece| piece.record))
    }

    /// The records of a merged topic, each with the number of its publisher; none of any other topic.
    ///
    /// # Errors
    /// As [`Batch::checked_records`].
    pub fn published_records(&self) -> impl Iterator<Item = Result<(u32, &[u8]), ReceiveError>> {
        self.pieces().filter_map(|piece| match piece {
            Ok(Piece { record, publisher, .. }) => publisher.map(|number| Ok((number, record))),
            Err(error) => Some(Err(error)),
        })
    }

    /// Every record with where it lies in [`Batch::as_slice`] and whose it is; positions are offsets behind
    /// [`Batch::position`].
    ///
    /// # Errors
    /// As [`Batch::checked_records`].
    pub fn pieces(&self) -> impl Iterator<Item = Result<Piece<'_>, ReceiveError>> {
        let malformed = |error| ReceiveError::Malformed { topic: self.topic.clone(), error };
        self.records().checked().map(move |piece| piece.map_err(malformed))
    }

    /// Gives back the space below `position` already, a place to go on at as for [`Batch::consume_up_to`]; the batch begins
    /// there from now on. For those who take long for a batch: its publisher goes on meanwhile.
    pub fn consume_part(&mut self, position: Position) {
        if let Some(bytes) = &mut self.bytes {
            bytes.consume_part(position);
        }
    }

    /// Gives back the space below `position` only, of a batch that was not taken to its end. A place to go on at is where a
    /// record ends ([`Piece::to`]); a named subscriber that comes back later goes on where the delivery begins that it is in.
    pub fn consume_up_to(mut self, position: Position) {
        if let Some(bytes) = self.bytes.take() {
            bytes.into_view(self.spare).consume_up_to(position);
        }
    }

    /// Keeps the space: what comes later is received, but nothing from here on is given back until
    /// [`Kept::release`]. For those who work on data later, or confirm it only when it is safe elsewhere.
    pub fn keep(mut self) -> Kept {
        Kept(self.bytes.take().map(|bytes| bytes.into_view(self.spare)))
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

/// Space of a buffer that was received and is not given back yet. Dropping it gives nothing back; releasing a later
/// one of the same buffer gives back all before it too.
#[derive(Debug)]
pub struct Kept(Option<InView>);

impl Kept {
    /// The log.
    pub fn epoch(&self) -> Option<Epoch> {
        self.0.as_ref().map(InView::epoch)
    }

    /// Gives the space back, with all before it.
    pub fn release(self) {
        if let Some(view) = self.0 {
            view.consume();
        }
    }

    /// Gives back what lies below `position`, as [`Batch::consume_up_to`] does.
    pub fn release_up_to(self, position: Position) {
        if let Some(view) = self.0 {
            view.consume_up_to(position);
        }
    }
}
