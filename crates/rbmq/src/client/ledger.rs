//! What is confirmed of one topic, at each level: positions that never go back, and what was lost before it was.
//!
//! ```text
//!      consumed        delivered       accepted        published
//!  ───────┼───────────────┼───────────────┼───────────────┼──▶
//!                         └── lost ──┤ a broker died: what it took and nobody got, and is not here any more, is a hole;
//!                                      beyond it this level confirms nothing until the application has been told
//! ```

use std::collections::VecDeque;

use rocketbufs::{Count, Position};

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
    holes: [Option<Hole>; 3],
    count: Count,
    changes: VecDeque<Change>,
    spoke: [VecDeque<Spoke>; 3],
}

/// For how many subscribers everything up to a position was confirmed, from where the one before it ends.
#[derive(Debug, Clone, Copy)]
struct Spoke {
    to: Position,
    subscribers: u32,
}

impl Ledger {
    /// The broker told how far it is, and for how many subscribers that speaks.
    pub(super) fn progress(&mut self, told: [Position; 3], count: Count) {
        for (n, told) in told.into_iter().enumerate() {
            let most = self.holes[n].map_or(Position::MAX, |(from, _)| from);
            let reached = told.min(most);
            if reached > self.reached[n] {
                self.reached[n] = reached;
                speak(&mut self.spoke[n], Spoke { to: reached, subscribers: count.receivers });
            }
        }
        self.count = count;
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

    /// A broker that has nothing of the topic takes it from `start` on: what the one before took and what was not
    /// confirmed by then will never be.
    pub(super) fn begins_at(&mut self, start: Position) {
        let [accepted, delivered, consumed] = self.reached;
        // What was delivered is not lost: those who have it will consume it. (A broker may tell nonsense.)
        for (reached, hole) in [accepted, delivered, delivered.max(consumed)].into_iter().zip(&mut self.holes)
        {
            extend(hole, reached, start);
        }
    }

    /// The broker will never have this range.
    pub(super) fn lost(&mut self, from: Position, to: Position) {
        for (reached, hole) in self.reached.into_iter().zip(&mut self.holes) {
            extend(hole, from.max(reached), to);
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

    /// The application knows of the loss: the level goes on behind it.
    pub(super) fn accept(&mut self, level: Level) -> Option<Hole> {
        let hole = self.holes[level as usize].take()?;
        self.reached[level as usize] = self.reached(level).max(hole.1);
        speak(&mut self.spoke[level as usize], Spoke { to: hole.1, subscribers: 0 });
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
        _ => all.push_back(spoke),
    }
    if all.len() > MOST_CHANGES
        && let Some(first) = all.pop_front()
        && let Some(next) = all.front_mut()
    {
        // What is not known any more counts for no more than is known.
        next.subscribers = next.subscribers.min(first.subscribers);
    }
}

fn extend(hole: &mut Option<Hole>, from: Position, to: Position) {
    if to > from {
        *hole = Some(hole.map_or((from, to), |(first, last)| (first.min(from), last.max(to))));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(receivers: u32, left: u32) -> Count {
        Count { receivers, left, lost: 0 }
    }

    #[test]
    fn a_new_broker_leaves_a_hole_only_where_nobody_has_it() {
        let mut ledger = Ledger::default();
        ledger.progress([100, 60, 40], count(2, 0));
        ledger.begins_at(50);
        assert_eq!(Level::ALL.map(|level| ledger.hole(level)), [None; 3], "they will consume what they have");
        ledger.begins_at(70);
        assert_eq!(Level::ALL.map(|level| ledger.hole(level)), [None, Some((60, 70)), Some((60, 70))]);
        // The new one says that all of it is delivered and consumed, by nobody.
        ledger.progress([120, 120, 120], count(0, 2));
        assert_eq!(Level::ALL.map(|level| ledger.reached(level)), [120, 60, 60]);
        assert_eq!(ledger.outcome(Level::Consumed, 61), Some(Err((60, 70))));
        assert!(matches!(ledger.outcome(Level::Consumed, 60), Some(Ok(_))));
        assert_eq!(Level::ALL.map(|level| ledger.accept(level)), [None, Some((60, 70)), Some((60, 70))]);
        ledger.progress([120, 120, 120], count(0, 2));
        ledger.progress([130, 130, 130], count(1, 2));
        let confirmed = ledger.outcome(Level::Consumed, 130).unwrap().unwrap();
        assert_eq!((confirmed.subscribers, confirmed.left), (1, 0));
        // Of what had been accepted before they went it is said that they did.
        let early = ledger.outcome(Level::Delivered, 90).unwrap().unwrap();
        assert_eq!((early.subscribers, early.left), (0, 2));
        // Nor did anybody new have what was confirmed for those.
        let earliest = ledger.outcome(Level::Delivered, 60).unwrap().unwrap();
        assert_eq!((earliest.subscribers, earliest.left), (2, 2));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Progress([u64; 3], u32),
        Begin(u64),
        Lost(u64, u64),
        Accept(Level),
    }

    fn step() -> impl Strategy<Value = Step> {
        let level = proptest::sample::select(vec![Level::Accepted, Level::Delivered, Level::Consumed]);
        prop_oneof![
            4 => (any::<[u8; 3]>(), 0..3_u32).prop_map(|(at, left)| Step::Progress(at.map(u64::from), left)),
            1 => any::<u8>().prop_map(|at| Step::Begin(at.into())),
            1 => any::<(u8, u8)>().prop_map(|(a, b)| Step::Lost(a.min(b).into(), a.max(b).into())),
            1 => level.prop_map(Step::Accept),
        ]
    }

    proptest! {
        /// Against plain sets of positions: those confirmed or given up, and those lost.
        #[test]
        fn positions_never_go_back_and_never_pass_a_loss(steps in proptest::collection::vec(step(), 0..40)) {
            let mut ledger = Ledger::default();
            let mut left = 0;
            // By level: which of the 256 positions are lost and not accepted as such.
            let mut lost = [[false; 256]; 3];
            for step in steps {
                let before = ledger.reached;
                match step {
                    Step::Progress(at, gone) => {
                        left += gone;
                        ledger.progress(at, count(1, left));
                    }
                    Step::Begin(start) => {
                        ledger.begins_at(start);
                        for (n, lost) in lost.iter_mut().enumerate() {
                            let from = if n == 2 { before[1].max(before[2]) } else { before[n] };
                            (from..start).for_each(|at| lost[at as usize] = true);
                        }
                    }
                    Step::Lost(from, to) => {
                        ledger.lost(from, to);
                        for (n, lost) in lost.iter_mut().enumerate() {
                            (from.max(before[n])..to).for_each(|at| lost[at as usize] = true);
                        }
                    }
                    Step::Accept(level) => {
                        ledger.accept(level);
                        lost[level as usize] = [false; 256];
                    }
                }
                for (n, level) in [Level::Accepted, Level::Delivered, Level::Consumed].into_iter().enumerate() {
                    let reached = ledger.reached(level);
                    prop_assert!(reached >= before[n]);
                    prop_assert!(!lost[n][..reached as usize].iter().any(|lost| *lost));
                    let any_lost = lost[n].iter().any(|lost| *lost);
                    prop_assert_eq!(ledger.hole(level).is_some(), any_lost);
                    prop_assert_eq!(ledger.outcome(level, reached + 1).is_some(), any_lost);
                }
                prop_assert!(ledger.changes.len() <= MOST_CHANGES);
                prop_assert!(ledger.spoke.iter().all(|spoke| spoke.len() <= MOST_CHANGES));
            }
        }
    }
}
