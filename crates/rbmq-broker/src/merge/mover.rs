//! The moving of whole deliveries from many publishers' rings into one log, without any I/O.
//!
//! ```text
//!   A ▒▒▒▒░   ready: B, C, A          one turn: all that B has, as one run; then C; then A, and B again
//!   B ▒▒                        ══▶   ─┤B ▒▒├┤C ▒├┤A ▒▒▒▒├──▶ the topic's ring
//!   C ▒░░░    ▒ complete  ░ not yet                    full? what did not fit stays where it is, first in line
//! ```
//!
//! A publisher that has something waits in line once, however much it has; a turn moves what fits in its small ring.
//! So a flood delays others by no more than a ring each. Nothing is given back before it was moved: without room the
//! publishers' credit ends by itself.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rbmq_wire::{RUN_HEADER_BYTES, run_header};
use rocketbufs::{Coverage, CoveragePart, CoverageParts, MAX_COVERAGE_PARTS, Position};

use super::table::{Level, Table, TableLoad};

/// Most bytes of one call of [`Mover::advance`], and a bit: the worker that moves has connections of its own.
const TURN_BYTES: usize = 4 << 20;

/// Where a publisher's bytes arrive.
pub(super) trait Source {
    type Piece: Piece;

    /// All whole deliveries that are there, from the first that was not given back; none if there is nothing.
    fn complete(&self) -> Option<Self::Piece>;
    /// What was moved is confirmed so far.
    fn confirm(&self, reached: Reached, count: Coverage);
}

/// Whole deliveries of a publisher, in its ring.
pub(super) trait Piece {
    fn bytes(&self) -> &[u8];
    /// Where they end in the publisher's log.
    fn end(&self) -> Position;
    /// They were moved: the publisher may use their space again.
    fn give_back(self);
}

/// The merged log.
pub(super) trait Log {
    /// One delivery of these parts; its end.
    fn append(&mut self, parts: &[&[u8]]) -> Result<Position, Refusal>;
    /// How far it is with every receiver: delivered, consumed; and for how many that speaks.
    fn confirmed(&self) -> (Position, Position, Coverage);
    /// Has receivers tell as soon as they have everything that is there now: delivered, consumed, as is wanted.
    fn ask(&self, delivered: bool, consumed: bool);
}

/// Why nothing was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A subscriber holds what would be overwritten.
    Full,
    /// The log has ended.
    Over,
}

/// What keeps the rest from being moved now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// Room in the merged log.
    Room,
    /// The table is full: until the merged log is consumed up to here.
    Consumed(Position),
    /// Nothing: it was enough for one turn.
    Turn,
}

/// Something that happened to a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// Complete deliveries arrived.
    Arrived(u32),
    /// Nothing more will come than what is there.
    Last(u32),
    /// It is here again: more may come.
    Stays(u32),
    /// It waits until something is confirmed; what is with its signals.
    Asked(u32),
    /// It is out, whatever it has.
    Out(u32),
}

/// How far a publisher's bytes have come, in positions of its own log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Reached {
    /// In the merged log: in the broker's memory.
    pub(super) moved: Position,
    /// With every receiver at the end of a chain.
    pub(super) delivered: Position,
    /// Given back by every such receiver.
    pub(super) consumed: Position,
}

/// What a publisher shares with whoever leaves notes of it: so that there is one of each kind at most.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// A note of its arrivals is on its way.
    pub(super) arrived: AtomicBool,
    /// A note that it waits is on its way: until its log is delivered, and consumed, up to here.
    pub(super) asked: AtomicBool,
    pub(super) delivered: AtomicU64,
    pub(super) consumed: AtomicU64,
}

/// A publisher.
struct Feeder<S> {
    source: S,
    signals: Arc<Signals>,
    in_line: bool,
    last: bool,
    reached: Reached,
    /// What the count of receivers says holds for its log from here on.
    since: Position,
    /// The same of each part of the count.
    parts: [Position; MAX_COVERAGE_PARTS],
    /// How often receivers lost some of it.
    lost: u32,
    /// What it was told of them last; none: nothing yet.
    told: Option<Coverage>,
    /// It has waited for a confirmation before.
    waited: bool,
    /// It waits until this is delivered, and this consumed.
    asked: (Position, Position),
}

impl<S: Source> Feeder<S> {
    /// The receivers, as they count for this publisher.
    fn count(&self, seen: Coverage) -> Coverage {
        let mut parts = [CoveragePart::default(); MAX_COVERAGE_PARTS];
        for ((part, seen), since) in parts.iter_mut().zip(seen.parts.iter()).zip(self.parts) {
            *part = CoveragePart { covered_from: since, ..seen };
        }
        Coverage { covered_from: self.since, lost: self.lost, ..seen }.with_parts(parts)
    }

    /// Tells how far it is, and for whom that speaks.
    fn tell_reached(&mut self, seen: Coverage) {
        let count = self.count(seen);
        self.told = Some(count);
        self.source.confirm(self.reached, count);
    }

    /// The same if it speaks for others than it was told last.
    fn tell(&mut self, seen: Coverage) {
        if self.told != Some(self.count(seen)) {
            self.tell_reached(seen);
        }
    }
}

/// What a call of [`Mover::advance`] did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Why there is more to move, if there is.
    pub(super) waits: Option<Waits>,
    /// Publishers of which everything was moved and nothing more comes, and where their logs were left.
    pub(super) done: Vec<(u32, Position)>,
    /// The merged log has ended: nothing is moved any more.
    pub(super) over: bool,
}

/// Publishers in line, and the table.
pub(super) struct Mover<S> {
    feeders: HashMap<u32, Feeder<S>>,
    line: VecDeque<u32>,
    table: Table,
    /// The receivers, as they were seen last.
    seen: Coverage,
    /// Those that wait until something is confirmed.
    asking: HashSet<u32>,
}

impl<S: Source> Mover<S> {
    pub(super) fn new(table_limit: usize) -> Self {
        Self {
            feeders: HashMap::new(),
            line: VecDeque::new(),
            table: Table::new(table_limit),
            seen: Coverage::default(),
            asking: HashSet::new(),
        }
    }

    /// A publisher whose bytes below `from` were moved before. What is there already is moved with the next turn.
    pub(super) fn join(&mut self, number: u32, source: S, signals: Arc<Signals>, from: Position) {
        let reached = Reached { moved: from, delivered: from, consumed: from };
        let feeder = Feeder {
            source,
            signals,
            in_line: false,
            last: false,
            reached,
            since: from,
            parts: [from; MAX_COVERAGE_PARTS],
            lost: 0,
            told: None,
            waited: false,
            asked: (0, 0),
        };
        self.feeders.insert(number, feeder);
        self.line_up(number);
    }

    pub(super) fn note(&mut self, note: Note) {
        match note {
            Note::Arrived(number) => {
                if let Some(feeder) = self.feeders.get(&number) {
                    // Before looking at what arrived: what arrives from here on is noted again. Acquire pairs with the
                    // release of who found it noted already, whose bytes are then seen too.
                    feeder.signals.arrived.swap(false, Ordering::AcqRel);
                }
                self.line_up(number);
            }
            Note::Last(number) => {
                if let Some(feeder) = self.feeders.get_mut(&number) {
                    feeder.last = true;
                }
                self.line_up(number);
            }
            Note::Stays(number) => {
                if let Some(feeder) = self.feeders.get_mut(&number) {
                    feeder.last = false;
                }
            }
            Note::Asked(number) => {
                if let Some(feeder) = self.feeders.get_mut(&number) {
                    // As with arrivals: what is wanted from here on is noted again.
                    feeder.signals.asked.swap(false, Ordering::AcqRel);
                    let wanted = [&feeder.signals.delivered, &feeder.signals.consumed];
                    let [delivered, consumed] = wanted.map(|position| position.load(Ordering::Acquire));
                    feeder.asked = (delivered, consumed);
                    feeder.waited = true;
                    self.asking.insert(number);
                }
            }
            Note::Out(number) => {
                self.feeders.remove(&number);
                self.asking.remove(&number);
            }
        }
    }

    fn line_up(&mut self, number: u32) {
        if let Some(feeder) = self.feeders.get_mut(&number)
            && !std::mem::replace(&mut feeder.in_line, true)
        {
            self.line.push_back(number);
        }
    }

    /// Moves what is there, each publisher in its turn, until nothing is left or something is in the way.
    pub(super) fn advance(&mut self, log: &mut impl Log) -> Turn {
        let mut turn = Turn::default();
        let mut bytes = 0;
        if self.table.is_half_full() {
            self.settle(log);
        }
        while let Some(&number) = self.line.front() {
            if bytes >= TURN_BYTES {
                turn.waits = Some(Waits::Turn);
                break;
            }
            if self.table.is_full() {
                self.settle(log);
                if let (true, Some(at)) = (self.table.is_full(), self.table.quarter()) {
                    turn.waits = Some(Waits::Consumed(at));
                    break;
                }
            }
            match self.serve(number, log) {
                Ok(moved) => bytes += moved,
                Err(Refusal::Full) => {
                    turn.waits = Some(Waits::Room);
                    break;
                }
                Err(Refusal::Over) => {
                    turn.over = true;
                    break;
                }
            }
            self.line.pop_front();
            if let Some(feeder) = self.feeders.get_mut(&number) {
                if feeder.last && feeder.source.complete().is_some() {
                    // There is more behind a loss, and no other note of it will come.
                    self.line.push_back(number);
                    continue;
                }
                feeder.in_line = false;
                // It stays until it is out: it may wait until what was moved is consumed.
                if std::mem::take(&mut feeder.last) {
                    turn.done.push((number, feeder.reached.moved));
                }
            }
        }
        turn
    }

    /// One publisher's turn: all that is complete becomes one run.
    fn serve(&mut self, number: u32, log: &mut impl Log) -> Result<usize, Refusal> {
        let Some(piece) = self.feeders.get(&number).and_then(|feeder| feeder.source.complete()) else {
            return Ok(0);
        };
        self.introduce(number, log);
        let Some(feeder) = self.feeders.get_mut(&number) else { return Ok(0) };
        // A ring has less than 4 GiB, or it was not accepted.
        let header = run_header(number, piece.bytes().len()).ok_or(Refusal::Over)?;
        let (len, end) = (piece.bytes().len(), piece.end());
        let merged = log.append(&[&header, piece.bytes()])?;
        piece.give_back();
        feeder.reached.moved = end;
        self.table.push(merged, number, end);
        Ok(RUN_HEADER_BYTES + len)
    }

    /// Tells a publisher who is there before anything more of it is moved: who loses some of that was there, and so were
    /// those who do not. One that never waits for a confirmation is told once.
    fn introduce(&mut self, number: u32, log: &impl Log) {
        if self.feeders.get(&number).is_some_and(|feeder| feeder.waited || feeder.told.is_none()) {
            self.settle(log);
            let seen = self.seen;
            if let Some(feeder) = self.feeders.get_mut(&number) {
                feeder.tell(seen);
            }
        }
    }

    /// Whether somebody waits until something is confirmed.
    pub(super) fn is_asked(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Tells those who wait how far they are confirmed, and asks the receivers for what is still waited for.
    pub(super) fn confirm(&mut self, log: &impl Log) {
        if self.asking.is_empty() {
            return;
        }
        self.settle(log);
        let seen = self.seen;
        let (mut delivered, mut consumed) = (false, false);
        let feeders = &mut self.feeders;
        self.asking.retain(|number| {
            let Some(feeder) = feeders.get_mut(number) else { return false };
            feeder.tell_reached(seen);
            let waits = (feeder.reached.delivered < feeder.asked.0, feeder.reached.consumed < feeder.asked.1);
            (delivered, consumed) = (delivered | waits.0, consumed | waits.1);
            waits.0 || waits.1
        });
        if delivered || consumed {
            log.ask(delivered, consumed);
        }
    }

    fn settle(&mut self, log: &impl Log) {
        let (delivered, consumed, count) = log.confirmed();
        self.see(count);
        let feeders = &mut self.feeders;
        self.table.settle(delivered, consumed, |level, number, position| {
            let Some(feeder) = feeders.get_mut(&number) else { return };
            match level {
                Level::Delivered => feeder.reached.delivered = position,
                Level::Consumed => feeder.reached.consumed = position,
            }
        });
    }

    /// Somebody came, or goes on behind a loss: finds where that is in the logs of the publishers. Who came has nothing
    /// of what was consumed by then. Who lost something had not consumed it, so it is still in the table: others than
    /// those whose runs are there lost nothing.
    fn see(&mut self, count: Coverage) {
        let before = std::mem::replace(&mut self.seen, count);
        self.seen.covered_from = count.covered_from.max(before.covered_from);
        self.see_parts(before);
        let all = |count: Coverage| count.receivers.saturating_add(count.left);
        let lost = count.lost.saturating_sub(before.lost);
        if all(count) > all(before) || (lost == 0 && count.covered_from > before.covered_from) {
            for feeder in self.feeders.values_mut() {
                feeder.since = feeder.since.max(feeder.reached.consumed);
            }
        } else if lost == 0 {
            return;
        }
        let mut losers = HashSet::new();
        for (number, position) in self.table.up_to(self.seen.covered_from) {
            if let Some(feeder) = self.feeders.get_mut(&number) {
                feeder.since = feeder.since.max(position);
                if losers.insert(number) {
                    feeder.lost = feeder.lost.saturating_add(lost);
                }
            }
        }
    }

    /// Finds where the parts of the count begin in the logs of the publishers. Of one that begins where it began before, or
    /// where all did, that is known.
    fn see_parts(&mut self, before: Coverage) {
        if self.seen.parts == before.parts {
            return;
        }
        let since = |parts: CoverageParts| parts.iter().map(|part| part.covered_from);
        for feeder in self.feeders.values_mut() {
            let known = since(before.parts).zip(feeder.parts).chain([(before.covered_from, feeder.since)]);
            let known: Vec<_> = known.collect();
            for (begins, part) in feeder.parts.iter_mut().zip(since(self.seen.parts)) {
                let at = known.iter().find(|(before, _)| *before == part);
                *begins = at.map_or(feeder.reached.consumed, |(_, at)| *at);
            }
        }
        for (n, part) in since(self.seen.parts).enumerate() {
            if part == before.covered_from || since(before.parts).any(|before| before == part) {
                continue;
            }
            for (number, position) in self.table.up_to(part) {
                if let Some(feeder) = self.feeders.get_mut(&number) {
                    feeder.parts[n] = feeder.parts[n].max(position);
                }
            }
        }
    }

    /// How full the table is, without what receivers have told since it was looked through.
    pub(super) fn table_load(&mut self, log: Option<&impl Log>) -> TableLoad {
        if let Some(log) = log {
            self.settle(log);
        }
        self.table.load()
    }

    /// How far a publisher's bytes have come by now.
    #[cfg(test)]
    pub(super) fn reached(&mut self, number: u32, log: &impl Log) -> Option<Reached> {
        self.settle(log);
        Some(self.feeders.get(&number)?.reached)
    }

    /// Runs that not every subscriber has given back.
    #[cfg(test)]
    pub(super) fn in_table(&self) -> usize {
        self.table.len()
    }

    /// Lets go of everybody.
    pub(super) fn clear(&mut self) {
        self.feeders.clear();
        self.line.clear();
        self.asking.clear();
    }
}
