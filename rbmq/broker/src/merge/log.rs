//! The ends of a merged topic: the rings of its publishers, and the log that they are copied into.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use access::Charge;
use rbmq_wire::Control;
use rocketbufs::{Bid, Coverage, Epoch, InView, OutWriter, Position, ProgressLevel, RIn, SegmentError};
use tracing::{info, warn};

use super::super::admission::Admission;
use super::super::kept::{Archived, Place, Store};
use super::super::outgoing::send;
use super::super::session_key::SessionKey;
use super::disk::{DiskReport, DiskState};
use super::local::{Batch, LocalRing};
use super::merger::{AppendError, Log, Piece, Reached, SourceRing};

/// The writer's end of a merged log.
pub(super) struct MergedLog {
    pub(super) writer: OutWriter,
    /// For what the ring grows.
    pub(super) growth: Growth,
    /// The log on disk of a kept topic.
    pub(super) store: Option<Store>,
    /// The archive below it, if there is one.
    pub(super) archive: Option<Arc<Archived>>,
    /// Why the disk took no data, until it works again.
    pub(super) failure: Option<String>,
    /// Why the last sync failed, until the bytes that are not on the disk were written anew.
    pub(super) sync_failure: Option<String>,
}

/// For what the ring of a merged log grows, and who has let it grow.
#[derive(Default)]
pub(super) struct Growth {
    /// The largest delivery; 0: none.
    largest: u64,
    admission: Admission,
    /// Charges for its growth. A ring grows a few dozen times at most.
    charges: Vec<Charge>,
}

impl Growth {
    pub(super) fn new(largest: u64, admission: Admission) -> Self {
        Self { largest, admission, charges: Vec::new() }
    }

    /// The ring grows for a delivery of `size` bytes, if that is not too large, and at the expense of whose delivery it is.
    fn grow(&mut self, writer: &mut OutWriter, place: &Place, size: u64) -> Result<(), AppendError> {
        let (bid, largest) = (writer.buffer().bid(), self.largest);
        if size > largest {
            warn!("buffer {bid}: a publisher has {size} bytes in one piece; there may be {largest}");
            return Err(AppendError::TooLarge);
        }
        let refused = |why: &dyn Display| {
            warn!("buffer {bid}: its ring does not grow for {size} bytes of a publisher: {why}");
            AppendError::TooLarge
        };
        let more = writer.bytes_to_grow(size);
        let charged = self.admission.charge_growth(place.key, place.bid, more);
        let charge = charged.map_err(|exceeded| refused(&exceeded))?;
        writer.grow(size).map_err(|error| refused(&error))?;
        self.charges.extend(charge);
        Ok(())
    }
}

/// The ring of a publisher at the broker.
pub(super) struct PublisherRing {
    pub(super) rin: RIn,
    pub(super) bid: Bid,
    pub(super) key: SessionKey,
}

fn not_stored(bid: Bid, is_of_archive: bool, is_lost: bool, reason: &str) -> Control {
    Control::NotStored { bid, is_of_archive, is_lost, reason: reason.into() }
}

impl PublisherRing {
    fn complete(&self) -> Option<InView> {
        self.rin.get_buf_ref(self.bid).ok().filter(|view| !view.is_empty())
    }

    fn confirm(&self, reached: Reached, count: Coverage) {
        // After the end of the subscription the confirmation is useless.
        let _ = self
            .rin
            .subscription(self.bid)
            .map(|ring| ring.confirm(reached.delivered, reached.consumed, count));
    }

    fn tell(&self, report: DiskReport<'_>) {
        let bid = self.bid;
        let message = match report {
            DiskReport::Stored([position, synced, archived]) => {
                Control::Stored { bid, position, synced, archived }
            }
            DiskReport::Failure(failure) => {
                Control::Disk { bid, failure: failure.unwrap_or_default().to_owned() }
            }
            DiskReport::Lost => lost_message(bid),
            DiskReport::Missing => not_stored(
                bid,
                true,
                true,
                "the archive may lack a part of what was published until now: the disk removed it before, or it was stored by another broker, \
                 or before the topic had this archive; or the archive has lost it, or has removed all by its rules",
            ),
            DiskReport::NoArchive => not_stored(
                bid,
                true,
                false,
                "the topic has no archive: its rule (broker.topics) has none, or the archive does not take this log; the log of the broker \
                 says more",
            ),
        };
        // The callbacks of a lost connection come later, from a worker.
        send(&self.rin.conn(), &message);
    }

    fn origin(&self, number: u32, piece: &InView) -> Place {
        let Self { bid, key, .. } = *self;
        Place { number, key, bid, epoch: piece.epoch(), position: piece.position(), lacks_below: 0 }
    }
}

/// What a publisher hears whose bytes the disk may have lost.
pub(super) fn lost_message(bid: Bid) -> Control {
    not_stored(
        bid,
        false,
        true,
        "the broker's disk lost a part of what it had stored; the log of the broker says more",
    )
}

/// Where the bytes of a publisher come from.
pub(super) enum Source {
    Ring(PublisherRing),
    Local(LocalRing),
}

/// Complete deliveries of a [`Source`].
pub(super) enum Deliveries {
    View(InView),
    Batch(Batch),
}

impl SourceRing for Source {
    type Piece = Deliveries;

    fn complete(&self) -> Option<Deliveries> {
        match self {
            Self::Ring(ring) => ring.complete().map(Deliveries::View),
            Self::Local(ring) => ring.complete().map(Deliveries::Batch),
        }
    }

    fn confirm(&self, reached: Reached, count: Coverage) {
        if let Self::Ring(ring) = self {
            ring.confirm(reached, count);
        }
    }

    fn tell(&self, report: DiskReport<'_>) {
        if let Self::Ring(ring) = self {
            ring.tell(report);
        }
    }

    fn origin(&self, number: u32, piece: &Deliveries) -> Place {
        match (self, piece) {
            (Self::Ring(ring), Deliveries::View(view)) => ring.origin(number, view),
            (source, piece) => {
                let epoch = if let Self::Local(ring) = source { ring.epoch() } else { Epoch(0) };
                let position = piece.end() - piece.bytes().len() as Position;
                Place { number, key: SessionKey::BROKER, bid: 0, epoch, position, lacks_below: 0 }
            }
        }
    }
}

impl Piece for Deliveries {
    fn bytes(&self) -> &[u8] {
        match self {
            // The rings of publishers have flow control and belong to this process, so they are readable as a slice.
            Self::View(view) => view.as_slice().unwrap_or_default(),
            Self::Batch(batch) => batch.bytes(),
        }
    }

    fn end(&self) -> Position {
        match self {
            Self::View(view) => view.end(),
            Self::Batch(batch) => batch.end(),
        }
    }

    fn has_more(&self) -> bool {
        matches!(self, Self::View(view) if view.has_more())
    }

    fn release(self) {
        match self {
            Self::View(view) => view.consume(),
            Self::Batch(batch) => batch.release(),
        }
    }
}

impl Log for MergedLog {
    fn append(&mut self, place: &Place, run: [&[u8]; 2]) -> Result<Position, AppendError> {
        if self.store.is_some() {
            return self.append_kept(place, run);
        }
        match self.writer.append(&run) {
            Err(SegmentError::TooLarge { size, .. }) => {
                self.growth.grow(&mut self.writer, place, size)?;
                self.writer.append(&run).map_err(append_error)
            }
            appended => appended.map_err(append_error),
        }
    }

    fn knows(&self, place: &Place) -> bool {
        self.store.as_ref().is_none_or(|store| store.knows(*place))
    }

    fn begin(&mut self, places: &[Place]) {
        // Of a failure hears who appends.
        self.store.iter_mut().for_each(|store| drop(store.begin_all(places)));
    }

    fn confirmed(&self) -> (Position, Position, Coverage) {
        let confirmed = self.writer.buffer().confirmed();
        (confirmed.delivered, confirmed.consumed, confirmed.coverage)
    }

    fn ask(&self, delivered: bool, consumed: bool) {
        let head = self.writer.head();
        if delivered {
            self.writer.buffer().request_confirm(ProgressLevel::Delivered, head);
        }
        if consumed {
            self.writer.buffer().request_confirm(ProgressLevel::Consumed, head);
        }
    }

    fn disk(&self) -> Option<DiskState> {
        let log = self.store.as_ref()?.log();
        let unsure = log.sync_failed();
        let archive = self.archive.as_ref().and_then(|archived| archived.confirmed());
        let (end, durable, lost) = (log.end(), log.durable(), log.stats().lost_bytes);
        Some(DiskState { end, durable, unsure, lost, archive })
    }

    fn missing_in_archive(&self) -> Position {
        self.archive.as_ref().map_or(0, |archived| archived.missing_below())
    }

    fn disk_failure(&self) -> Option<&str> {
        self.failure.as_deref().or(self.sync_failure.as_deref())
    }
}

impl MergedLog {
    /// After a failed sync: has the file written anew. `again`: also if that failed before.
    pub(super) fn repair(&mut self, again: bool) {
        let Self { writer, store: Some(store), sync_failure, .. } = self else { return };
        if !store.log().sync_failed() {
            *sync_failure = None;
        } else if again || sync_failure.is_none() {
            *sync_failure = store.log_mut().sync().err().map(|error| error.to_string());
            match sync_failure {
                Some(error) => warn!("buffer {}: a sync failed: {error}", writer.buffer().bid()),
                None => info!(
                    "buffer {}: a sync failed, and what is stored was written anew",
                    writer.buffer().bid()
                ),
            }
        }
    }

    /// The delivery is on the disk, or at least in the memory of the system, before a subscriber can see it.
    fn append_kept(&mut self, place: &Place, [header, bytes]: [&[u8]; 2]) -> Result<Position, AppendError> {
        let Self { writer, growth, store: Some(store), archive, failure, .. } = self else {
            return Err(AppendError::Ended);
        };
        let size = (header.len() + bytes.len()) as u64;
        let early = archive.as_ref().and_then(|archive| archive.why_not_yet(store.log().end() + size));
        if let Some(reason) = early {
            wait_for_disk(writer, failure, reason);
            return Err(AppendError::Disk);
        }
        let segment = match writer.segment(size, Some(Duration::ZERO)) {
            Err(SegmentError::TooLarge { .. }) => {
                growth.grow(writer, place, size)?;
                writer.segment(size, Some(Duration::ZERO))
            }
            other => other,
        };
        let mut segment = segment.map_err(append_error)?;
        let delivery = segment.bytes_mut();
        delivery[..header.len()].copy_from_slice(header);
        delivery[header.len()..].copy_from_slice(bytes);
        let stored = store.append(*place, bytes.len() as u64, delivery);
        let size = if stored.is_ok() { size } else { 0 };
        let end = writer.deliver(segment, size, None).map_err(|_| AppendError::Ended)?;
        match stored {
            Ok(()) => {
                if failure.take().is_some() {
                    info!("buffer {}: the disk takes data again", writer.buffer().bid());
                }
                Ok(end)
            }
            Err(error) => {
                wait_for_disk(writer, failure, error.to_string());
                // Old data makes room, if the limits allow it.
                let _ = store.apply_retention();
                Err(AppendError::Disk)
            }
        }
    }
}

fn wait_for_disk(writer: &OutWriter, failure: &mut Option<String>, reason: String) {
    if failure.as_ref() != Some(&reason) {
        warn!("buffer {}: its publishers wait for the disk: {reason}", writer.buffer().bid());
        *failure = Some(reason);
    }
}

fn append_error(error: SegmentError) -> AppendError {
    match error {
        SegmentError::Full => AppendError::Full,
        SegmentError::TooLarge { .. } => AppendError::TooLarge,
        // There is no other error before the end.
        _ => AppendError::Ended,
    }
}
