//! Confirmed positions of one topic at each level, and the ranges that were lost before they were confirmed.
//!
//! ```text
//!      consumed        delivered       accepted        published
//!  ───────┼───────────────┼───────────────┼───────────────┼──▶
//!                         └── lost ──┤ A broker died with records that no subscriber has and that the publisher no longer
//!                                      keeps. This level confirms nothing beyond until the application accepts the loss.
//! ```
//!
//! The levels of a kept topic's disk and archive, stored, synced and archived, are the same without subscribers.

use std::collections::VecDeque;

use rocketbufs::Coverage;
use rocketbufs::Position;

use crate::ground::level::{ConfirmLevel, Confirmed, LEVELS, REPORTED};

/// The most entries of each history: departures of subscribers, and ranges with their numbers of subscribers.
const MAX_HISTORY: usize = 64;

/// A range that was lost before it was confirmed.
pub(crate) type LostRange = (Position, Position);

/// The departures and losses when everything up to a position was accepted.
#[derive(Debug, Clone, Copy)]
struct Departures {
    accepted: Position,
    left: u32,
    lost: u32,
}

/// The number of subscribers for which everything up to a position is confirmed. The range begins at the end of the
/// previous one.
#[derive(Debug, Clone, Copy)]
struct CountedRange {
    to: Position,
    subscribers: u32,
}

#[derive(Debug, Default)]
pub(crate) struct ConfirmTracker {
    confirmed: [Position; LEVELS],
    /// The positions that the broker reported, also of a level that a loss stops: the broker does not repeat them.
    reported: [Position; LEVELS],
    /// The losses before the present broker, and those that it reported.
    lost_ranges: [Option<LostRange>; LEVELS],
    /// The bytes of its predecessor that the present broker lacks, unless it is in its file: from these positions up to its start.
    lacks_from: [Position; LEVELS],
    lacks_to: Position,
    /// The bytes below this position are in the file of a broker, and not lost with its process.
    stored: Position,
    /// The same of the present broker.
    stored_here: Position,
    /// The least number of subscribers for which a position may be delivered or consumed.
    min_subscribers: u32,
    /// The number of subscribers that have the lost range, if the range is lost because they are too few.
    too_few: [Option<u32>; LEVELS],
    coverage: Coverage,
    departures: VecDeque<Departures>,
    counted: [VecDeque<CountedRange>; LEVELS],
    /// Upper limits for positions below the start of a subscriber that joined or skipped a loss: only the subscribers that
    /// were present before count there.
    limits: VecDeque<CountedRange>,
}

impl ConfirmTracker {
    /// Nothing is known yet. A range that fewer than `min_subscribers` have counts as lost.
    pub(crate) fn new(min_subscribers: u32) -> Self {
        Self { min_subscribers, ..Self::default() }
    }

    /// The broker reported its positions, and the subscribers that they cover.
    pub(crate) fn on_progress(&mut self, reported: [Position; REPORTED], coverage: Coverage) {
        let joined = coverage.joined(self.coverage);
        self.on_coverage(coverage);
        for (n, reported) in reported.into_iter().enumerate() {
            // A subscriber that joined may have less than was reported before.
            self.reported[n] = if joined { reported } else { self.reported[n].max(reported) };
            self.advance(n, reported);
        }
        let known = self.departures.back().map_or((0, 0), |last| (last.left, last.lost));
        if known != (coverage.left, coverage.lost) {
            // The successor of a dead broker gets the same records again. They were accepted before.
            let accepted = reported[0].max(self.confirmed[0]);
            self.departures.push_back(Departures { accepted, left: coverage.left, lost: coverage.lost });
            if self.departures.len() > MAX_HISTORY {
                self.departures.pop_front();
            }
        }
    }

    /// The broker reported the subscribers that its positions cover from now on.
    fn on_coverage(&mut self, coverage: Coverage) {
        let before = std::mem::replace(&mut self.coverage, coverage);
        let left = coverage.left.saturating_sub(before.left);
        let lost = coverage.lost.saturating_sub(before.lost);
        let gone = left.saturating_add(lost);
        for limit in &mut self.limits {
            limit.subscribers = limit.subscribers.saturating_sub(gone);
        }
        if coverage.covered_from > before.covered_from {
            let subscribers = before.receivers.saturating_sub(gone);
            push(&mut self.limits, CountedRange { to: coverage.covered_from, subscribers });
        }
        // A level that waits for a loss to be accepted may be behind the level below it.
        let slowest = self.confirmed[..REPORTED].iter().copied().min();
        self.limits.retain(|limit| Some(limit.to) > slowest);
    }

    /// Confirms a level up to `reached`, with the number of subscribers of each range. Stops where they are too few, and at a loss.
    fn advance(&mut self, n: usize, reached: Position) {
        let reached = self.lost(n).map_or(reached, |(from, _)| from.min(reached));
        if n >= REPORTED {
            self.confirmed[n] = self.confirmed[n].max(reached);
            return;
        }
        while self.confirmed[n] < reached {
            let from = self.confirmed[n];
            let limits = self.limits.iter().filter(|limit| limit.to > from);
            let (to, most) = limits.fold((reached, self.coverage.receivers), |(to, most), limit| {
                (to.min(limit.to), most.min(limit.subscribers))
            });
            // Each reported loss may have hit another subscriber. The parts of the coverage tell how many subscribers lost
            // nothing.
            let most = most.max(self.coverage.receivers_at(from));
            let to = self.coverage.next_after(from).map_or(to, |next| next.min(to));
            if n > 0 && most < self.min_subscribers {
                (self.lost_ranges[n], self.too_few[n]) = (Some((from, to)), Some(most));
                return;
            }
            self.confirmed[n] = to;
            count(&mut self.counted[n], CountedRange { to, subscribers: most });
        }
    }

    /// A broker that has nothing of the topic begins at `start`. Everything below that its predecessor took and that was
    /// not confirmed is lost, except for what is in its file.
    pub(crate) fn on_new_broker(&mut self, start: Position) {
        self.settle();
        let [accepted, delivered, consumed, stored, synced, archived] = self.confirmed;
        self.reported = [0; LEVELS];
        self.coverage =
            Coverage { left: self.coverage.left, lost: self.coverage.lost, ..Coverage::default() };
        // Delivered records are not lost: their subscribers will consume them. A faulty broker may report less delivered
        // than consumed.
        self.lacks_from = [accepted, delivered, delivered.max(consumed), stored, synced, archived];
        self.lacks_to = start;
    }

    /// The topic is named to a broker, which has yet to say what is in its file.
    pub(crate) fn on_naming(&mut self) {
        self.settle();
        self.stored_here = 0;
    }

    /// Another broker may follow. Records that the present broker lacks are lost, whatever the next one has in its file.
    pub(crate) fn settle(&mut self) {
        for n in 0..LEVELS {
            if self.lacking(n).is_some() {
                (self.lost_ranges[n], self.too_few[n]) = (self.lost(n), None);
            }
        }
        self.lacks_to = 0;
    }

    /// The broker will never have this range.
    pub(crate) fn on_lost(&mut self, from: Position, to: Position) {
        for (n, reached) in self.confirmed.into_iter().enumerate() {
            let range = Some((from.max(reached).max(self.in_file(n)), to)).filter(|(from, to)| from < to);
            let both = union(self.lost_ranges[n], range);
            if self.lost_ranges[n] != both {
                (self.lost_ranges[n], self.too_few[n]) = (both, None);
            }
        }
    }

    /// Nobody knows whether a level of the disk has what it has not confirmed below a position: it counts as lost.
    pub(crate) fn on_doubt(&mut self, level: ConfirmLevel, below: Position) {
        let n = level as usize;
        if let Some(range) = Some((self.confirmed[n], below)).filter(|(from, to)| from < to) {
            self.lost_ranges[n] = union(self.lost_ranges[n], Some(range));
        }
    }

    /// The broker has the log so far in its file, where it begins or gives the topic away, on its disk and in its archive.
    pub(crate) fn on_stored(&mut self, reached: [Position; 3]) {
        self.stored = self.stored.max(reached[0]);
        self.stored_here = reached[0];
        for n in 0..REPORTED {
            self.advance(n, self.reported[n]);
        }
        self.on_disk(reached);
    }

    /// The broker has the log in its file, on the disk and in its archive up to these positions.
    pub(crate) fn on_disk(&mut self, reached: [Position; 3]) {
        let levels = [ConfirmLevel::Stored, ConfirmLevel::Synced, ConfirmLevel::Archived];
        for (level, reported) in levels.into_iter().zip(reached) {
            // A faulty broker may report more of them than is stored.
            let (n, reported) = (level as usize, reported.min(reached[0]));
            self.reported[n] = self.reported[n].max(reported);
            self.advance(n, self.reported[n]);
        }
    }

    /// Everything below this position is at a broker, in its file if it keeps the topic.
    pub(crate) fn taken(&self) -> Position {
        let [accepted, _, _, stored, ..] = self.reported;
        accepted.max(stored).max(self.stored)
    }

    /// What is in a file is not lost for a level. The disk and the archive of another broker are not those of the present one.
    fn in_file(&self, n: usize) -> Position {
        if n > ConfirmLevel::Stored as usize { self.stored_here } else { self.stored }
    }

    /// The bytes that the present broker lacks at a level.
    fn lacking(&self, n: usize) -> Option<LostRange> {
        Some((self.lacks_from[n].max(self.in_file(n)), self.lacks_to)).filter(|(from, to)| from < to)
    }

    fn lost(&self, n: usize) -> Option<LostRange> {
        union(self.lost_ranges[n], self.lacking(n))
    }

    /// Everything below this position is confirmed.
    pub(crate) fn confirmed(&self, level: ConfirmLevel) -> Position {
        self.confirmed[level as usize]
    }

    /// The lost range that stops a level.
    pub(crate) fn lost_range(&self, level: ConfirmLevel) -> Option<LostRange> {
        self.lost(level as usize)
    }

    /// If too few subscribers have the lost range of a level: their number, and the number that is required.
    pub(crate) fn too_few(&self, level: ConfirmLevel) -> Option<(u32, u32)> {
        let known = self.too_few[level as usize].filter(|_| self.lacking(level as usize).is_none());
        known.map(|subscribers| (subscribers, self.min_subscribers))
    }

    /// The application accepts the loss. The level continues behind the lost range, with the positions that were reported
    /// since.
    pub(crate) fn accept_lost(&mut self, level: ConfirmLevel) -> Option<LostRange> {
        let n = level as usize;
        let range = self.lost(n)?;
        (self.lost_ranges[n], self.too_few[n], self.lacks_from[n]) = (None, None, self.lacks_to);
        self.confirmed[n] = self.confirmed(level).max(range.1);
        count(&mut self.counted[n], CountedRange { to: range.1, subscribers: 0 });
        self.advance(n, self.reported[n]);
        Some(range)
    }

    /// The outcome of a position: confirmed, lost, or none while it is open.
    pub(crate) fn outcome(
        &self,
        level: ConfirmLevel,
        position: Position,
    ) -> Option<Result<Confirmed, LostRange>> {
        if self.confirmed(level) >= position {
            let confirmed =
                Confirmed { level, position: self.confirmed(level), subscribers: 0, left: 0, lost: 0 };
            if level.is_of_disk() {
                return Some(Ok(confirmed));
            }
            let (left, lost) = self.departures_before(position);
            return Some(Ok(Confirmed {
                subscribers: self.subscribers_at(level, position),
                left: self.coverage.left.saturating_sub(left),
                lost: self.coverage.lost.saturating_sub(lost),
                ..confirmed
            }));
        }
        self.lost_range(level).map(Err)
    }

    /// The number of subscribers when a position was confirmed.
    fn subscribers_at(&self, level: ConfirmLevel, position: Position) -> u32 {
        let counted = &self.counted[level as usize];
        counted.iter().find(|range| range.to >= position).map_or(0, |range| range.subscribers)
    }

    /// The departures and losses before a position was accepted. Where the history is too short the result is too small, so
    /// that no later departure is missed.
    fn departures_before(&self, position: Position) -> (u32, u32) {
        let last = self.departures.iter().rev().find(|departures| departures.accepted < position);
        last.map_or((0, 0), |last| (last.left, last.lost))
    }
}

/// The smallest range with both.
fn union(one: Option<LostRange>, other: Option<LostRange>) -> Option<LostRange> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// Appends a range, or extends the last one if its number of subscribers is the same.
fn count(all: &mut VecDeque<CountedRange>, range: CountedRange) {
    match all.back_mut() {
        Some(last) if last.subscribers == range.subscribers => last.to = range.to,
        _ => push(all, range),
    }
}

/// Appends a range. In a full history the two oldest ranges become one, with the smaller number of subscribers.
fn push(all: &mut VecDeque<CountedRange>, range: CountedRange) {
    all.push_back(range);
    if all.len() > MAX_HISTORY
        && let Some(first) = all.pop_front()
        && let Some(next) = all.front_mut()
    {
        *next =
            CountedRange { to: next.to.max(first.to), subscribers: next.subscribers.min(first.subscribers) };
    }
}

#[cfg(test)]
mod tests;
