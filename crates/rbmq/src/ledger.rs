//! What is confirmed of one topic, at each level: positions that never go back, and what was lost before it was.
//!
//! ```text
//!      consumed        delivered       accepted        published
//!  ───────┼───────────────┼───────────────┼───────────────┼──▶
//!                         └── lost ──┤ a broker died: what it took and nobody got, and is not here any more, is a hole;
//!                                      beyond it this level confirms nothing until the application has been told
//! ```

use std::collections::VecDeque;

use rocketbufs::{Coverage, Position};

use super::confirm::{Confirmed, Level};

/// Changes of the counts that are remembered, to tell for whom a position was confirmed and who left since it was accepted.
const MOST_CHANGES: usize = 64;

/// A range that is lost before it was confirmed.
pub(super) type Hole = (Position, Position);

/// Who had gone and lost something when everything up to a position was accepted.
#[derive(Debug, Clone, Copy)]
struct Change {
    accepted: Position,
    left: u32,
    lost: u32,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    reached: [Position; 3],
    /// What the broker has told, a level that a loss keeps from going on included: it does not tell that again.
    told: [Position; 3],
    holes: [Option<Hole>; 3],
    /// For how many subscribers at least a position is to be delivered and consumed.
    least: u32,
    /// Why there is a hole: so few have it, and not that a broker died with it.
    few: [Option<u32>; 3],
    count: Coverage,
    changes: VecDeque<Change>,
    spoke: [VecDeque<Spoke>; 3],
    /// What lies below where somebody came, or goes on behind a loss, is confirmed for no more than were there before.
    fewer: VecDeque<Spoke>,
}

/// For how many subscribers everything up to a position is confirmed, from where the one before it ends.
#[derive(Debug, Clone, Copy)]
struct Spoke {
    to: Position,
    subscribers: u32,
}

impl Ledger {
    /// Nothing is known yet. What is delivered to fewer than `least` subscribers is a loss.
    pub(super) fn new(least: u32) -> Self {
        Self { least, ..Self::default() }
    }

    /// The broker told how far it is, and for how many subscribers that speaks.
    pub(super) fn progress(&mut self, told: [Position; 3], count: Coverage) {
        let joined = count.joined(self.count);
        self.hear(count);
        for (n, told) in told.into_iter().enumerate() {
            // Who has come may have less than was told before.
            self.told[n] = if joined { told } else { self.told[n].max(told) };
            let most = self.holes[n].map_or(Position::MAX, |(from, _)| from);
            let reached = told.min(most);
            if reached > self.reached[n] {
                self.speak_up_to(n, reached);
            }
        }
        let known = self.changes.back().map_or((0, 0), |last| (last.left, last.lost));
        if known != (count.left, count.lost) {
            // What a broker that died had accepted is being taken again, and had been accepted all the same.
            let accepted = told[0].max(self.reached[0]);
            self.changes.push_back(Change { accepted, left: count.left, lost: count.lost });
            if self.changes.len() > MOST_CHANGES {
                self.changes.pop_front();
            }
        }
    }

    /// The broker told for how many subscribers it speaks from now on.
    fn hear(&mut self, count: Coverage) {
        let before = std::mem::replace(&mut self.count, count);
        let (left, lost) = (count.left.saturating_sub(before.left), count.lost.saturating_sub(before.lost));
        let gone = left.saturating_add(lost);
        for fewer in &mut self.fewer {
            fewer.subscribers = fewer.subscribers.saturating_sub(gone);
        }
        if count.covered_from > before.covered_from {
            let subscribers = before.receivers.saturating_sub(gone);
            push(&mut self.fewer, Spoke { to: count.covered_from, subscribers });
        }
        // A level may be behind those below it while it waits for a loss to be accepted.
        let least = self.reached.into_iter().min();
        self.fewer.retain(|fewer| Some(fewer.to) > least);
    }

    /// A level reaches a position: for all the subscribers that the broker speaks for, or for those who were there. It
    /// stops where those are too few.
    fn speak_up_to(&mut self, n: usize, reached: Position) {
        while self.reached[n] < reached {
            let from = self.reached[n];
            let below = self.fewer.iter().filter(|fewer| fewer.to > from);
            let (to, most) = below.fold((reached, self.count.receivers), |(to, most), fewer| {
                (to.min(fewer.to), most.min(fewer.subscribers))
            });
            // Each of the losses that were told may be another subscriber's: those who lost nothing are known by where
            // they began.
            let most = most.max(self.count.receivers_at(from));
            let to = self.count.next_after(from).map_or(to, |next| next.min(to));
            if n > 0 && most < self.least {
                (self.holes[n], self.few[n]) = (Some((from, to)), Some(most));
                return;
            }
            self.reached[n] = to;
            speak(&mut self.spoke[n], Spoke { to, subscribers: most });
        }
    }

    /// A broker that has nothing of the topic takes it from `start` on: what the one before took and what was not
    /// confirmed by then will never be.
    pub(super) fn begins_at(&mut self, start: Position) {
        let [accepted, delivered, consumed] = self.reached;
        // It has spoken for nobody yet, and of nothing.
        self.told = [0; 3];
        self.count = Coverage { left: self.count.left, lost: self.count.lost, ..Coverage::default() };
        // What was delivered is not lost: those who have it will consume it. (A broker may tell nonsense.)
        for (n, reached) in [accepted, delivered, delivered.max(consumed)].into_iter().enumerate() {
            self.lose(n, reached, start);
        }
    }

    /// The broker will never have this range.
    pub(super) fn lost(&mut self, from: Position, to: Position) {
        for (n, reached) in self.reached.into_iter().enumerate() {
            self.lose(n, from.max(reached), to);
        }
    }

    fn lose(&mut self, n: usize, from: Position, to: Position) {
        let before = self.holes[n];
        if to > from {
            self.holes[n] = Some(before.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
        }
        if self.holes[n] != before {
            self.few[n] = None;
        }
    }

    /// Everything below is confirmed.
    pub(super) fn reached(&self, level: Level) -> Position {
        self.reached[level as usize]
    }

    /// What is lost at a level, and keeps it from going on.
    pub(super) fn hole(&self, level: Level) -> Option<Hole> {
        self.holes[level as usize]
    }

    /// How many have what is missing at a level, and how many must, if that is why it does.
    pub(super) fn too_few(&self, level: Level) -> Option<(u32, u32)> {
        self.few[level as usize].map(|subscribers| (subscribers, self.least))
    }

    /// The application knows of the loss: the level goes on behind it, with what was told of it meanwhile.
    pub(super) fn accept(&mut self, level: Level) -> Option<Hole> {
        let n = level as usize;
        let hole = self.holes[n].take()?;
        self.few[n] = None;
        self.reached[n] = self.reached(level).max(hole.1);
        speak(&mut self.spoke[n], Spoke { to: hole.1, subscribers: 0 });
        self.speak_up_to(n, self.told[n]);
        Some(hole)
    }

    /// What can be said of a position now: confirmed, lost, or nothing yet.
    pub(super) fn outcome(&self, level: Level, position: Position) -> Option<Result<Confirmed, Hole>> {
        if self.reached(level) >= position {
            let (left, lost) = self.before(position);
            return Some(Ok(Confirmed {
                level,
                position: self.reached(level),
                subscribers: self.spoke_for(level, position),
                left: self.count.left.saturating_sub(left),
                lost: self.count.lost.saturating_sub(lost),
            }));
        }
        self.hole(level).map(Err)
    }

    /// For how many subscribers it was confirmed when it was.
    fn spoke_for(&self, level: Level, position: Position) -> u32 {
        let spoke = &self.spoke[level as usize];
        spoke.iter().find(|spoke| spoke.to >= position).map_or(0, |spoke| spoke.subscribers)
    }

    /// Who had gone and lost something before the position was accepted, as far as is known: too few rather than too
    /// many, so that of those who went later none is missing.
    fn before(&self, position: Position) -> (u32, u32) {
        let last = self.changes.iter().rev().find(|change| change.accepted < position);
        last.map_or((0, 0), |last| (last.left, last.lost))
    }
}

fn speak(all: &mut VecDeque<Spoke>, spoke: Spoke) {
    match all.back_mut() {
        Some(last) if last.subscribers == spoke.subscribers => last.to = spoke.to,
        _ => push(all, spoke),
    }
}

fn push(all: &mut VecDeque<Spoke>, spoke: Spoke) {
    all.push_back(spoke);
    if all.len() > MOST_CHANGES
        && let Some(first) = all.pop_front()
        && let Some(next) = all.front_mut()
    {
        // What is not known any more counts for no more than is known.
        *next = Spoke { to: next.to.max(first.to), subscribers: next.subscribers.min(first.subscribers) };
    }
}

#[cfg(test)]
mod tests;
