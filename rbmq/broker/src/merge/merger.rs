//! The copying of complete deliveries from many publishers' rings into one log. This module does no I/O.
//!
//! ```text
//!   A ▒▒▒▒░   queue: B, C, A          everything complete of B as one run; then of C; then of A; then B again
//!   B ▒▒                        ══▶   ─┤B ▒▒├┤C ▒├┤A ▒▒▒▒├──▶ the topic's ring
//!   C ▒░░░    ▒ complete  ░ incomplete           ring full: the publisher stays first in the queue
//! ```
//!
//! A publisher with data is in the queue once, however much data it has, and its small ring limits the run. So a publisher that
//! floods the topic delays each other one by at most one small ring. Data is released after it was copied: when the topic's ring
//! has no room, the publishers run out of credit.

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rbmq_wire::{RUN_HEADER_BYTES, planted, run_header};
use rocketbufs::Coverage;
use rocketbufs::Position;
use rocketbufs::relay::{CoveragePart, CoverageParts, MAX_COVERAGE_PARTS};

use super::super::kept::Place;
use super::disk::{DiskQuestions, DiskReport, DiskState, Own, Wants};
use super::table::{Milestone, Table, TableLoad};

/// A call of [`Merger::advance`] stops after so many bytes, because the worker also has connections to serve.
const TURN_BYTES: usize = 4 << 20;

/// The ring in which a publisher's bytes arrive.
pub(super) trait SourceRing {
    type Piece: Piece;

    /// All complete deliveries that were not released. None if there are none.
    fn complete(&self) -> Option<Self::Piece>;
    /// Confirms the publisher's log up to these positions, for these receivers.
    fn confirm(&self, reached: Reached, count: Coverage);
    /// Tells the publisher about the disk.
    fn tell(&self, report: DiskReport<'_>);
    /// Whose bytes these are, for a log that is kept.
    fn origin(&self, number: u32, piece: &Self::Piece) -> Place;
}

/// Complete deliveries in a publisher's ring.
pub(super) trait Piece {
    fn bytes(&self) -> &[u8];
    /// Their end in the publisher's log.
    fn end(&self) -> Position;
    /// Whether complete deliveries are behind them already.
    fn has_more(&self) -> bool {
        false
    }
    /// Releases the space for the publisher.
    fn release(self);
}

/// The merged log.
pub(super) trait Log {
    /// Appends one delivery that is one run: the header, and the bytes that begin at the place in their publisher's log. Returns
    /// the end of the delivery.
    fn append(&mut self, place: &Place, run: [&[u8]; 2]) -> Result<Position, AppendError>;
    /// Whether a run that begins at this place can be appended at once: the disk of a log that is kept knows the publisher.
    fn knows(&self, _place: &Place) -> bool {
        true
    }
    /// Runs of these publishers follow: the disk learns of all of them together.
    fn begin(&mut self, _places: &[Place]) {}
    /// The positions up to which all receivers have the log, and have consumed it, and the receivers that count.
    fn confirmed(&self) -> (Position, Position, Coverage);
    /// Asks the receivers to report when they have received, or consumed, everything that exists now.
    fn ask(&self, delivered: bool, consumed: bool);
    /// The disk of a log that is kept.
    fn disk(&self) -> Option<DiskState>;
    /// What is below may be missing in the archive. It is read after [`disk`](Self::disk).
    fn missing_in_archive(&self) -> Position {
        0
    }
    /// Why the disk takes nothing.
    fn disk_failure(&self) -> Option<&str>;
}

/// Why a delivery was not appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppendError {
    /// The ring has no room: a subscriber still needs the bytes that would be overwritten.
    Full,
    /// The disk has no room, or failed.
    Disk,
    /// The log takes no delivery that is so large.
    TooLarge,
    /// The log has ended.
    Ended,
}

impl AppendError {
    /// What merging waits for.
    fn blocks(self) -> Option<Blocked> {
        match self {
            Self::Full => Some(Blocked::ByRing),
            Self::Disk => Some(Blocked::ByDisk),
            Self::TooLarge | Self::Ended => None,
        }
    }
}

/// Why the merger has stopped with data left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocked {
    /// The merged log has no room.
    ByRing,
    /// The table is full, until the merged log is consumed up to this position.
    ByTable(Position),
    /// The disk has no room, or failed.
    ByDisk,
    /// The turn was long enough.
    TurnOver,
}

/// An event of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// Complete deliveries arrived.
    Arrived(u32),
    /// The publisher sends no more data: the arrived data is the last.
    Finish(u32),
    /// The publisher is connected again and may send more data.
    Resume(u32),
    /// The publisher waits for a confirmation. The positions are in its signals.
    Asked(u32),
    /// The publisher waits for the disk. The positions are in its signals.
    AskedDisk(u32),
    /// What is taken for merged of a publisher below a position is at another broker, as far as it says.
    Lacks(u32, Position),
    /// The publisher names its buffer again: what it was told may be lost with its connection.
    Again(u32),
    /// The publisher goes to another broker with what is not merged.
    Stop(u32),
    /// The publisher is removed with its data.
    Remove(u32),
}

/// A publisher that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoppedSource {
    pub(super) number: u32,
    /// How far its log was merged. None: it was not there.
    pub(super) merged: Option<Position>,
    /// The disk lost a part of the topic's log, and the publisher has not heard of that.
    pub(super) owes_loss: bool,
}

/// The progress of a publisher's data, as positions of its own log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reached {
    /// Up to here the data is in the merged log, and so in the broker's memory.
    pub(super) merged: Position,
    /// Up to here all receivers at the ends of all chains have the data.
    pub(super) delivered: Position,
    /// Up to here all these receivers have consumed the data.
    pub(super) consumed: Position,
}

impl Note {
    /// The number of the publisher.
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Arrived(number)
            | Self::Finish(number)
            | Self::Resume(number)
            | Self::Asked(number)
            | Self::AskedDisk(number)
            | Self::Lacks(number, _)
            | Self::Again(number)
            | Self::Stop(number)
            | Self::Remove(number) => number,
        }
    }
}

/// Shared with the threads that leave notes, so that there is at most one note of each kind for a publisher.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// A note of arrivals is queued.
    pub(super) arrived: AtomicBool,
    /// A note is queued that the publisher waits until its log is delivered and consumed up to these positions.
    pub(super) asked: AtomicBool,
    pub(super) delivered: AtomicU64,
    pub(super) consumed: AtomicU64,
    /// A note is queued that the publisher waits until its log is stored, synced and archived up to these positions.
    pub(super) asked_disk: AtomicBool,
    pub(super) disk: [AtomicU64; 3],
}

/// A publisher.
struct MergeSource<S> {
    ring: S,
    signals: Arc<Signals>,
    queued: bool,
    /// No more data arrives.
    finishing: bool,
    reached: Reached,
    /// The count of receivers is valid for the publisher's log from here on.
    covered_from: Position,
    /// The same for each part of the count.
    parts: [Position; MAX_COVERAGE_PARTS],
    /// How often receivers lost data of the publisher.
    lost: u32,
    /// The count that was last reported to the publisher.
    reported: Option<Coverage>,
    /// The publisher has waited for a confirmation before.
    waited: bool,
    /// The publisher waits until its log is delivered, and consumed, up to these positions.
    asked: (Position, Position),
    /// The disk lost a part of the log, below this position perhaps, or never had it.
    lost_below: Position,
    /// The publisher has yet to be told: an answer for later positions would be one for these too.
    owes_loss: Cell<bool>,
    /// The same of what may be missing in the archive, for those who ask about the archive.
    unarchived_below: Position,
    owes_archive_loss: Cell<bool>,
    /// It was told of a loss of the disk, and of the archive, and has asked nothing since: it may not have heard.
    told: [Cell<bool>; 2],
}

impl<S> MergeSource<S> {
    /// What is taken for merged below a position is at another broker.
    fn lacks(&mut self, below: Position) {
        self.lost_below = below;
        self.unarchived_below = self.unarchived_below.max(below);
        self.owes_archive_loss = Cell::new(true);
    }

    /// Whether a loss of the disk, or of the archive, is owed. It is told then.
    fn tells_loss(&self, of_archive: bool) -> bool {
        let owes = if of_archive { &self.owes_archive_loss } else { &self.owes_loss };
        let is_owed = owes.replace(false);
        let told = &self.told[usize::from(of_archive)];
        told.set(told.get() | is_owed);
        is_owed
    }

    /// What the publisher may not have heard is owed again.
    fn owe_again(&self) {
        for (owes, told) in [&self.owes_loss, &self.owes_archive_loss].into_iter().zip(&self.told) {
            owes.set(owes.get() | told.take());
        }
    }

    /// All that was merged of the publisher may be missing in the archive.
    fn may_miss_all(&mut self) {
        (self.unarchived_below, self.owes_archive_loss) =
            (self.reached.merged, Cell::new(self.reached.merged > 0));
    }
}

impl<S: SourceRing> MergeSource<S> {
    /// The count of receivers for the publisher's log.
    fn count(&self, seen: Coverage) -> Coverage {
        let mut parts = [CoveragePart::default(); MAX_COVERAGE_PARTS];
        for ((part, seen), covered_from) in parts.iter_mut().zip(seen.parts.iter()).zip(self.parts) {
            *part = CoveragePart { covered_from, ..seen };
        }
        Coverage { covered_from: self.covered_from, lost: self.lost, ..seen }.with_parts(parts)
    }

    /// Reports the progress and the count of receivers.
    fn report(&mut self, seen: Coverage) {
        let count = self.count(seen);
        self.reported = Some(count);
        self.ring.confirm(self.reached, count);
    }

    /// Reports if the count has changed.
    fn report_changed_count(&mut self, seen: Coverage) {
        if self.reported != Some(self.count(seen)) {
            self.report(seen);
        }
    }
}

/// The result of [`Merger::advance`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Why data is left; none if no data is left.
    pub(super) blocked: Option<Blocked>,
    /// Finishing publishers whose data is completely merged, and the ends of their logs.
    pub(super) finished: Vec<(u32, Position)>,
    /// Publishers whose next bytes the log does not take. They are removed with them.
    pub(super) too_large: Vec<u32>,
    /// The merged log has ended.
    pub(super) ended: bool,
}

/// What was merged of one publisher.
#[derive(Default)]
struct Served {
    /// Bytes of the merged log.
    merged: usize,
    /// The publisher has more: a ring that has grown is not one run, but several.
    has_more: bool,
}

/// The publishers, their queue, and the table.
pub(super) struct Merger<S> {
    sources: HashMap<u32, MergeSource<S>>,
    queue: VecDeque<u32>,
    table: Table,
    /// The count of receivers that was last read.
    seen: Coverage,
    /// Publishers that wait for a confirmation.
    asking: HashSet<u32>,
    /// Publishers that wait for the disk.
    disk: DiskQuestions,
    /// The publishers that go to another broker.
    stopped: Vec<StoppedSource>,
}

impl<S: SourceRing> Merger<S> {
    pub(super) fn new(table_limit: usize) -> Self {
        Self {
            sources: HashMap::new(),
            queue: VecDeque::new(),
            table: Table::new(table_limit),
            seen: Coverage::default(),
            asking: HashSet::new(),
            disk: DiskQuestions::default(),
            stopped: Vec::new(),
        }
    }

    /// Adds a publisher whose bytes below `from` were merged before. The next turn merges the data that has arrived already.
    pub(super) fn join(&mut self, number: u32, ring: S, signals: Arc<Signals>, from: Position) {
        let reached = Reached { merged: from, delivered: from, consumed: from };
        let mut source = MergeSource {
            ring,
            signals,
            queued: false,
            finishing: false,
            reached,
            covered_from: from,
            parts: [from; MAX_COVERAGE_PARTS],
            lost: 0,
            reported: None,
            waited: false,
            asked: (0, 0),
            lost_below: 0,
            owes_loss: Cell::new(false),
            unarchived_below: 0,
            owes_archive_loss: Cell::new(false),
            told: Default::default(),
        };
        if self.disk.misses() {
            // Nobody knows which bytes are whose.
            source.may_miss_all();
        }
        if let Some(failure) = self.disk.failure() {
            source.ring.tell(DiskReport::Failure(Some(failure)));
        }
        self.sources.insert(number, source);
        self.enqueue(number);
    }

    pub(super) fn has_stopped(&self) -> bool {
        !self.stopped.is_empty()
    }

    /// The publishers that were stopped, and what the disk has lost up to now.
    pub(super) fn take_stopped(&mut self, log: &impl Log) -> Vec<StoppedSource> {
        log.disk().into_iter().for_each(|now| self.note_loss(now));
        std::mem::take(&mut self.stopped)
    }

    /// After a loss of the disk nobody knows what is left of which log: each publisher hears of it.
    fn note_loss(&mut self, now: DiskState) {
        if self.disk.has_lost(now) {
            for source in self.sources.values_mut() {
                (source.lost_below, source.owes_loss) = (source.reached.merged, Cell::new(true));
            }
            self.stopped.iter_mut().for_each(|stopped| stopped.owes_loss = true);
        }
    }

    pub(super) fn note(&mut self, note: Note) {
        match note {
            Note::Arrived(number) => {
                if let Some(source) = self.sources.get(&number) {
                    // Reset before reading the ring: data that arrives from here on leaves another note. The acquire pairs
                    // with the release of a thread that found the flag set, so that its data is visible too.
                    source.signals.arrived.swap(false, Ordering::AcqRel);
                }
                self.enqueue(number);
            }
            Note::Finish(number) => {
                if let Some(source) = self.sources.get_mut(&number) {
                    source.finishing = true;
                }
                self.enqueue(number);
            }
            Note::Resume(number) => {
                if let Some(source) = self.sources.get_mut(&number) {
                    source.finishing = false;
                }
            }
            Note::Asked(number) => {
                if let Some(source) = self.sources.get_mut(&number) {
                    // Reset before reading, as for arrivals.
                    source.signals.asked.swap(false, Ordering::AcqRel);
                    let wanted = [&source.signals.delivered, &source.signals.consumed];
                    let [delivered, consumed] = wanted.map(|position| position.load(Ordering::Acquire));
                    source.asked = (delivered, consumed);
                    source.waited = true;
                    self.asking.insert(number);
                }
            }
            Note::AskedDisk(number) => {
                if let Some(source) = self.sources.get(&number) {
                    // Reset before reading, as for arrivals.
                    source.signals.asked_disk.swap(false, Ordering::AcqRel);
                    source.told.iter().for_each(|told| told.set(false));
                    let wanted = source.signals.disk.each_ref();
                    self.disk.ask(number, wanted.map(|position| position.load(Ordering::Acquire)));
                }
            }
            Note::Lacks(number, below) => {
                self.sources.get_mut(&number).into_iter().for_each(|source| source.lacks(below));
            }
            Note::Again(number) => self.sources.get(&number).into_iter().for_each(MergeSource::owe_again),
            Note::Stop(number) => self.stop(number),
            Note::Remove(number) => drop(self.remove(number)),
        }
    }

    fn stop(&mut self, number: u32) {
        let source = self.remove(number);
        let owes_loss = source.as_ref().is_some_and(|source| source.owes_loss.get());
        let merged = source.map(|source| source.reached.merged);
        self.stopped.push(StoppedSource { number, merged, owes_loss });
    }

    fn remove(&mut self, number: u32) -> Option<MergeSource<S>> {
        self.asking.remove(&number);
        self.disk.remove(number);
        self.sources.remove(&number)
    }

    fn enqueue(&mut self, number: u32) {
        if let Some(source) = self.sources.get_mut(&number)
            && !std::mem::replace(&mut source.queued, true)
        {
            self.queue.push_back(number);
        }
    }

    /// Merges the data of the queued publishers in order, until none is left or merging is blocked.
    pub(super) fn advance(&mut self, log: &mut impl Log) -> Turn {
        let mut turn = Turn::default();
        let mut bytes = 0;
        if self.table.is_half_full() {
            self.settle(log);
        }
        while let Some(&number) = self.queue.front() {
            if bytes >= TURN_BYTES {
                turn.blocked = Some(Blocked::TurnOver);
                break;
            }
            if self.table.is_full() {
                self.settle(log);
                if let (true, Some(at)) = (self.table.is_full(), self.table.quarter()) {
                    turn.blocked = Some(Blocked::ByTable(at));
                    break;
                }
            }
            match self.serve(number, log) {
                Ok(Served { merged, has_more }) => {
                    bytes += merged;
                    if has_more {
                        // The rest comes after the data of the others.
                        self.queue.rotate_left(1);
                        continue;
                    }
                }
                Err(AppendError::TooLarge) => {
                    drop(self.remove(number));
                    turn.too_large.push(number);
                }
                Err(error) => {
                    (turn.blocked, turn.ended) = (error.blocks(), error == AppendError::Ended);
                    break;
                }
            }
            self.queue.pop_front();
            if let Some(source) = self.sources.get_mut(&number) {
                if source.finishing && source.ring.complete().is_some() {
                    // The source has more data behind a loss, and no other note follows.
                    self.queue.push_back(number);
                    continue;
                }
                source.queued = false;
                // A finished publisher stays until it is removed, because it may wait until its data is consumed.
                if std::mem::take(&mut source.finishing) {
                    turn.finished.push((number, source.reached.merged));
                }
            }
        }
        turn
    }

    /// Merges the complete deliveries of a publisher as one run.
    fn serve(&mut self, number: u32, log: &mut impl Log) -> Result<Served, AppendError> {
        let Some(piece) = self.sources.get(&number).and_then(|source| source.ring.complete()) else {
            return Ok(Served::default());
        };
        self.report_receivers(number, log);
        let Some(source) = self.sources.get(&number) else { return Ok(Served::default()) };
        // The length fits, because rings of 4 GiB are not accepted.
        let header = run_header(number, piece.bytes().len()).ok_or(AppendError::Ended)?;
        let (len, end, has_more) = (piece.bytes().len(), piece.end(), piece.has_more());
        let place = source.ring.origin(number, &piece);
        if !log.knows(&place) {
            log.begin(&self.unknown(place, log));
        }
        let merged = log.append(&place, [&header, piece.bytes()])?;
        piece.release();
        if let Some(source) = self.sources.get_mut(&number) {
            source.reached.merged = end;
        }
        self.disk.stored(number);
        self.table.push(merged, number, end);
        Ok(Served { merged: RUN_HEADER_BYTES + len, has_more })
    }

    /// The publishers with data that the disk does not know, from the first one on.
    fn unknown(&self, first: Place, log: &impl Log) -> Vec<Place> {
        let others = self.queue.iter().filter(|number| **number != first.number);
        let places = others.filter_map(|number| {
            let ring = &self.sources.get(number)?.ring;
            Some(ring.origin(*number, &ring.complete()?))
        });
        [first].into_iter().chain(places.filter(|place| !log.knows(place))).collect()
    }

    /// Reports the receivers to a publisher before more of its data is merged, so that the count includes the receivers that
    /// lose this data and those that don't. A publisher that never waits for a confirmation gets one report.
    fn report_receivers(&mut self, number: u32, log: &impl Log) {
        if self.sources.get(&number).is_some_and(|source| source.waited || source.reported.is_none()) {
            self.settle(log);
            let seen = self.seen;
            if let Some(source) = self.sources.get_mut(&number) {
                source.report_changed_count(seen);
            }
        }
    }

    /// Whether a publisher waits for a confirmation.
    pub(super) fn is_asked(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Reports to the waiting publishers, and asks the receivers for the confirmations that are still missing.
    pub(super) fn confirm(&mut self, log: &impl Log) {
        if self.asking.is_empty() {
            return;
        }
        self.settle(log);
        let seen = self.seen;
        let (mut delivered, mut consumed) = (false, false);
        let sources = &mut self.sources;
        self.asking.retain(|number| {
            let Some(source) = sources.get_mut(number) else { return false };
            source.report(seen);
            let waits = (source.reached.delivered < source.asked.0, source.reached.consumed < source.asked.1);
            (delivered, consumed) = (delivered | waits.0, consumed | waits.1);
            waits.0 || waits.1
        });
        if delivered || consumed {
            log.ask(delivered, consumed);
        }
    }

    fn settle(&mut self, log: &impl Log) {
        let (delivered, consumed, count) = log.confirmed();
        self.update_count(count);
        let sources = &mut self.sources;
        self.table.settle(delivered, consumed, |level, number, position| {
            let Some(source) = sources.get_mut(&number) else { return };
            match level {
                Milestone::Delivered => source.reached.delivered = position,
                Milestone::Consumed => source.reached.consumed = position,
            }
        });
    }

    /// Reads a new count of receivers, and converts its positions to the publishers' logs. A new receiver has no data that was
    /// consumed before. A receiver with a loss had not consumed the lost data, so the lost runs are still in the table, and
    /// publishers without runs in the table lost nothing.
    fn update_count(&mut self, count: Coverage) {
        let before = std::mem::replace(&mut self.seen, count);
        self.seen.covered_from = count.covered_from.max(before.covered_from);
        self.update_parts(before);
        let all = |count: Coverage| count.receivers.saturating_add(count.left);
        let lost = count.lost.saturating_sub(before.lost);
        if all(count) > all(before) || (lost == 0 && count.covered_from > before.covered_from) {
            for source in self.sources.values_mut() {
                source.covered_from = source.covered_from.max(source.reached.consumed);
            }
        } else if lost == 0 {
            return;
        }
        let mut losers = HashSet::new();
        for (number, position) in self.table.up_to(self.seen.covered_from) {
            if let Some(source) = self.sources.get_mut(&number) {
                source.covered_from = source.covered_from.max(position);
                if losers.insert(number) {
                    source.lost = source.lost.saturating_add(lost);
                }
            }
        }
    }

    /// Converts the starts of the parts of the count to the publishers' logs. The start of an unchanged part, or of a part that
    /// begins with the whole count, is known.
    fn update_parts(&mut self, before: Coverage) {
        if self.seen.parts == before.parts {
            return;
        }
        let covered_from = |parts: CoverageParts| parts.iter().map(|part| part.covered_from);
        for source in self.sources.values_mut() {
            let known = covered_from(before.parts)
                .zip(source.parts)
                .chain([(before.covered_from, source.covered_from)]);
            let known: Vec<_> = known.collect();
            for (begins, part) in source.parts.iter_mut().zip(covered_from(self.seen.parts)) {
                let at = known.iter().find(|(before, _)| *before == part);
                *begins = at.map_or(source.reached.consumed, |(_, at)| *at);
            }
        }
        for (n, part) in covered_from(self.seen.parts).enumerate() {
            if part == before.covered_from || covered_from(before.parts).any(|before| before == part) {
                continue;
            }
            for (number, position) in self.table.up_to(part) {
                if let Some(source) = self.sources.get_mut(&number) {
                    source.parts[n] = source.parts[n].max(position);
                }
            }
        }
    }

    /// Answers the questions about the disk that have an answer now, and tells all publishers of a failure and of its end. Returns
    /// what is to begin at once.
    pub(super) fn settle_disk(&mut self, log: &impl Log) -> Wants {
        let failure = log.disk_failure();
        if self.disk.has_other_failure(failure) {
            self.sources.values().for_each(|source| source.ring.tell(DiskReport::Failure(failure)));
        }
        let now = self.disk.is_watching().then(|| log.disk()).flatten();
        // The archive's end was read before: what it has passed is known to be missing then.
        self.look_at_archive(log);
        let Some(now) = now else { return Wants::default() };
        self.note_loss(now);
        let sources = &self.sources;
        let own = |number, wanted: [Position; 3]| {
            let source: &MergeSource<S> = sources.get(&number)?;
            let first = wanted.into_iter().filter(|wanted| *wanted > 0).min()?;
            let [to_store, to_sync, to_archive] = wanted;
            let lost = 1..=source.lost_below;
            let is_lost = source.tells_loss(false) || lost.contains(&to_store) || lost.contains(&to_sync);
            // A loss of the disk answers all. What the disk has lost before is not in the archive either.
            let misses = !is_lost
                && to_archive > 0
                && (source.tells_loss(true) || to_archive <= source.unarchived_below.max(source.lost_below));
            let early = if planted::is(planted::STORED_EARLY) { first } else { 0 };
            (!is_lost).then_some(Own { stored: source.reached.merged.max(early), misses })
        };
        self.disk.settle(now, own, |number, report| {
            sources.get(&number).into_iter().for_each(|source| source.ring.tell(report));
        })
    }

    /// What has come to be missing in the archive may be of every publisher. Looked at in each turn: what comes afterwards is not.
    pub(super) fn look_at_archive(&mut self, log: &impl Log) {
        if self.disk.misses_more(log.missing_in_archive()) {
            self.sources.values_mut().for_each(MergeSource::may_miss_all);
        }
    }

    /// Whether a sync, or the end of a failure, would answer a publisher.
    pub(super) fn is_watching_disk(&self) -> bool {
        self.disk.is_watching()
    }

    /// The load of the table, after the confirmations of the receivers.
    pub(super) fn table_load(&mut self, log: Option<&impl Log>) -> TableLoad {
        if let Some(log) = log {
            self.settle(log);
        }
        self.table.load()
    }

    /// The progress of a publisher.
    #[cfg(test)]
    pub(super) fn reached(&mut self, number: u32, log: &impl Log) -> Option<Reached> {
        self.settle(log);
        Some(self.sources.get(&number)?.reached)
    }

    /// The number of runs in the table.
    #[cfg(test)]
    pub(super) fn in_table(&self) -> usize {
        self.table.len()
    }

    /// Removes all publishers.
    pub(super) fn clear(&mut self) {
        self.sources.clear();
        self.queue.clear();
        self.asking.clear();
        self.disk.clear();
    }
}
